package egress

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"syscall"
	"time"

	"chancery.dev/internal/fault"
)

// Cause describes a network error in words that are the same on every try: without ephemeral ports, request ids and
// nested prefixes. Errors of signers and solvers end in the status of an object, and each change of a status is a
// write. It is for errors that quote nothing of an answer, such as those of a Transport.
func Cause(err error) string {
	var (
		netErr net.Error
		dnsErr *net.DNSError
		opErr  *net.OpError
		urlErr *url.Error
		errno  syscall.Errno
		// invalid is what is wrong with a certificate.
		invalid x509.CertificateInvalidError
	)
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert != nil: // it says what time it is now
		return fmt.Sprintf("the server's certificate is good only from %s to %s",
			invalid.Cert.NotBefore.UTC().Format(time.RFC3339), invalid.Cert.NotAfter.UTC().Format(time.RFC3339))
	case errors.As(err, &dnsErr) && dnsErr.IsNotFound:
		return "the name " + dnsErr.Name + " does not resolve"
	case errors.As(err, &dnsErr) && dnsErr.IsTimeout:
		return "no answer in time from DNS for " + dnsErr.Name
	case errors.As(err, &dnsErr):
		return "DNS could not resolve " + dnsErr.Name
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.As(err, &netErr) && netErr.Timeout():
		return "no answer in time"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was closed without an answer"
	case errors.As(err, &errno):
		return errno.Error()
	case errors.As(err, &opErr):
		return opErr.Err.Error()
	case errors.As(err, &urlErr):
		err = urlErr.Err
	}
	return fault.Quote(err.Error())
}
