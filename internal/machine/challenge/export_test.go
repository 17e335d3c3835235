package challenge

// What the tests compare with.
const (
	Lingering       = lingering
	YieldValidation = yieldValidation
	NameHold        = nameHold
)
