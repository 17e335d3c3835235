package api_test

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"chancery.dev/api"
	"chancery.dev/internal/limits"
)

// TestSchemaKeepsToTheLimits: the bounds of docs/limits.md that the API server holds are in the definitions.
func TestSchemaKeepsToTheLimits(t *testing.T) {
	want := map[string]int64{
		"Certificate spec.dnsNames": limits.CertificateNames, "Certificate spec.uris": limits.CertificateNames,
		"Certificate spec.ipAddresses": limits.CertificateNames, "Certificate spec.emailAddresses": limits.CertificateNames,
		"Certificate spec.otherNames": limits.CertificateNames,
	}
	for _, kind := range []string{"Issuer", "ClusterIssuer"} {
		want[kind+" spec.acme.solvers"] = limits.Solvers
		for _, list := range []string{"dnsNames", "dnsZones"} {
			want[kind+" spec.acme.solvers.selector."+list] = limits.SelectorNames
		}
		for _, list := range []string{"ca.crlDistributionPoints", "ca.ocspServers", "ca.issuingCertificateURLs", "selfSigned.crlDistributionPoints"} {
			want[kind+" spec."+list] = limits.IssuerURLs
		}
	}
	for _, list := range []string{"organizations", "countries", "organizationalUnits", "localities", "provinces", "streetAddresses", "postalCodes"} {
		want["Certificate spec.subject."+list] = limits.CertificateNames
	}
	for _, side := range []string{"permitted", "excluded"} {
		for _, list := range []string{"dnsDomains", "ipRanges", "emailAddresses", "uriDomains"} {
			want["Certificate spec.nameConstraints."+side+"."+list] = limits.CertificateNames
		}
	}
	const perByte = 4.0 / 3 // of base64
	bundles := map[string]int64{}
	for _, kind := range []string{"Issuer", "ClusterIssuer"} {
		for _, at := range []string{"acme", "vault", "venafi.tpp"} {
			bundles[kind+" spec."+at+".caBundle"] = int64(limits.BundlePEM * perByte)
		}
	}
	crds, err := api.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range crds {
		walk(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, nil, func(path []string, s *apiextensionsv1.JSONSchemaProps) {
			at := crd.Spec.Names.Kind + " " + strings.Join(path, ".")
			if bound, bounded := want[at]; bounded && (s.MaxItems == nil || *s.MaxItems != bound) {
				t.Errorf("%s: has not the bound of %d entries", at, bound)
			}
			delete(want, at)
			if bound, bounded := bundles[at]; bounded && (s.MaxLength == nil || *s.MaxLength != bound) {
				t.Errorf("%s: has not the bound of %d characters", at, bound)
			}
			delete(bundles, at)
		})
	}
	for at := range bundles {
		t.Errorf("%s: is no field", at)
	}
	for at := range want {
		t.Errorf("%s: is no field", at)
	}
}
