package trustbundle

import (
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/pki"
)

var now = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// certificate is a self-signed one, or one that a root has signed, with its key.
func certificate(t *testing.T, number int64, lives time.Duration, isCA bool, root *x509.Certificate, by crypto.Signer) (*x509.Certificate, crypto.Signer) {
	t.Helper()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(number), Subject: pkix.Name{CommonName: "root"}, IsCA: isCA, BasicConstraintsValid: true, PublicKey: key.Public(),
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(lives),
	}
	if root == nil {
		root, by = template, key
	}
	c, err := pki.Sign(template, root, by)
	if err != nil {
		t.Fatal(err)
	}
	return c, key
}

// TestDecide: what becomes of a bundle.
func TestDecide(t *testing.T) {
	t.Parallel()
	root, key := certificate(t, 1, 100*time.Hour, true, nil, nil)
	older, _ := certificate(t, 2, 50*time.Hour, true, nil, nil)
	expired, _ := certificate(t, 3, 0, true, nil, nil)
	leaf, _ := certificate(t, 4, 100*time.Hour, false, nil, nil)
	link, _ := certificate(t, 5, 100*time.Hour, true, root, key)
	named := func(name string, labels map[string]string, text string) *certificatesv1.ClusterTrustBundle {
		b := &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", Labels: labels}}
		b.Spec.SignerName, b.Spec.TrustBundle = "cert-manager.io/pods", text
		return b
	}
	const name = "cert-manager.io:pods:chancery"
	absent := &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: name}}
	mark := map[string]string{certmanagerv1.TrustBundleLabel: "true"}
	text := func(roots ...*x509.Certificate) string { return string(pki.EncodeCertificates(roots...)) }
	leaving := named(name, mark, text(root))
	leaving.DeletionTimestamp = &metav1.Time{Time: now}
	alone := []*x509.Certificate{root}
	for what, c := range map[string]struct {
		state    State
		want     string
		contains string
	}{
		"made":                         {State{Bundle: absent, Wanted: true, Roots: alone}, "write", text(root)},
		"as it is":                     {State{Bundle: named(name, mark, text(root)), Wanted: true, Roots: alone}, "rest", ""},
		"with an older root":           {State{Bundle: named(name, mark, text(root)), Wanted: true, Roots: []*x509.Certificate{root, older, root}}, "write", text(root, older)},
		"an older root has expired":    {State{Bundle: named(name, mark, text(root, expired)), Wanted: true, Roots: []*x509.Certificate{root, expired}}, "write", text(root)},
		"neither leaves nor links":     {State{Bundle: absent, Wanted: true, Roots: []*x509.Certificate{root, leaf, link}}, "write", text(root)},
		"changed by hand":              {State{Bundle: named(name, mark, "x"), Wanted: true, Roots: alone}, "write", text(root)},
		"a problem, none yet":          {State{Bundle: absent, Wanted: true, Problem: "no Secret"}, "warn TrustBundleNotWritten", "no Secret"},
		"a problem":                    {State{Bundle: named(name, mark, text(root)), Wanted: true, Problem: "no Secret"}, "warn TrustBundleNotWritten", "no Secret"},
		"the root has expired":         {State{Bundle: named(name, mark, text(expired)), Wanted: true, Roots: []*x509.Certificate{expired, older}}, "warn TrustBundleNotWritten", "expired"},
		"the root says not that it is": {State{Bundle: absent, Wanted: true, Roots: []*x509.Certificate{leaf, older}}, "warn TrustBundleNotWritten", "basic constraints"},
		"asked for in vain":            {State{Bundle: absent, Problem: "only ClusterIssuers"}, "warn TrustBundleNotWritten", "only ClusterIssuers"},
		"had, and asked for in vain":   {State{Bundle: named(name, mark, text(root)), Problem: "only ClusterIssuers"}, "delete", "only ClusterIssuers"},
		"of somebody else":             {State{Bundle: named(name, nil, "x"), Wanted: true, Roots: alone}, "warn TrustBundleTaken", "somebody else's"},
		"not wanted":                   {State{Bundle: named(name, mark, text(root))}, "delete", ""},
		"not wanted, of others":        {State{Bundle: named(name, nil, text(root))}, "rest", ""},
		"not wanted, and not there":    {State{Bundle: absent}, "rest", ""},
		"not wanted, being deleted":    {State{Bundle: leaving}, "rest", ""},
		"being deleted":                {State{Bundle: leaving, Wanted: true, Roots: alone}, "rest", ""},
		"of another process":           {State{Bundle: named(name, mark, "x"), OutOfScope: true}, "rest", ""},
		"a name that is none of ours":  {State{Bundle: named("cert-manager.io:pods:others", mark, "x"), Wanted: true, Roots: alone}, "rest", ""},
	} {
		before := c.state.Bundle.DeepCopy()
		a := Decide(c.state, now)
		got, said := "rest", a.Message
		switch {
		case a.Write != nil:
			got, said = "write", a.Write.Spec.TrustBundle
			if a.Write.Labels[certmanagerv1.TrustBundleLabel] != "true" || a.Write.Spec.SignerName != "cert-manager.io/pods" || a.Write.UID != c.state.Bundle.UID {
				t.Errorf("%s: writes %+v", what, a.Write)
			}
		case a.Delete:
			got = "delete"
		case a.Reason != "":
			got = "warn " + a.Reason
		}
		if got != c.want || !strings.Contains(said, c.contains) || got == "write" && said != c.contains {
			t.Errorf("%s: %s %q, want %s %q", what, got, said, c.want, c.contains)
		}
		if before.Spec != c.state.Bundle.Spec {
			t.Errorf("%s: the bundle was changed", what)
		}
	}
	if a := Decide(State{Bundle: absent, Wanted: true, Roots: []*x509.Certificate{root, older}}, now); !a.Wake.Equal(older.NotAfter) {
		t.Errorf("it is looked at again at %s, the older root expires at %s", a.Wake, older.NotAfter)
	}
}

// TestNames: each bundle of an issuer has a name, and the name leads back.
func TestNames(t *testing.T) {
	t.Parallel()
	var all []string
	for _, issuer := range []metav1.Object{
		&certmanagerv1.ClusterIssuer{ObjectMeta: metav1.ObjectMeta{Name: "my.pods"}}, &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "my.pods"}},
	} {
		for _, name := range Names(issuer) {
			signerName, of, ours := SignerOf(name)
			all = append(all, signerName)
			if !ours || of.Name != "my.pods" || of.Namespace != issuer.GetNamespace() || !strings.HasPrefix(name, strings.Replace(signerName, "/", ":", 1)+":") {
				t.Errorf("%s: %q, %+v, %t", name, signerName, of, ours)
			}
		}
	}
	if want := []string{"cert-manager.io/my.pods", "clusterissuers.cert-manager.io/my.pods", "issuers.cert-manager.io/shop.my.pods"}; !slices.Equal(all, want) {
		t.Errorf("%q, want %q", all, want)
	}
	for _, name := range []string{"", "roots", ":chancery", "cert-manager.io:chancery", "example.com:pods:chancery", "cert-manager.io:pods"} {
		if _, _, ours := SignerOf(name); ours {
			t.Errorf("%q is taken for ours", name)
		}
	}
}
