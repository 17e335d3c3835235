package servingcert

import (
	"testing"
	"time"
)

// TestDue: a certificate is replaced after two thirds of its life; later, if its CA has just been replaced, so that all
// clients can have heard of the new one; and at once, if clients do not trust its CA any more.
func TestDue(t *testing.T) {
	t.Parallel()
	began, life := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), 60*time.Hour
	due := func(after time.Duration, kept bool) time.Duration {
		before, err := newAuthority("ca", nil, began)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := before.sign([]string{"a.example.com"}, life-skew, began)
		if err != nil {
			t.Fatal(err)
		}
		ca := before
		if after != 0 {
			if !kept {
				before = nil
			}
			if ca, err = newAuthority("ca", before, began.Add(after)); err != nil {
				t.Fatal(err)
			}
		}
		return ca.due(leaf.Leaf, began.Add(after)).Sub(began) + skew
	}
	for _, c := range []struct {
		after time.Duration
		kept  bool
		want  time.Duration
	}{
		{0, true, 40 * time.Hour},
		{30 * time.Hour, true, 40 * time.Hour},
		{39*time.Hour + 30*time.Minute, true, 40*time.Hour + 30*time.Minute},
		{30 * time.Hour, false, 30*time.Hour + skew},
	} {
		if got := due(c.after, c.kept); got != c.want {
			t.Errorf("a new CA after %s, with the one before: %t: due after %s, want %s", c.after, c.kept, got, c.want)
		}
	}
}

// TestNotAfterTheCA: no certificate ends after its CA, and a CA that has expired signs none.
func TestNotAfterTheCA(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	ca, err := newAuthority("ca", nil, now)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := ca.sign([]string{"a.example.com"}, 2*caLife, now)
	if err != nil || !leaf.Leaf.NotAfter.Equal(ca.cert.NotAfter) {
		t.Errorf("%v, %v", leaf, err)
	}
	if _, err := ca.sign(nil, time.Hour, ca.cert.NotAfter); err == nil {
		t.Error("a CA that has expired has signed")
	}
	data, err := ca.data(now)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"tls.crt", "tls.key"} {
		data[key] = nil
		if _, err := readAuthority(data); err == nil && len(data["tls.crt"])+len(data["tls.key"]) > 0 {
			t.Errorf("it is read without %s", key)
		}
	}
}
