package bundle

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
)

// TestText: secrets go in every form that texts have them in, and what a maintainer needs stays.
func TestText(t *testing.T) {
	t.Parallel()
	pem := "-----BEGIN EC PRIVATE KEY-----\n  MHcCAQEEI\n  -----END EC PRIVATE KEY-----"
	for in, want := range map[string]string{
		"key: " + pem + " end":                                                           "key: REDACTED end",
		"cut -----BEGIN PRIVATE KEY-----\nMHcC":                                          "cut REDACTED",
		base64.StdEncoding.EncodeToString([]byte(pem)):                                   "REDACTED",
		base64.StdEncoding.EncodeToString([]byte("-----BEGIN CERTIFICATE-----\nMHcC\n")): base64.StdEncoding.EncodeToString([]byte("-----BEGIN CERTIFICATE-----\nMHcC\n")),
		"sent eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln on":                              "sent REDACTED on",
		"https://user:hunter2@proxy.example:3128/x":                                      "https://REDACTED@proxy.example:3128/x",
		"Authorization: Bearer abcdef123":                                                "Authorization: Bearer REDACTED",
		`level=INFO password=hunter2 name=web`:                                           `level=INFO password=REDACTED name=web`,
		`{"apiToken":"hunter2","name":"web"}`:                                            `{"apiToken":REDACTED,"name":"web"}`,
		`msg="{\"password\":\"hunter2\",\"x\":1}"`:                                       `msg="{\"password\":REDACTED,\"x\":1}"`,
		`api-key: "two words" rest`:                                                      `api-key: REDACTED rest`,
		`secretName=web-tls tokenSecretRef: dns`:                                         `secretName=web-tls tokenSecretRef: dns`,
		`Secret "web-tls" does not exist`:                                                `Secret "web-tls" does not exist`,
		"http://user:hun/ter2@proxy:3128":                                                "http://REDACTED@proxy:3128",
		"http://user:hun@ter2@proxy:3128 is down":                                        "http://REDACTED@proxy:3128 is down",
		"oci://registry:5000/chancery@sha256:0123":                                       "oci://registry:5000/chancery@sha256:0123",
		`{"password":"hun\"ter2","x":1}`:                                                 `{"password":REDACTED,"x":1}`,
		"pass=hunter2 db_pwd=hunter2 passed: yes":                                        "pass=REDACTED db_pwd=REDACTED passed: yes",
		"password=hunter,2&x":                                                            "password=REDACTED&x",
		"password=\"hun\nnext=1":                                                         "password=REDACTED\nnext=1",
		"PASSPHRASE=x HMAC=x TSIG=x API-KEY=x PrivateKey=x access_key=x Role-ID=x creDential=x": "PASSPHRASE=REDACTED HMAC=REDACTED TSIG=REDACTED API-KEY=REDACTED " +
			"PrivateKey=REDACTED access_key=REDACTED Role-ID=REDACTED creDential=REDACTED",
		"Cookie: sid=hunter2":      "Cookie: REDACTED",
		"mail ops@example.com now": "mail REDACTED-EMAIL now",
		"ghcr.io/chancery/controller@sha256:0123456789abcdef0123456789abcdef": "ghcr.io/chancery/controller@sha256:0123456789abcdef0123456789abcdef",
		"https://acme.example/acme/order/12345/67890":                         "https://acme.example/acme/order/12345/67890",
	} {
		if got := (&redactor{}).text(in); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", in, got, want)
		}
	}
	if got := (&redactor{}).prose("the value Zk3xQ9Lm2Pq7Rs5Tv8Wy1Ab4 of shop/web-1-3402466679-abcdefabcdef"); got != "the value REDACTED of shop/web-1-3402466679-abcdefabcdef" {
		t.Error(got)
	}
	// Half of all random base64 of 32 bytes has a slash.
	for in, want := range map[string]string{
		"the key wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY is wrong":                   "the key REDACTED is wrong",
		"open /var/lib/kubelet/pods/Volume1/Objects: no such file":                    "open /var/lib/kubelet/pods/Volume1/Objects: no such file",
		"POST https://acme.example/acme/new-order/ACCT1/Order2 answers 429":           "POST https://acme.example/acme/new-order/ACCT1/Order2 answers 429",
		"CertificateRequest/ClusterIssuer/CertificateSigningRequest/v1 is not served": "CertificateRequest/ClusterIssuer/CertificateSigningRequest/v1 is not served",
	} {
		if got := (&redactor{}).prose(in); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", in, got, want)
		}
	}
}

// TestFields: a header or a variable that holds a secret is taken out, however its value is written.
func TestFields(t *testing.T) {
	t.Parallel()
	r := &redactor{}
	fields := map[string]any{
		"httpHeaders": []any{map[string]any{"name": "Authorization", "value": "hunter2"}, map[string]any{"name": "Cookie", "value": "hunter2"}},
		"env":         []any{map[string]any{"name": "HTTPS_PROXY", "value": "user:hunter2@proxy:3128"}},
		"args":        []any{"--password", "-hunter2", "--proxy=user:hunter2@proxy:3128"},
	}
	r.object("Pod", fields)
	if text := fmt.Sprint(fields); strings.Contains(text, "hunter2") || strings.Count(text, "proxy:3128") != 2 {
		t.Error(text)
	}
}

// TestHosts: a host has one pseudonym everywhere, whatever the case, and other names stay.
func TestHosts(t *testing.T) {
	t.Parallel()
	r := &redactor{}
	r.hide([]string{"*.shop.example.com", "www.blog.org", "localhost"})
	const in = "www.example.com _acme-challenge.WWW.example.com *.shop.example.com blog.org myexample.com acme-v02.api.letsencrypt.org web.cert-manager.io"
	const want = "host-1.invalid _acme-challenge.host-1.invalid *.host-2.invalid host-3.invalid myexample.com acme-v02.api.letsencrypt.org web.cert-manager.io"
	if got := r.text(in); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	fields := map[string]any{"status": map[string]any{"certificate": "LS0tLS1CRUdJTiBDRVJ"}}
	r.object("CertificateRequest", fields)
	if got := fields["status"].(map[string]any)["certificate"].(string); !strings.HasPrefix(got, gone) {
		t.Errorf("the certificate has the names: %s", got)
	}
	fields = map[string]any{"spec": map[string]any{"request": "x", "caBundle": "x"}}
	r.object("CertificateRequest", fields)
	if got := fmt.Sprint(fields); strings.Count(got, gone) != 2 {
		t.Errorf("what is encoded has the names: %s", got)
	}
}

// TestManyHosts: whoever writes Certificates chooses how many domains are hidden, and how texts look.
func TestManyHosts(t *testing.T) {
	t.Parallel()
	domain := func(i int) string { return fmt.Sprintf("%x.example", sha256.Sum224(fmt.Append(nil, i))) }
	var names []string
	for i := range 120_000 {
		names = append(names, "www."+domain(i))
	}
	r := &redactor{}
	r.hide(names)
	in := "see WWW." + domain(7) + ":443, tls-" + domain(7) + "-1, a.b.c"
	const want = "see host-1.invalid:443, tls-host-2.invalid-1, a.b.c"
	if got := r.text(in); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, text := range []string{strings.Repeat("a-", 1<<19) + "." + strings.Repeat("-a", 1<<19), strings.Repeat("a-a-a-a-a-a-a-a.", 1<<16), strings.Repeat("a.", 1<<19)} {
		if got := r.text(text); got != text {
			t.Errorf("%.20s… was changed: %.60s…", text, got)
		}
	}
}
