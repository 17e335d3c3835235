package bench

import (
	"context"
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
	"chancery.dev/internal/pki"
)

// barePoll is how often the bare client asks whether the authority has done its part.
const barePoll = 50 * time.Millisecond

// bareClient issues by ACME with nothing around it: no Kubernetes, no queue, no self check. It is as fast as a client
// that polls can be.
type bareClient struct {
	acme    *acmeclient.Client
	kind    acme.ChallengeType
	present presenter
}

// presenter makes a proof visible, and returns what takes it away again.
type presenter func(ctx context.Context, name, token, keyAuthorization string) (remove func() error, err error)

func bareDNS01(ctx context.Context, r *run) (pace, error) {
	return bare(ctx, r, acme.ChallengeDNS01, func(rig *acmeRig) (presenter, error) { return rig.presentRecord, nil })
}

func bareHTTP01(ctx context.Context, r *run) (pace, error) {
	var answers sync.Map
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if answer, ok := answers.Load(strings.TrimPrefix(req.URL.Path, acme.HTTP01PathPrefix)); ok {
			_, _ = fmt.Fprint(w, answer)
			return
		}
		http.NotFound(w, req)
	})}
	defer func() { _ = server.Close() }()
	return bare(ctx, r, acme.ChallengeHTTP01, func(rig *acmeRig) (presenter, error) {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", rig.http.String())
		if err != nil {
			return nil, err
		}
		go func() { _ = server.Serve(listener) }()
		return func(_ context.Context, _, token, answer string) (func() error, error) {
			answers.Store(token, answer)
			return func() error {
				answers.Delete(token)
				return nil
			}, nil
		}, nil
	})
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

// bare measures the bare client against a fresh authority, whose proofs it presents as presenterOf says.
func bare(ctx context.Context, r *run, kind acme.ChallengeType, presenterOf func(*acmeRig) (presenter, error)) (pace, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rig, err := startRig(ctx)
	if err != nil {
		return pace{}, err
	}
	present, err := presenterOf(rig)
	if err != nil {
		return pace{}, err
	}
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		return pace{}, err
	}
	account, err := acmeclient.New(acmeclient.Options{DirectoryURL: rig.ca.DirectoryURL, HTTPClient: rig.ca.HTTPClient(), UserAgent: "chancery-bench", Key: key})
	if err != nil {
		return pace{}, err
	}
	if _, err := account.NewAccount(ctx, acme.NewAccountRequest{TermsOfServiceAgreed: true}); err != nil {
		return pace{}, err
	}
	t, err := loop(ctx, r.Certificates, r.Concurrency, func(ctx context.Context, i int) error {
		ctx, cancel := context.WithTimeout(ctx, issueWithin)
		defer cancel()
		return bareClient{account, kind, present}.issue(ctx, "bare-"+strconv.Itoa(i)+"."+zone)
	})
	if err != nil {
		return pace{}, fmt.Errorf("the bare ACME client: %w", err)
	}
	return t.pace(), nil
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
		if err := sleep(ctx, barePoll); err != nil {
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
		if err := sleep(ctx, barePoll); err != nil {
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
