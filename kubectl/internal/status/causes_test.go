package status

import (
	"context"
	"html"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/dashboard"
	"chancery.dev/internal/rig"
	"chancery.dev/kubectl/internal/plugin"
)

// TestCauses: with the rights of view, the first lines name the cause and the cure of what is set up wrongly, and the
// dashboard says the same words.
func TestCauses(t *testing.T) {
	t.Parallel()
	w := newStage(t)
	w.Create(t, &corev1.Secret{ObjectMeta: named("tsig-other"), StringData: map[string]string{"key": "YW5vdGhlciBzZWNyZXQ="}})
	good, profile := time.Now().Add(48*time.Hour), w.acme(w.byDNS("tsig"))
	profile.ACME.Profile = "long"
	cases := []struct {
		name, host string
		issuer     *certmanagerv1.IssuerSpec
		// cause, next and cure are parts of the first lines.
		cause, next, cure string
	}{
		{"tsig", "tsig.example.com", w.acme(w.byDNS("tsig-other")), "BADSIG", "every", `into the Secret ` + w.Namespace + `/tsig-other (key "key")`},
		{"caa", "caa.example.com", w.acme(byHTTP(false)), "CAA record for example.com prevents issuance", "), or at once", "dig CAA caa.example.com"},
		{"port", "port.example.com", w.acme(byHTTP(true)), "connection refused", "every", "Make http://port.example.com, port 80, lead to this cluster"},
		{"zone", "www.example.org", w.acme(w.byDNS("tsig")), "does the domain exist?", "within five minutes", "dig +trace NS www.example.org"},
		{"missing", "missing.example.com", nil, "/missing does not exist", "as soon as it exists", "Create the issuer, or correct spec.issuerRef"},
		{"limited", "limited.example.com", w.acme(w.byDNS("tsig")), "too many certificates already issued", "at 20", "Do not delete the Certificate"},
		{"denied", "denied.example.com", w.authority(t, "denied", good, true), "the request was denied: policy.example.com: no names", "), or at once", "Ask the approver"},
		{"wrong", "wrong.example.com", w.authority(t, "wrong", good, false), "/wrong is not ready", "as soon as the issuer is ready", "Put the CA's certificate (tls.crt) and the private key that belongs to it"},
		{"expired", "expired.example.com", w.authority(t, "expired", time.Now().Add(-time.Hour), true), "expired on", "with the renewal", "Put a CA certificate that is good, and its key, into the Secret " + w.Namespace + "/expired-ca"},
		{"profile", "profile.example.com", profile, "does not advertise a profile with name long", "), or at once", `Choose a profile that the CA has, in place of "long"`},
	}
	w.cfg.ApproveSigners = nil
	for _, c := range cases {
		if c.name != "denied" {
			w.cfg.ApproveSigners = append(w.cfg.ApproveSigners, "issuers.cert-manager.io/"+w.Namespace+"."+c.name)
		}
		w.issue(t, c.name, c.host, c.issuer)
	}
	w.Run(t, w.cfg)
	w.deny(t, "denied-1")
	page := w.dashboard(t)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rig.Eventually(t, "status says why", func(ctx context.Context) string {
				said, requests, err := w.status(ctx, c.name)
				if err != nil {
					return err.Error()
				}
				if len(requests) > 10 {
					t.Errorf("%d requests: %v", len(requests), requests)
				}
				if missing := otherWords(said, page(ctx, c.name)); missing != "" {
					return "the dashboard does not say " + missing + "\n" + said
				}
				return lacks(said, "Certificate "+w.Namespace+"/"+c.name+": |"+c.cause, "what to do: |"+c.cure, "next try:   |"+c.next)
			})
		})
	}
}

// dashboard serves the page as the viewer, and returns what gets the words about a Certificate.
func (w *stage) dashboard(t *testing.T) func(ctx context.Context, name string) string {
	t.Helper()
	flags := genericclioptions.NewConfigFlags(true)
	flags.KubeConfig, flags.Impersonate = &w.kubeconfig, &w.viewer
	c, err := plugin.Connect(flags)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	url, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		o := dashboard.Options{Client: c, Namespace: w.Namespace, Address: "127.0.0.1:0"}
		ended <- dashboard.Serve(ctx, o, func(at string) { url <- at })
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	var cookies []*http.Cookie
	get := func(ctx context.Context, url string) string {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err.Error()
		}
		for _, cookie := range cookies {
			request.AddCookie(cookie)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err.Error()
		}
		defer func() { _ = answer.Body.Close() }()
		if len(cookies) == 0 {
			cookies = answer.Cookies()
		}
		text, _ := io.ReadAll(answer.Body) // what is missing is missed
		return html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(string(text), " "))
	}
	var opened string
	select {
	case opened = <-url:
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	get(ctx, opened)
	origin, _, _ := strings.Cut(opened, "/open/")
	return func(ctx context.Context, name string) string {
		return get(ctx, origin+"/certificate/"+w.Namespace+"/"+name)
	}
}

// otherWords returns a line of status that the page does not say; empty if there is none.
func otherWords(said, page string) string {
	page = strings.Join(strings.Fields(page), " ")
	for line := range strings.Lines(said) {
		line = strings.Trim(line, "│├└─ \n")
		if rest, is := strings.CutPrefix(line, "Certificate "); is { // the page has the name in its title
			_, line, _ = strings.Cut(rest, ": ")
		}
		for _, label := range []string{"next try:", "what to do:", "expires:", "renewal:"} {
			if text, is := strings.CutPrefix(line, label); is {
				line = strings.TrimSuffix(label, ":") + " " + strings.TrimSpace(text)
			}
		}
		if !strings.Contains(page, strings.Join(strings.Fields(line), " ")) {
			return line
		}
	}
	return ""
}

// lacks says what the first lines of a report do not say; each is given as its beginning, "|" and a part of it.
func lacks(said string, want ...string) string {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	if len(lines) < len(want) {
		return said
	}
	for i, w := range want {
		begin, part, _ := strings.Cut(w, "|")
		if !strings.HasPrefix(lines[i], begin) || !strings.Contains(lines[i], part) {
			return "it lacks " + w + ":\n" + said
		}
	}
	return ""
}
