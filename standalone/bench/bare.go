package bench

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"chancery.dev/internal/acme"
	acmeclient "chancery.dev/internal/acme/client"
)

// barePoll is how often the bare client asks whether the authority has done its part.
const barePoll = 50 * time.Millisecond

// bareClient issues by ACME with nothing around it: no Kubernetes, no queue, no self check. It is as fast as a client
// that polls can be.
type bareClient struct {
	acme *acmeclient.Client
	kind acme.ChallengeType
	// present makes the proof visible, and returns what takes it away again.
	present func(ctx context.Context, name, token, keyAuthorization string) (remove func() error, err error)
}

func bareDNS01(ctx context.Context, r *run) (*Ceiling, error) {
	rig, err := startRig(ctx)
	if err != nil {
		return nil, err
	}
	defer rig.end()
	return bare(ctx, r, rig, bareClient{kind: acme.ChallengeDNS01, present: rig.presentRecord})
}

func bareHTTP01(ctx context.Context, r *run) (*Ceiling, error) {
	rig, err := startRig(ctx)
	if err != nil {
		return nil, err
	}
	defer rig.end()
	var answers sync.Map
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if answer, ok := answers.Load(strings.TrimPrefix(req.URL.Path, acme.HTTP01PathPrefix)); ok {
			_, _ = fmt.Fprint(w, answer)
			return
		}
		http.NotFound(w, req)
	})}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", rig.http.String())
	if err != nil {
		return nil, err
	}
	go func() { _ = server.Serve(listener) }()
	defer func() { _ = server.Close() }()
	return bare(ctx, r, rig, bareClient{kind: acme.ChallengeHTTP01, present: func(_ context.Context, _, token, answer string) (func() error, error) {
		answers.Store(token, answer)
		return func() error {
			answers.Delete(token)
			return nil
		}, nil
	}})
}

// presentRecord adds the TXT record to the zone, by one update (RFC 2136).
func (g *acmeRig) presentRecord(ctx context.Context, name, _, keyAuthorization string) (func() error, error) {
	record := []dns.RR{&dns.TXT{
		Hdr: dns.RR_Header{Name: acme.DNS01Label + name + ".", Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: 60},
		Txt: []string{acme.DNS01Value(keyAuthorization)},
	}}
	update := func(edit func(*dns.Msg)) error {
		message := new(dns.Msg).SetUpdate(zone + ".")
		edit(message)
		reply, err := dns.ExchangeContext(ctx, message, g.dns.Addr())
		if err == nil && reply.Rcode != dns.RcodeSuccess {
			err = errors.New("the DNS server answers the update with " + dns.RcodeToString[reply.Rcode])
		}
		return err
	}
	err := update(func(m *dns.Msg) { m.Insert(record) })
	return func() error { return update(func(m *dns.Msg) { m.Remove(record) }) }, err
}

// bare measures the bare client against a fresh authority.
func bare(ctx context.Context, r *run, rig *acmeRig, c bareClient) (*Ceiling, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	c.acme, err = acmeclient.New(acmeclient.Options{DirectoryURL: rig.ca.DirectoryURL, HTTPClient: rig.ca.HTTPClient(), UserAgent: "chancery-bench", Key: key})
	if err != nil {
		return nil, err
	}
	if _, err := c.acme.NewAccount(ctx, acme.NewAccountRequest{TermsOfServiceAgreed: true}); err != nil {
		return nil, err
	}
	t, err := loop(ctx, r.Certificates, r.Concurrency, func(ctx context.Context, i int) error {
		ctx, cancel := context.WithTimeout(ctx, issueWithin)
		defer cancel()
		return c.issue(ctx, "bare-"+strconv.Itoa(i)+"."+zone)
	})
	if err != nil {
		return nil, fmt.Errorf("the bare ACME client: %w", err)
	}
	return &Ceiling{Name: "a bare ACME client issues", Unit: "certificates", Pace: t.pace()}, nil
}

// issue makes a key and gets a certificate for it.
func (c bareClient) issue(ctx context.Context, name string) (err error) {
	order, err := c.acme.NewOrder(ctx, acme.NewOrderRequest{Identifiers: []acme.Identifier{acme.DNS(name)}})
	if err != nil {
		return err
	}
	remove, err := c.authorize(ctx, name, order.Authorizations[0])
	if remove != nil {
		defer func() { err = errors.Join(err, remove()) }()
	}
	if err != nil {
		return err
	}
	request, err := newRequest("", name)
	if err != nil {
		return err
	}
	url := order.URL
	if order, err = c.acme.FinalizeOrder(ctx, order.Finalize, request); err != nil {
		return err
	}
	for order.Status == acme.StatusProcessing {
		if err := pause(ctx); err != nil {
			return err
		}
		if order, err = c.acme.GetOrder(ctx, url); err != nil {
			return err
		}
	}
	if order.Status != acme.StatusValid {
		return fmt.Errorf("the order for %s is %s: %w", name, order.Status, order.Error)
	}
	_, err = c.acme.FetchCertificate(ctx, order.Certificate)
	return err
}

// authorize proves control of the name and waits until the authority has seen it.
func (c bareClient) authorize(ctx context.Context, name, url string) (remove func() error, err error) {
	authorization, err := c.acme.GetAuthorization(ctx, url)
	if err != nil {
		return nil, err
	}
	for _, challenge := range authorization.Challenges {
		if challenge.Type != c.kind {
			continue
		}
		answer := challenge.Token + "." + c.acme.Thumbprint()
		if remove, err = c.present(ctx, name, challenge.Token, answer); err != nil {
			return nil, err
		}
		if err := c.acme.AcceptChallenge(ctx, challenge.URL); err != nil {
			return remove, err
		}
	}
	for authorization.Status == acme.StatusPending {
		if err := pause(ctx); err != nil {
			return remove, err
		}
		if authorization, err = c.acme.GetAuthorization(ctx, url); err != nil {
			return remove, err
		}
	}
	if authorization.Status != acme.StatusValid {
		return remove, fmt.Errorf("the authorization for %s is %s", name, authorization.Status)
	}
	return remove, nil
}

// pause waits for one polling interval.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(barePoll):
		return nil
	}
}
