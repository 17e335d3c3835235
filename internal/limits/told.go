package limits

// Bounds of what the controller says about one object.
const (
	// EventBytes is the size of the message of an event. The API server takes no more in the newer form of events.
	EventBytes = 1024
)
