package rfc2136_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/tool"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/dns01/provider/rfc2136"
)

// bindSecret is 32 octets in base64.
const bindSecret = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// bindKeys are the keys that BIND is given: algorithms of the API and of named.conf.
func bindKeys() map[string]string {
	return map[string]string{
		"HMACMD5": "hmac-md5", "HMACSHA1": "hmac-sha1", "HMACSHA256": "hmac-sha256", "HMACSHA512": "hmac-sha512",
	}
}

// startBIND runs a real BIND with the zone example.test and returns its address.
// It ends with the test.
func startBIND(t *testing.T) string {
	t.Helper()
	named := tool.Path(t, "named")
	dir := t.TempDir()
	address := rig.FreeAddress(t)
	port := address.Port()
	var conf, policy strings.Builder
	for api, bind := range bindKeys() {
		fmt.Fprintf(&conf, "key %q { algorithm %s; secret %q; };\n", strings.ToLower(api)+".key", bind, bindSecret)
		fmt.Fprintf(&policy, "grant %s.key zonesub TXT; ", strings.ToLower(api))
	}
	fmt.Fprintf(&conf, `options {
	directory %q; pid-file none; session-keyfile none; recursion no; dnssec-validation no;
	listen-on port %d { 127.0.0.1; }; listen-on-v6 port %d { ::1; };
};
controls { };
zone "example.test" { type primary; file "example.test.zone"; update-policy { %s}; };
`, dir, port, port, policy.String())
	zone := "$TTL 60\n@ SOA ns1 hostmaster 1 3600 600 86400 60\n@ NS ns1\nns1 A 127.0.0.1\n"
	for name, text := range map[string]string{"named.conf": conf.String(), "example.test.zone": zone} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, named, "-g", "-c", filepath.Join(dir, "named.conf"))
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	t.Cleanup(func() {
		cancel()
		<-ended
		if t.Failed() {
			t.Logf("BIND says:\n%s", log.String())
		}
	})
	awaitBIND(t, address.String(), ended)
	return address.String()
}

func awaitBIND(t *testing.T, server string, ended <-chan struct{}) {
	t.Helper()
	deadline := time.After(rig.Patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		client := dns.Client{Timeout: time.Second}
		if m, _, err := client.ExchangeContext(t.Context(), new(dns.Msg).SetQuestion("example.test.", dns.TypeSOA), server); err == nil &&
			m.Rcode == dns.RcodeSuccess {
			return
		}
		select {
		case <-tick.C:
		case <-ended:
			t.Fatal("BIND ended before it answered")
		case <-deadline:
			t.Fatal("BIND does not answer")
		}
	}
}

// texts returns the TXT values at a name, sorted.
func texts(t *testing.T, server, name string) []string {
	t.Helper()
	client := dns.Client{Net: "tcp", Timeout: 10 * time.Second}
	m, _, err := client.ExchangeContext(t.Context(), new(dns.Msg).SetQuestion(name, dns.TypeTXT), server)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, rr := range m.Answer {
		if txt, ok := rr.(*dns.TXT); ok {
			if txt.Hdr.Ttl != 60 {
				t.Errorf("TTL %d, want 60", txt.Hdr.Ttl)
			}
			out = append(out, strings.Join(txt.Txt, ""))
		}
	}
	slices.Sort(out)
	return out
}

func fqdn(name string) string { return dns01.FQDN(acmev1.ChallengeSpec{DNSName: name}) }

func record(name, value string) dns01.Record {
	return dns01.Record{FQDN: fqdn(name), Zone: "example.test.", Value: value, TTL: 60}
}

func mustKey(t *testing.T, name, algorithm, secret string) *rfc2136.Key {
	t.Helper()
	k, err := rfc2136.NewKey(name, algorithm, secret)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func newProvider(t *testing.T, c rfc2136.Config) *rfc2136.Provider {
	t.Helper()
	// A machine starved of CPU makes BIND slow, not wrong.
	p, err := rfc2136.New(c, rfc2136.Options{Timeout: 15 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestBIND(t *testing.T) {
	server := startBIND(t)
	for api := range bindKeys() {
		for _, tcp := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s tcp=%v", api, tcp), func(t *testing.T) {
				name := fmt.Sprintf("%s-%v.example.test", strings.ToLower(api), tcp)
				p := newProvider(t, rfc2136.Config{
					Nameserver: server, TCP: tcp, Key: mustKey(t, strings.ToLower(api)+".key", api, bindSecret+"\n"),
				})
				do := func(f func(context.Context, dns01.Record) error, value string, want ...string) {
					t.Helper()
					if err := f(t.Context(), record(name, value)); err != nil {
						t.Fatal(err)
					}
					if got := texts(t, server, fqdn(name)); !slices.Equal(got, want) {
						t.Fatalf("BIND holds %q, want %q", got, want)
					}
				}
				do(p.CleanUp, "one")
				do(p.Present, "one", "one")
				do(p.Present, "one", "one")
				do(p.Present, "two", "one", "two")
				do(p.CleanUp, "one", "two")
				do(p.CleanUp, "one", "two")
				do(p.CleanUp, "two")
			})
		}
	}
	t.Run("refusals", func(t *testing.T) { refusals(t, server) })
}

// refusals: what BIND does not accept is said in words that help, and tried again
// once a person may have mended it.
func refusals(t *testing.T, server string) {
	t.Helper()
	const source = `Secret default/tsig, entry "key"`
	key := func(name, algorithm, secret string) rfc2136.Config {
		return rfc2136.Config{Nameserver: server, Key: mustKey(t, name, algorithm, secret), KeySource: source}
	}
	for _, c := range []struct {
		name   string
		config rfc2136.Config
		zone   string
		says   []string
	}{
		{"unknown key", key("nobody.key", "HMACSHA256", bindSecret), "", []string{"BADKEY", "nobody.key", "tsigKeyName"}},
		{"wrong algorithm", key("hmacsha256.key", "HMACSHA512", bindSecret), "", []string{"BADKEY", "tsigAlgorithm"}},
		{"wrong secret", key("hmacsha256.key", "HMACSHA256", "AAAA"), "", []string{"BADSIG", "hmacsha256.key.", source}},
		{"no key", rfc2136.Config{Nameserver: server}, "", []string{"REFUSED", "unsigned", "tsigKeyName"}},
		{"not its zone", key("hmacsha256.key", "HMACSHA256", bindSecret), "other.test.", []string{"NOTAUTH", "not the primary of zone other.test."}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := record("www.example.test", "value")
			if c.zone != "" {
				r = dns01.Record{FQDN: "_acme-challenge." + c.zone, Zone: c.zone, Value: "value", TTL: 60}
			}
			err := newProvider(t, c.config).Present(t.Context(), r)
			f := fault.Of(err)
			if f == nil || f.Kind != fault.KindAfter || f.Delay <= 0 || f.Reason != dns01.ReasonRefused {
				t.Fatalf("Present = %v (%+v), want a fault to come back from", err, f)
			}
			for _, word := range c.says {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("Present says %q, which lacks %q", err, word)
				}
			}
			if strings.Contains(err.Error(), bindSecret) {
				t.Error("the message holds the secret")
			}
		})
	}
	late, err := rfc2136.New(key("hmacsha256.key", "HMACSHA256", bindSecret), rfc2136.Options{
		Timeout: 15 * time.Second, Now: func() time.Time { return time.Now().Add(-time.Hour) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := late.Present(t.Context(), record("www.example.test", "value")); err == nil || !strings.Contains(err.Error(), "BADTIME") {
		t.Errorf("with a clock that is an hour late: %v, want BADTIME", err)
	}
	if left := texts(t, server, "_acme-challenge.www.example.test."); len(left) != 0 {
		t.Errorf("refused updates left %q", left)
	}
}

func TestBINDOverIPv6(t *testing.T) {
	server := startBIND(t)
	_, port, err := net.SplitHostPort(server)
	if err != nil {
		t.Fatal(err)
	}
	p := newProvider(t, rfc2136.Config{
		Nameserver: "[::1]:" + port, Key: mustKey(t, "hmacsha256.key", "HMACSHA256", bindSecret),
	})
	err = p.Present(t.Context(), record("six.example.test", "value"))
	if f := fault.Of(err); err != nil && f == nil {
		var d net.Dialer
		if c, dialErr := d.DialContext(t.Context(), "tcp", "[::1]:"+port); dialErr != nil {
			t.Skip("SKIPPED: no IPv6 on the loopback interface of this machine")
		} else if closeErr := c.Close(); closeErr != nil {
			err = errors.Join(err, closeErr)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := texts(t, server, "_acme-challenge.six.example.test."); !slices.Equal(got, []string{"value"}) {
		t.Errorf("BIND holds %q", got)
	}
}
