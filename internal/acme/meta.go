package acme

import "time"

// Meta is what the headers of a response say beside its object.
type Meta struct {
	// RetryAfter is how long the server asks to wait before asking again; 0 if it did not say.
	RetryAfter time.Duration `json:"-"`
	// Location is the Location header as an absolute URL; often empty.
	Location string `json:"-"`
}
