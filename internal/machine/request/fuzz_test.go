package request

import (
	"testing"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// FuzzSignerName: a signer name that is ours is made of what is read in it, so that no two name the same issuer.
func FuzzSignerName(f *testing.F) {
	for _, name := range []string{"cert-manager.io/ca", "issuers.cert-manager.io/ns.a.b", "issuers.cert-manager.io/.a", "clusterissuers.cert-manager.io/a/b", "x/y"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, ok := ParseSignerName(text)
		if !ok {
			return
		}
		path := n.Name
		if n.Namespace != "" {
			path = n.Namespace + "." + path
		}
		domain := map[Form]string{FormCSR: "", FormCSRIssuer: "issuers.", FormCSRClusterIssuer: "clusterissuers."}[n.Form] + certmanagerv1.GroupName
		dotless := n.Form == FormCSRIssuer && n.Namespace == "" && domain+"/."+path == text // which names no namespace either
		if domain+"/"+path != text && !dotless || n.Namespace != "" && n.Form != FormCSRIssuer {
			t.Errorf("%q is read as %+v", text, n)
		}
	})
}

// FuzzCSRDuration: the validity of a CertificateSigningRequest is never longer than either of the two that ask for it,
// and never shorter than the least.
func FuzzCSRDuration(f *testing.F) {
	f.Add("24h", int32(3600), true)
	f.Add("-1h", int32(-5), true)
	f.Add("2562047h47m16.854775807s", int32(0), false)
	f.Fuzz(func(t *testing.T, annotation string, seconds int32, given bool) {
		a := CSRAnnotationsOf(map[string]string{certmanagerv1.CSRDurationAnnotation: annotation})
		var limit *int32
		if given {
			limit = &seconds
		}
		d, err := a.Duration(limit)
		asked, bad := time.ParseDuration(annotation)
		switch {
		case err != nil:
		case annotation == "" && !given:
			if d != 0 {
				t.Errorf("nobody asks, and it is %s", d)
			}
		case d < MinimumCSRDuration, annotation != "" && (bad != nil || d > asked), given && d > time.Duration(seconds)*time.Second:
			t.Errorf("%q and %d s: %s", annotation, seconds, d)
		}
	})
}
