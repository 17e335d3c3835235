package acme

// Reason is a CRL reason code (RFC 5280 §5.3.1).
type Reason int

// The reasons that CAs accept from subscribers.
const (
	ReasonUnspecified          Reason = 0
	ReasonKeyCompromise        Reason = 1
	ReasonAffiliationChanged   Reason = 3
	ReasonSuperseded           Reason = 4
	ReasonCessationOfOperation Reason = 5
)
