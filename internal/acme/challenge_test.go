package acme

import "testing"

func TestAccountLabel(t *testing.T) {
	// The first is the draft's example.
	for url, want := range map[string]string{
		"https://example.com/acme/acct/ExampleAccount":         "ujmmovf2vn55tgye",
		"http://localhost:4000/acme/acct/1":                    "vkbgbqfhr6yv2asd",
		"https://acme-v02.api.letsencrypt.org/acme/acct/12345": "lvrajhh53e27yh7f",
	} {
		if got := AccountLabel(url); got != want {
			t.Errorf("AccountLabel(%q) = %q, want %q", url, got, want)
		}
	}
}

func TestDNS01Name(t *testing.T) {
	for _, c := range []struct{ domain, label, want string }{
		{"example.org", "", "_acme-challenge.example.org"},
		{"example.org", "ujmmovf2vn55tgye", "_ujmmovf2vn55tgye._acme-challenge.example.org"},
	} {
		if got := DNS01Name(c.domain, c.label); got != c.want {
			t.Errorf("DNS01Name(%q, %q) = %q, want %q", c.domain, c.label, got, c.want)
		}
	}
}
