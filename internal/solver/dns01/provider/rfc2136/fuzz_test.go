package rfc2136

import (
	"encoding/hex"
	"net"
	"testing"

	"github.com/miekg/dns"
)

// FuzzTSIGKey: a key that is taken signs, and the key of its canonical name takes the signature, of that message alone.
func FuzzTSIGKey(f *testing.F) {
	f.Add("key.example", "HMACSHA256", "c2VjcmV0", []byte("message"))
	f.Add("Key\\.a.", "hmacsha512", " c2Vj\ncmV0\t", []byte{})
	f.Fuzz(func(t *testing.T, name, algorithm, secret string, message []byte) {
		k, err := NewKey(name, algorithm, secret)
		if err != nil {
			return
		}
		sig := &dns.TSIG{Hdr: dns.RR_Header{Name: k.Name}, Algorithm: k.Algorithm}
		mac, err := k.Generate(message, sig)
		if err != nil {
			t.Fatalf("%+v does not sign: %v", k, err)
		}
		again, err := NewKey(k.Name, algorithm, secret)
		if err != nil {
			t.Fatalf("%q is no name of a key: %v", k.Name, err)
		}
		sig.MAC = hex.EncodeToString(mac)
		if err := again.Verify(message, sig); err != nil {
			t.Errorf("its own signature %x: %v", mac, err)
		}
		if err := again.Verify(append(message, 0), sig); err == nil {
			t.Error("the signature of another message is taken")
		}
	})
}

// FuzzNameserver: an address that is completed is a host and a port, and is complete.
func FuzzNameserver(f *testing.F) {
	for _, s := range []string{"192.0.2.1", "[2001:db8::1]", "ns.example:53", "2001:db8::1", "[::1]:", ":53", "[a]:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := address(s)
		if err != nil {
			return
		}
		host, port, err := net.SplitHostPort(got)
		if again, err2 := address(got); err != nil || host == "" || port == "" || err2 != nil || again != got {
			t.Errorf("%q is completed to %q: %q, %q, %v; then %q, %v", s, got, host, port, err, again, err2)
		}
	})
}
