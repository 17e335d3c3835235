package tlsalpn01

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"chancery.dev/internal/limits"
	"chancery.dev/internal/solver/http01"
)

// The results of connections.
const (
	// ResultAnswered: the handshake was for a challenge in flight, and is complete.
	ResultAnswered = "answered"
	// ResultUnknown: it was for a name that no challenge in flight has.
	ResultUnknown = "unknown"
	// ResultFailed: it was no handshake of TLS-ALPN-01, or not completed in time.
	ResultFailed = "failed"
)

// ResponderOptions configure a Responder.
type ResponderOptions struct {
	// Index has the answers.
	Index *http01.Index
	// Wait is how long a handshake waits for an answer that is not there yet: the CA may
	// be faster than the watch. 0 means 2 s.
	Wait time.Duration
	// MaxWaiters bounds how many handshakes wait at once; 0 means 256.
	MaxWaiters int
	// MaxConnections bounds the connections that are open at once; for one more, the oldest is closed. 0 means
	// limits.Connections.
	MaxConnections int
	// Timeout bounds a connection; 0 means 10 s.
	Timeout time.Duration
	// Answered is called with the result of each connection; may be nil.
	Answered func(result string)
	// Now is the clock of certificates; nil is the machine's.
	Now func() time.Time
}

// Responder answers TLS-ALPN-01 challenges: it completes handshakes, and serves nothing else.
type Responder struct {
	o     ResponderOptions
	key   *ecdsa.PrivateKey
	queue *http01.Queue
}

// NewResponder makes a Responder, with a new key: any key will do (RFC 8737 §3).
func NewResponder(o ResponderOptions) (*Responder, error) {
	o.MaxConnections, o.Timeout = cmp.Or(o.MaxConnections, limits.Connections), cmp.Or(o.Timeout, 10*time.Second)
	if o.Answered == nil {
		o.Answered = func(string) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of TLS-ALPN-01 answers: %w", err)
	}
	return &Responder{o: o, key: key, queue: http01.NewQueue(o.Index, o.Wait, o.MaxWaiters)}, nil
}

// acceptAgain is the wait after the listener has failed: the process may have too many open files.
const acceptAgain = 100 * time.Millisecond

// Serve answers until ctx ends or somebody closes the listener, and then closes it and what is open.
func (r *Responder) Serve(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var open sync.WaitGroup
	defer open.Wait()
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	connections := http01.NewConnections(r.o.MaxConnections)
	for {
		conn, err := listener.Accept()
		switch {
		case err == nil:
			connections.Track(conn, http.StateNew)
			open.Go(func() {
				defer connections.Track(conn, http.StateClosed)
				r.o.Answered(r.answer(ctx, conn))
			})
			continue
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("listen for TLS-ALPN-01 challenges: %w", err)
		}
		select {
		case <-time.After(acceptAgain):
		case <-ctx.Done():
		}
	}
}

// answer does one handshake, after which the connection ends (RFC 8737 §3).
func (r *Responder) answer(ctx context.Context, conn net.Conn) (result string) {
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	defer func() { _ = conn.Close() }()
	result = ResultFailed
	secure := tls.Server(conn, &tls.Config{
		MinVersion:             tls.VersionTLS12,
		NextProtos:             []string{Protocol},
		SessionTicketsDisabled: true,
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if !slices.Equal(hello.SupportedProtos, []string{Protocol}) {
				return nil, errNotOurs
			}
			certificate, err := r.find(hello)
			if certificate == nil && err == nil {
				result = ResultUnknown // and the alert is unrecognized_name
			}
			return certificate, err
		},
	})
	if err := secure.HandshakeContext(ctx); err != nil {
		return result
	}
	// Close sends close_notify; an error means that the client has gone.
	_ = secure.SetDeadline(time.Now().Add(time.Second))
	_ = secure.Close()
	return ResultAnswered
}

var errNotOurs = errors.New("a handshake for " + Protocol + " asks for no other protocol beside it")

// find returns the certificate that answers a handshake; nil if there is none.
func (r *Responder) find(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if hello.ServerName == "" {
		return nil, nil //nolint:nilnil // crypto/tls then says that it knows no such name
	}
	var identifier, keyAuthorization string
	var ok bool
	r.queue.Find(hello.Context(), func() bool {
		identifier, keyAuthorization, ok = r.o.Index.LookupServer(hello.ServerName)
		return ok
	})
	if !ok {
		return nil, nil //nolint:nilnil // as above
	}
	return newCertificate(r.key, identifier, keyAuthorization, r.o.Now())
}
