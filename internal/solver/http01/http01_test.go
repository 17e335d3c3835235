package http01_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/egress"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/bounds"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/rig/solver/conformance"
	"chancery.dev/internal/solver"
	"chancery.dev/internal/solver/http01"
)

const thumbprint = "9jg46WB3rR_AHD-EBXdN7cBkH1WOu0tA3M9fm21mqTI"

// order returns the Order "order" of a namespace, which lists challenges for the
// given names with the tokens token-0, token-1, …
func order(namespace string, names ...string) *acmev1.Order {
	o := &acmev1.Order{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "order", UID: types.UID("uid-" + namespace)}}
	for n, name := range names {
		o.Status.Authorizations = append(o.Status.Authorizations, acmev1.ACMEAuthorization{
			Identifier: name,
			Challenges: []acmev1.ACMEChallenge{
				{URL: fmt.Sprintf("https://ca.test/dns/%d", n), Token: fmt.Sprintf("token-%d", n), Type: "dns-01"},
				{URL: fmt.Sprintf("https://ca.test/chall/%d", n), Token: fmt.Sprintf("token-%d", n), Type: "http-01"},
			},
		})
	}
	return o
}

// challenge returns challenge n of that Order, as the scheduler leaves it.
func challenge(namespace, name string, n int) *acmev1.Challenge {
	token := fmt.Sprintf("token-%d", n)
	isController := true
	return &acmev1.Challenge{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("challenge-%d", n),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "acme.cert-manager.io/v1", Kind: "Order", Name: "order",
				UID: types.UID("uid-" + namespace), Controller: &isController,
			}},
		},
		Spec: acmev1.ChallengeSpec{
			URL: fmt.Sprintf("https://ca.test/chall/%d", n), DNSName: name, Type: acmev1.ChallengeTypeHTTP01,
			Token: token, Key: token + "." + thumbprint,
			Solver: acmev1.ACMEChallengeSolver{HTTP01: &acmev1.HTTP01Solver{}},
		},
		Status: acmev1.ChallengeStatus{Processing: true, State: acmev1.Pending},
	}
}

func TestIndexAnswersOnlyWhatTheSchedulerAndTheOrderAllow(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*acmev1.Challenge, *acmev1.Order)
		want   bool
	}{
		{"in flight", func(*acmev1.Challenge, *acmev1.Order) {}, true},
		{"parked", func(c *acmev1.Challenge, _ *acmev1.Order) { c.Status.Processing, c.Status.Presented = false, true }, true},
		{"queued", func(c *acmev1.Challenge, _ *acmev1.Order) { c.Status.Processing = false }, false},
		{"final", func(c *acmev1.Challenge, _ *acmev1.Order) { c.Status.State = acmev1.Valid }, false},
		{"DNS-01", func(c *acmev1.Challenge, _ *acmev1.Order) { c.Spec.Type = acmev1.ChallengeTypeDNS01 }, false},
		{"no owner", func(c *acmev1.Challenge, _ *acmev1.Order) { c.OwnerReferences = nil }, false},
		{"owner of another kind", func(c *acmev1.Challenge, _ *acmev1.Order) { c.OwnerReferences[0].Kind = "Pod" }, false},
		{"owner of another group", func(c *acmev1.Challenge, _ *acmev1.Order) { c.OwnerReferences[0].APIVersion = "evil/v1" }, false},
		{"owner is not the controller", func(c *acmev1.Challenge, _ *acmev1.Order) { c.OwnerReferences[0].Controller = nil }, false},
		{"another Order of that name", func(_ *acmev1.Challenge, o *acmev1.Order) { o.UID = "another" }, false},
		{"an Order in another namespace", func(c *acmev1.Challenge, _ *acmev1.Order) { c.Namespace = "tenant" }, false},
		{"URL not listed", func(c *acmev1.Challenge, _ *acmev1.Order) { c.Spec.URL += "0" }, false},
		{"URL of the dns-01 challenge", func(c *acmev1.Challenge, _ *acmev1.Order) { c.Spec.URL = "https://ca.test/dns/0" }, false},
		{"token not listed", func(_ *acmev1.Challenge, o *acmev1.Order) { o.Status.Authorizations[0].Challenges[1].Token = "x" }, false},
		{"name not listed", func(_ *acmev1.Challenge, o *acmev1.Order) { o.Status.Authorizations[0].Identifier = "other.test" }, false},
		{"no status yet", func(_ *acmev1.Challenge, o *acmev1.Order) { o.Status = acmev1.OrderStatus{} }, false},
		{"final Order", func(_ *acmev1.Challenge, o *acmev1.Order) { o.Status.State = acmev1.Invalid }, false},
		{"key of another token", func(c *acmev1.Challenge, _ *acmev1.Order) { c.Spec.Key = "other." + thumbprint }, false},
		{"key is a page", func(c *acmev1.Challenge, _ *acmev1.Order) { c.Spec.Key = c.Spec.Token + ".<html>" }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			ch, o := challenge("ns", "www.example.test", 0), order("ns", "www.example.test")
			c.change(ch, o)
			for _, orderFirst := range []bool{false, true} {
				x := http01.NewIndex()
				if orderFirst {
					x.UpsertOrder(o)
				}
				x.UpsertChallenge(ch)
				if !orderFirst {
					x.UpsertOrder(o)
				}
				answer, ok := x.Lookup("www.example.test", "token-0")
				if ok != c.want || ok && answer != "token-0."+thumbprint {
					t.Errorf("order first = %v: Lookup = %q, %v, want %v", orderFirst, answer, ok, c.want)
				}
			}
		})
	}
}

func TestIndexForgets(t *testing.T) {
	x := http01.NewIndex()
	feed := func() { x.UpsertOrder(order("ns", "a.test")); x.UpsertChallenge(challenge("ns", "a.test", 0)) }
	settled := challenge("ns", "a.test", 0)
	settled.Status = acmev1.ChallengeStatus{State: acmev1.Valid}
	emptied := order("ns")
	for name, end := range map[string]func(){
		"challenge deleted": func() { x.DeleteChallenge("ns", "challenge-0") },
		"challenge settled": func() { x.UpsertChallenge(settled) },
		"order deleted":     func() { x.DeleteOrder("ns", "order") },
		"order emptied":     func() { x.UpsertOrder(emptied) },
	} {
		feed()
		if _, ok := x.Lookup("a.test", "token-0"); !ok {
			t.Fatalf("before %s: no answer", name)
		}
		end()
		if answer, ok := x.Lookup("a.test", "token-0"); ok {
			t.Errorf("after %s: answer %q", name, answer)
		}
	}
}

// A tenant who forges a Challenge neither answers nor keeps the real one from
// answering.
func TestForgedChallengeDoesNotDisturb(t *testing.T) {
	x := http01.NewIndex()
	for n := range 20 {
		forged := challenge(fmt.Sprintf("tenant-%d", n), "www.example.test", 0)
		forged.Spec.Key = "token-0.forged"
		forged.OwnerReferences[0].UID = "uid-ns" // the real Order, which is elsewhere
		x.UpsertChallenge(forged)
		x.UpsertOrder(order(forged.Namespace, "tenant.test"))
	}
	if answer, ok := x.Lookup("www.example.test", "token-0"); ok {
		t.Fatalf("the forged challenge answers %q", answer)
	}
	x.UpsertOrder(order("ns", "www.example.test"))
	x.UpsertChallenge(challenge("ns", "www.example.test", 0))
	for range 20 { // whatever the order of a map
		if answer, _ := x.Lookup("www.example.test", "token-0"); answer != "token-0."+thumbprint {
			t.Fatalf("answer %q", answer)
		}
	}
}

func TestHost(t *testing.T) {
	for in, want := range map[string]string{
		"Www.Example.TEST": "www.example.test", "www.example.test.": "www.example.test", "www.example.test:8080": "www.example.test",
		"192.0.2.1": "192.0.2.1", "192.0.2.1:80": "192.0.2.1", "[2001:DB8::0:1]": "2001:db8::1", "[2001:db8::1]:80": "2001:db8::1",
		"2001:db8:0::1": "2001:db8::1", "::ffff:192.0.2.1": "192.0.2.1", "": "",
	} {
		if got := http01.Host(in); got != want {
			t.Errorf("Host(%q) = %q, want %q", in, got, want)
		}
	}
}

// get asks a handler without a socket in between.
func get(h http.Handler, method, host, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(context.Background(), method, "http://placeholder"+path, http.NoBody)
	r.Host = host
	h.ServeHTTP(w, r)
	return w
}

func TestResponder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := http01.NewIndex()
		x.UpsertOrder(order("ns", "www.example.test", "192.0.2.1", "2001:db8::1"))
		for n, name := range []string{"www.example.test", "192.0.2.1", "2001:db8::1"} {
			x.UpsertChallenge(challenge("ns", name, n))
		}
		r := http01.NewResponder(http01.ResponderOptions{Index: x})
		const path = "/.well-known/acme-challenge/"
		for _, c := range []struct {
			method, host, path string
			status             int
		}{
			{"GET", "www.example.test", path + "token-0", 200},
			{"HEAD", "www.example.test", path + "token-0", 200},
			{"GET", "WWW.example.test:5002", path + "token-0", 200},
			{"GET", "192.0.2.1", path + "token-1", 200},
			{"GET", "[2001:db8::1]:80", path + "token-2", 200},
			{"GET", "anything", "/healthz", 200},
			{"POST", "www.example.test", path + "token-0", 404},
			{"GET", "other.test", path + "token-0", 404},
			{"GET", "www.example.test", path + "token-1", 404},
			{"GET", "www.example.test", path, 404},
			{"GET", "www.example.test", path + "token-0/", 404},
			{"GET", "www.example.test", path + "..%2f", 404},
			{"GET", "www.example.test", "/", 404},
		} {
			w := get(r, c.method, c.host, c.path)
			if w.Code != c.status {
				t.Errorf("%s %s%s = %d, want %d", c.method, c.host, c.path, w.Code, c.status)
			}
			if strings.HasPrefix(c.path, path) && c.status == 200 {
				if got := w.Header().Get("Cache-Control"); !strings.Contains(got, "no-store") {
					t.Errorf("Cache-Control %q", got)
				}
				if token := strings.TrimPrefix(c.path, path); c.method == "GET" && w.Body.String() != token+"."+thumbprint {
					t.Errorf("%s%s answers %q", c.host, c.path, w.Body)
				}
			}
		}
	})
}

// TestServeEndsBesideASilentConnection: a client that has opened a connection and asks nothing, as load balancers do,
// does not make the end of the responder an error.
func TestServeEndsBesideASilentConnection(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- http01.Serve(ctx, listener, http.NotFoundHandler()) }()
	silent, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	resp, err := http.Get("http://" + listener.Addr().String()) // the connection before it has been accepted by then
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestResponderWaitsForTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := http01.NewIndex()
		r := http01.NewResponder(http01.ResponderOptions{Index: x, MaxWaiters: 2})
		const path = "/.well-known/acme-challenge/token-0"
		start := time.Now()
		codes := make(chan int, 2)
		for range 2 {
			go func() { codes <- get(r, "GET", "www.example.test", path).Code }()
		}
		synctest.Wait()
		if w := get(r, "GET", "www.example.test", path); w.Code != 404 || time.Since(start) != 0 {
			t.Errorf("one waiter too many: %d after %v, want 404 at once", w.Code, time.Since(start))
		}
		x.UpsertOrder(order("ns", "www.example.test"))
		synctest.Wait()
		x.UpsertChallenge(challenge("ns", "www.example.test", 0))
		for range 2 {
			if code := <-codes; code != 200 || time.Since(start) != 0 {
				t.Errorf("a waiter got %d after %v, want 200 as soon as the watch brings it", code, time.Since(start))
			}
		}
		if w := get(r, "GET", "other.test", path); w.Code != 404 || time.Since(start) != 2*time.Second {
			t.Errorf("a miss: %d after %v, want 404 after 2 s", w.Code, time.Since(start))
		}
	})
}

// site is an HTTP server on loopback, reached under any name.
type site struct{ port int }

func newSite(t *testing.T, h http.Handler) site {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return site{portOf(t, s.Listener.Addr())}
}

func portOf(t *testing.T, a net.Addr) int {
	t.Helper()
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		t.Fatalf("listening at %v", a)
	}
	return tcp.Port
}

// resolver serves every name below example.test at 127.0.0.1.
func resolver(t *testing.T) *dnsserver.Server {
	t.Helper()
	s, err := dnsserver.Start(t.Context(), dnsserver.Config{
		Zones: []dnsserver.Zone{{Name: "example.test", Wildcard: netip.MustParseAddr("127.0.0.1")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	x := http01.NewIndex()
	names := []string{"www.example.test", "www.example.test"}
	x.UpsertOrder(order("ns", names...))
	r := http01.NewResponder(http01.ResponderOptions{Index: x, Wait: time.Millisecond})
	options := http01.CheckOptions{Port: newSite(t, r).port, Nameservers: []string{resolver(t).Addr()}}
	conformance.Run(t, conformance.Harness{
		New:   func() solver.Solver { return http01.New(options, nil) },
		Task:  func(n int) solver.Task { return solver.Task{Challenge: challenge("ns", names[n], n)} },
		Start: func(task solver.Task) { x.UpsertChallenge(task.Challenge) },
		AfterCleanUp: func(task solver.Task) {
			done := task.Challenge.DeepCopy()
			done.Status = acmev1.ChallengeStatus{State: acmev1.Valid}
			x.UpsertChallenge(done)
		},
		Visible: func(_ context.Context, task solver.Task) bool {
			w := get(r, "GET", task.Challenge.Spec.DNSName, "/.well-known/acme-challenge/"+task.Challenge.Spec.Token)
			return w.Code == 200 && w.Body.String() == task.Challenge.Spec.Key
		},
	})
}

// check runs one self check of challenge 0 against a handler.
func check(t *testing.T, h http.HandlerFunc, name string, change func(*http01.CheckOptions)) error {
	t.Helper()
	o := http01.CheckOptions{
		Port: newSite(t, h).port, UserAgent: "chancery/test", Nameservers: []string{resolver(t).Addr()}, Timeout: 5 * time.Second,
	}
	if change != nil {
		change(&o)
	}
	err := http01.New(o, nil).Check(t.Context(), solver.Task{Challenge: challenge("ns", name, 0)})
	if f := fault.Of(err); err != nil && (f == nil || f.Kind != fault.KindAfter || f.Reason != http01.ReasonNotReachable && f.Reason != http01.ReasonWrongAnswer) {
		t.Errorf("Check = %v (%+v), want a fault to come back from", err, f)
	}
	return err
}

// only allows a range alone.
func only(prefix string) *egress.Policy {
	return egress.New([]netip.Prefix{netip.MustParsePrefix(prefix)}, nil)
}

func text(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		// The client under test may hang up first.
		_, _ = io.WriteString(w, body)
	}
}

func TestSelfCheck(t *testing.T) {
	bounds.Holds(t, "self check", func(n int) limits.Outcome {
		task := solver.Task{Challenge: challenge("ns", "www.example.test", 0)}
		task.Challenge.Spec.Key = strings.Repeat("x", n)
		o := http01.CheckOptions{
			Port: newSite(t, text(200, task.Challenge.Spec.Key)).port, UserAgent: "chancery/test", Nameservers: []string{resolver(t).Addr()}, Timeout: 5 * time.Second,
		}
		return bounds.Refusal(t, http01.New(o, nil).Check(t.Context(), task), "the answer is longer than 4 KiB")
	})
	const key = "token-0." + thumbprint
	for _, c := range []struct {
		name string
		h    http.HandlerFunc
		dns  string
		opts func(*http01.CheckOptions)
		says string
	}{
		{name: "answered", h: text(200, key)},
		{name: "IPv4 identifier", h: text(200, key), dns: "127.0.0.1"},
		{name: "other status", h: text(503, key), says: "wrong status code '503', expected '200'"},
		{name: "shorter body", h: text(200, key[1:]), says: "the answer is not the expected one"},
		{name: "longer body", h: text(200, key+"\n"), says: "the answer is not the expected one"},
		{name: "unbounded body", h: text(200, strings.Repeat("secret", 1<<20)), says: "the answer is not the expected one"},
		{name: "no such name", h: text(200, key), dns: "nowhere.invalid", says: "the name nowhere.invalid does not resolve"},
		{name: "refused", h: text(200, key), opts: func(o *http01.CheckOptions) { o.Port = closedPort(t) }, says: "connection refused"},
		{name: "hung up", h: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, says: "closed without an answer"},
		{name: "slow", h: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			opts: func(o *http01.CheckOptions) { o.Timeout = 50 * time.Millisecond }, says: "no answer in time"},
		{name: "denied by default", h: text(200, key), says: "www.example.test has the address 127.0.0.1, which is off limits",
			opts: func(o *http01.CheckOptions) { o.Egress = egress.New(nil, nil) }},
		{name: "not allowed", h: text(200, key), says: "off limits",
			opts: func(o *http01.CheckOptions) { o.Egress = only("192.0.2.0/24") }},
		{name: "allowed", h: text(200, key),
			opts: func(o *http01.CheckOptions) { o.Egress = only("127.0.0.1/32") }},
		{name: "endless redirects", says: "more than 10 redirects",
			h: func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path+"x", http.StatusFound) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := c.dns
			if name == "" {
				name = "www.example.test"
			}
			err := check(t, c.h, name, c.opts)
			if c.says == "" {
				if err != nil {
					t.Errorf("Check: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("Check = %v, want %q", err, c.says)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("%q quotes the body", err)
			}
		})
	}
}

func TestSelfCheckFollowsRedirectsToUnverifiedTLS(t *testing.T) {
	const key = "token-0." + thumbprint
	answer := text(200, key)
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("User-Agent") != "chancery/test" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		answer(w, r)
	}))
	defer secure.Close()
	port := portOf(t, secure.Listener.Addr())
	target := "https://" + net.JoinHostPort("other.example.test", strconv.Itoa(port))
	redirect := func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, target+r.URL.Path+"?secret", http.StatusMovedPermanently)
	}
	if err := check(t, redirect, "www.example.test", nil); err != nil {
		t.Errorf("Check: %v", err)
	}
	answer = text(404, "")
	err := check(t, redirect, "www.example.test", nil)
	if err == nil || !strings.Contains(err.Error(), "redirected to "+target+": wrong status code '404'") || strings.Contains(err.Error(), "secret") {
		t.Errorf("Check = %v, want the redirect's host and the status", err)
	}
	// A redirect to an address that is off limits is not followed either.
	err = check(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusFound)
	}, "www.example.test", func(o *http01.CheckOptions) { o.Egress = only("127.0.0.0/8") })
	if err == nil || !strings.Contains(err.Error(), "169.254.169.254 is off limits") {
		t.Errorf("Check = %v", err)
	}
}

// A proxy is not told to go where we may not go ourselves.
func TestSelfCheckThroughAProxy(t *testing.T) {
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, strings.TrimRight(r.URL.Host, "0123456789"))
		if r.URL.Path == "/.well-known/acme-challenge/token-0" && r.URL.Hostname() == "www.example.test" {
			http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusFound)
			return
		}
		text(200, "token-0."+thumbprint)(w, r)
	}))
	defer proxy.Close()
	address, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, policy := range []*egress.Policy{nil, egress.New(nil, nil)} {
		asked = nil
		err := check(t, nil, "2001:db8::1", func(o *http01.CheckOptions) { o.Proxy, o.Egress = http.ProxyURL(address), policy })
		if err != nil || !slices.Equal(asked, []string{"[2001:db8::1]:"}) {
			t.Errorf("a target that may be asked: %v, asked %q", err, asked)
		}
	}
	asked = nil
	if err := check(t, nil, "www.example.test", func(o *http01.CheckOptions) { o.Proxy = http.ProxyURL(address) }); err != nil || len(asked) != 2 {
		t.Errorf("without a limit: %v, asked %q", err, asked)
	}
	asked = nil
	err = check(t, nil, "www.example.test", func(o *http01.CheckOptions) { o.Proxy, o.Egress = http.ProxyURL(address), only("127.0.0.0/8") })
	if err == nil || !strings.Contains(err.Error(), "169.254.169.254 is off limits") || len(asked) != 1 {
		t.Errorf("Check = %v, asked %q", err, asked)
	}
}

// The text of a failure goes into a status: it must not change from try to try.
func TestSelfCheckSaysTheSameTwice(t *testing.T) {
	dial := func(_ context.Context, network, address string) (net.Conn, error) {
		return nil, &net.OpError{
			Op: "read", Net: network, Source: &net.TCPAddr{Port: int(time.Now().UnixNano() % 60000)}, Err: errors.New("reset of " + address),
		}
	}
	s := http01.New(http01.CheckOptions{Dial: dial, Nameservers: []string{resolver(t).Addr()}}, nil)
	task := solver.Task{Challenge: challenge("ns", "www.example.test", 0)}
	first, second := s.Check(t.Context(), task), s.Check(t.Context(), task)
	if first == nil || second == nil || first.Error() != second.Error() {
		t.Errorf("first %v, then %v", first, second)
	}
	const want = "GET http://www.example.test/.well-known/acme-challenge/token-0: reset of 127.0.0.1:80"
	if first == nil || !strings.HasPrefix(first.Error(), want+"; ") || !strings.Contains(first.Error(), "set waitInsteadOfSelfCheck") {
		t.Errorf("Check says %v, want %s and what may be wrong with the viewpoint", first, want)
	}
}

// reported is a route of which this is said.
type reported string

func (reported) Present(context.Context, solver.Task) error   { return nil }
func (reported) CleanUp(context.Context, solver.Task) error   { return nil }
func (r reported) Status(context.Context, solver.Task) string { return string(r) }

// TestSelfCheckSaysWhatIsWrongWithTheRoute tells what is known of the route, and what to
// do if nothing is wrong but the viewpoint.
func TestSelfCheckSaysWhatIsWrongWithTheRoute(t *testing.T) {
	o := http01.CheckOptions{Port: newSite(t, text(404, "secret")).port, Nameservers: []string{resolver(t).Addr()}}
	for status, words := range map[reported]string{
		"no controller serves it": "no controller serves it",
		"":                        "the route is reported to work and the responder to be ready",
	} {
		err := http01.New(o, status).Check(t.Context(), solver.Task{Challenge: challenge("ns", "www.example.test", 0)})
		f := fault.Of(err)
		if f == nil || f.Kind != fault.KindAfter || f.Reason != http01.ReasonWrongAnswer {
			t.Fatalf("Check = %v", err)
		}
		for _, said := range []string{"wrong status code '404'", words, "hairpin NAT", "waitInsteadOfSelfCheck"} {
			if !strings.Contains(err.Error(), said) {
				t.Errorf("Check says %q, not %q", err, said)
			}
		}
	}
}

func TestSelfCheckOfAnIPv6Identifier(t *testing.T) {
	var dialed, host string
	s := newSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host = r.Host
		text(200, "token-0."+thumbprint)(w, r)
	}))
	o := http01.CheckOptions{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		dialed = address
		return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)))
	}}
	if err := http01.New(o, nil).Check(t.Context(), solver.Task{Challenge: challenge("ns", "2001:db8::1", 0)}); err != nil {
		t.Fatal(err)
	}
	if dialed != "[2001:db8::1]:80" || host != "[2001:db8::1]" {
		t.Errorf("dialed %s for host %s", dialed, host)
	}
}

// closedPort returns a port of the loopback address that nobody listens on.
func closedPort(t *testing.T) int {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().(*net.TCPAddr).Port
}

// TestACMESolver answers one challenge as cert-manager's acmesolver does (spec §5.8).
func TestACMESolver(t *testing.T) {
	const path = "/.well-known/acme-challenge/token"
	for _, c := range []struct {
		domain, method, host, path string
		status                     int
		body                       string
	}{
		{"www.example.com", http.MethodGet, "www.example.com", path, http.StatusOK, "token.key"},
		{"www.example.com", http.MethodPost, "WWW.example.com:8089", path, http.StatusOK, "token.key"},
		{"2001:db8::1", http.MethodGet, "[2001:db8::1]", path, http.StatusOK, "token.key"},
		{"2001:db8::1", http.MethodGet, "[2001:db8::1]:80", path, http.StatusOK, "token.key"},
		{"www.example.com", http.MethodGet, "other.example.com", path, http.StatusNotFound, ""},
		{"www.example.com", http.MethodGet, "www.example.com", path + "x", http.StatusNotFound, ""},
		{"www.example.com", http.MethodGet, "www.example.com", "/.well-known/acme-challenge/", http.StatusNotFound, ""},
		{"www.example.com", http.MethodGet, "any", "/", http.StatusOK, ""},
		{"www.example.com", http.MethodGet, "any", "/healthz", http.StatusOK, ""},
	} {
		req := httptest.NewRequest(c.method, "http://x"+c.path, http.NoBody)
		req.Host = c.host
		rec := httptest.NewRecorder()
		http01.ACMESolver{Domain: c.domain, Token: "token", Key: "token.key"}.ServeHTTP(rec, req)
		if rec.Code != c.status || c.body != "" && (rec.Body.String() != c.body || rec.Header().Get("Cache-Control") != "no-cache, no-store, must-revalidate") {
			t.Errorf("%s %s%s of %s: %d %q %v", c.method, c.host, c.path, c.domain, rec.Code, rec.Body, rec.Header())
		}
	}
}
