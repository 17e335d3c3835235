package acmeflow

import "testing"

func TestHostRules(t *testing.T) {
	for _, c := range []struct {
		rule, namespace, host string
		want                  bool
	}{
		{"shop=www.example.com", "shop", "www.example.com", true},
		{"shop=WWW.example.com", "shop", "www.Example.com", true},
		{"shop=www.example.com", "shop", "example.com", false},
		{"shop=www.example.com", "shop", "a.www.example.com", false},
		{"shop=www.example.com", "bank", "www.example.com", false},
		{"shop=*.example.com", "shop", "www.example.com", true},
		{"shop=*.example.com", "shop", "a.b.example.com", true},
		{"shop=*.example.com", "shop", "example.com", false},
		{"shop=*.example.com", "shop", "wwwexample.com", false},
		{"shop=*", "shop", "192.0.2.1", true},
		{"shop=192.0.2.1", "shop", "192.0.2.1", true},
		{"shop=2001:db8::1", "shop", "2001:db8:0::1", true},
		{"*=*.example.com", "bank", "www.example.com", true},
		{"*=*", "bank", "anything.example", true},
	} {
		r, err := ParseHostRule(c.rule)
		if err != nil {
			t.Errorf("%s: %v", c.rule, err)
		} else if got := r.permits(c.namespace, c.host); got != c.want {
			t.Errorf("%s permits %s in %s = %t", c.rule, c.host, c.namespace, got)
		}
	}
	for _, text := range []string{"", "www.example.com", "shop=", "=*", "Shop=*", "shop=*.*", "shop=a*.example.com", "shop=*.192.0.2.1", "shop=https://x", "shop=a b", "sh*=*"} {
		if r, err := ParseHostRule(text); err == nil {
			t.Errorf("%q is parsed as %v", text, r)
		}
	}
}
