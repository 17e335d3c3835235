package api_test

import (
	"encoding/base64"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"chancery.dev/api"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/bounds"
)

// TestSchemaKeepsToTheLimits: the bounds of docs/limits.md that the API server holds are in the definitions.
func TestSchemaKeepsToTheLimits(t *testing.T) {
	names := []string{
		"Certificate spec.dnsNames", "Certificate spec.uris", "Certificate spec.ipAddresses", "Certificate spec.emailAddresses", "Certificate spec.otherNames",
	}
	for _, list := range []string{"organizations", "countries", "organizationalUnits", "localities", "provinces", "streetAddresses", "postalCodes"} {
		names = append(names, "Certificate spec.subject."+list)
	}
	for _, side := range []string{"permitted", "excluded"} {
		for _, list := range []string{"dnsDomains", "ipRanges", "emailAddresses", "uriDomains"} {
			names = append(names, "Certificate spec.nameConstraints."+side+"."+list)
		}
	}
	var solvers, selectors, addresses, bundles []string
	for _, kind := range []string{"Issuer", "ClusterIssuer"} {
		solvers = append(solvers, kind+" spec.acme.solvers")
		for _, list := range []string{"dnsNames", "dnsZones"} {
			selectors = append(selectors, kind+" spec.acme.solvers.selector."+list)
		}
		for _, list := range []string{"ca.crlDistributionPoints", "ca.ocspServers", "ca.issuingCertificateURLs", "selfSigned.crlDistributionPoints"} {
			addresses = append(addresses, kind+" spec."+list)
		}
		for _, at := range []string{"acme", "vault", "venafi.tpp"} {
			bundles = append(bundles, kind+" spec."+at+".caBundle")
		}
	}
	crds, err := api.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	// most is how many entries a field has at most, longest how many characters.
	most, longest := map[string]int64{}, map[string]int64{}
	for _, crd := range crds {
		walk(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, nil, func(path []string, s *apiextensionsv1.JSONSchemaProps) {
			at := crd.Spec.Names.Kind + " " + strings.Join(path, ".")
			if s.MaxItems != nil {
				most[at] = *s.MaxItems
			}
			if s.MaxLength != nil {
				longest[at] = *s.MaxLength
			}
		})
	}
	// in says what becomes of fields with so many entries or characters.
	in := func(fields []string, most map[string]int64, n int) limits.Outcome {
		refused := 0
		for _, at := range fields {
			if bound, bounded := most[at]; bounded && int64(n) > bound {
				refused++
			} else if !bounded {
				t.Errorf("%s: is no field with a bound", at)
			}
		}
		switch refused {
		case 0:
			return limits.Taken
		case len(fields):
		default:
			t.Errorf("%d are refused in %d of %q", n, refused, fields)
		}
		return limits.Refused
	}
	bounds.Holds(t, "names", func(n int) limits.Outcome { return in(names, most, n) })
	bounds.Holds(t, "solvers", func(n int) limits.Outcome { return in(solvers, most, n) })
	bounds.Holds(t, "names of a selector", func(n int) limits.Outcome { return in(selectors, most, n) })
	bounds.Holds(t, "addresses for certificates", func(n int) limits.Outcome { return in(addresses, most, n) })
	bounds.Holds(t, "CA bundle", func(n int) limits.Outcome { return in(bundles, longest, base64.StdEncoding.EncodedLen(n)) })
}
