// Package cmctl shows that cmctl, unmodified, works with these controllers.
package cmctl
