// Package cmctl tests that cmctl, unmodified, works with Chancery.
package cmctl
