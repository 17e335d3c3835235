package shim

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

// TestAnnotations writes down what each annotation of spec §6.3 does to a Certificate, and what is said of a wrong one.
func TestAnnotations(t *testing.T) {
	long := strings.Repeat("a", 65)
	plain := []string{
		"dnsNames:\n", "- a.example.com\n", "issuerRef:\n", "  group: cert-manager.io\n", "  kind: Issuer\n", "  name: ca\n",
		"secretName: web\n", "usages:\n", "- digital signature\n", "- key encipherment\n",
	}
	var out strings.Builder
	for _, c := range []string{
		"cert-manager.io/common-name=web.example.com", "cert-manager.io/common-name=" + long, "cert-manager.io/common-name=",
		"cert-manager.io/alt-names=b.example.com, c.example.com", "cert-manager.io/alt-names=b.example.com,",
		"cert-manager.io/alt-names=*.example.com,_x.example.com", "cert-manager.io/alt-names=https://b.example.com", "cert-manager.io/alt-names=b.example.com c.example.com",
		"cert-manager.io/alt-names=2001:db8::1", "cert-manager.io/alt-names=bücher.example.com",
		"cert-manager.io/ip-sans=192.0.2.1, 2001:db8::1", "cert-manager.io/ip-sans=example.com", "cert-manager.io/ip-sans=fe80::1%eth0",
		"cert-manager.io/uri-sans=spiffe://example.com/web, urn:a:b", "cert-manager.io/uri-sans=example.com/web", "cert-manager.io/uri-sans=:", "cert-manager.io/uri-sans=https://bücher.example/", "cert-manager.io/uri-sans=https://example.com/bücher",
		"cert-manager.io/email-sans=a@example.com, b@example.com", "cert-manager.io/email-sans=A <a@example.com>", "cert-manager.io/email-sans=ü@example.com",
		`cert-manager.io/subject-organizations=Example,"Example, Inc."`, `cert-manager.io/subject-organizations="Example`,
		`cert-manager.io/subject-organizations=""`, "cert-manager.io/subject-organizations=one,",
		"cert-manager.io/subject-organizations=one\ntwo", "cert-manager.io/subject-organizationalunits=unit", "cert-manager.io/subject-countries=IE,DE",
		"cert-manager.io/subject-provinces=province", "cert-manager.io/subject-localities=locality", "cert-manager.io/subject-postalcodes=12345",
		"cert-manager.io/subject-streetaddresses=street", "cert-manager.io/subject-serialnumber=42",
		"cert-manager.io/duration=2160h", "cert-manager.io/duration=59m", "cert-manager.io/duration=90d",
		"cert-manager.io/renew-before=5m", "cert-manager.io/renew-before=4m", "cert-manager.io/renew-before=2160h", "cert-manager.io/renew-before=soon",
		"cert-manager.io/duration=10h|cert-manager.io/renew-before=5h", "cert-manager.io/duration=10h|cert-manager.io/renew-before=10h",
		"cert-manager.io/renew-before-percentage=10", "cert-manager.io/renew-before-percentage=100", "cert-manager.io/renew-before-percentage=10%",
		"cert-manager.io/renew-before=5m|cert-manager.io/renew-before-percentage=10",
		"cert-manager.io/usages=server auth, client auth", "cert-manager.io/usages=serverauth",
		"cert-manager.io/revision-history-limit=3", "cert-manager.io/revision-history-limit=0", "cert-manager.io/revision-history-limit=4294967296",
		"cert-manager.io/private-key-algorithm=ECDSA", "cert-manager.io/private-key-algorithm=ecdsa",
		"cert-manager.io/private-key-encoding=PKCS8", "cert-manager.io/private-key-encoding=PEM",
		"cert-manager.io/private-key-rotation-policy=Never", "cert-manager.io/private-key-rotation-policy=Often",
		"cert-manager.io/private-key-size=4096", "cert-manager.io/private-key-size=1024", "cert-manager.io/private-key-size=big",
		"cert-manager.io/private-key-algorithm=ECDSA|cert-manager.io/private-key-size=384", "cert-manager.io/private-key-algorithm=ECDSA|cert-manager.io/private-key-size=2048",
		"cert-manager.io/private-key-algorithm=Ed25519|cert-manager.io/private-key-size=7",
		"cert-manager.io/private-key-algorithm=MLDSA65|cert-manager.io/private-key-size=7", "cert-manager.io/private-key-algorithm=MLDSA44|cert-manager.io/private-key-encoding=PKCS1",
		"cert-manager.io/private-key-algorithm=MLDSA65|cert-manager.io/usages=server auth", "cert-manager.io/private-key-algorithm=MLDSA65|cert-manager.io/usages=server auth,key agreement",
		`cert-manager.io/secret-template={"annotations":{"a":"b"},"labels":{"c":"d"}}`, `cert-manager.io/secret-template={"data":{}}`,
		`cert-manager.io/secret-template={} {}`, `cert-manager.io/secret-template={}}`, `cert-manager.io/secret-template={"annotations":{"cert-manager.io/x":"y"}}`, "cert-manager.io/secret-template=x",
		"cert-manager.io/duration=x|cert-manager.io/ip-sans=x|cert-manager.io/subject-countries=\"|cert-manager.io/subject-organizations=\"",
	} {
		o := ingress([]networkingv1.IngressTLS{tls("web", "a.example.com")}, append(strings.Split(c, "|"), issued)...)
		a := Decide(State{Object: o, Settings: settings}, now)
		fmt.Fprintf(&out, "%s\n", strings.ReplaceAll(c, long, "(65 letters)"))
		for _, w := range a.Warnings {
			fmt.Fprintf(&out, "    %s\n", w)
		}
		for _, crt := range a.Create {
			text, err := yaml.Marshal(crt.Spec)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				if !slices.Contains(plain, line) { // what a Certificate has without the annotation
					out.WriteString("    " + line)
				}
			}
		}
		again := Decide(State{Object: o, Settings: settings, Certificates: a.Create}, now)
		if len(again.Update)+len(again.Create) > 0 {
			t.Errorf("%s, again: %s", c, describe(again))
		}
	}
	golden(t, "testdata/annotations.txt", out.String())
}

// TestAnnotationsAreDocumented: docs/ingress.md names each annotation.
func TestAnnotationsAreDocumented(t *testing.T) {
	tried, err := os.ReadFile("testdata/annotations.txt")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../../docs/ingress.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(?m)^cert-manager\.io/([a-z-]+)=`).FindAllStringSubmatch(string(tried), -1)
	for _, name := range append(names, []string{"", "ignore-tls-listeners"}, []string{"", "issuer-kind"}, []string{"", "issuer-group"}) {
		if !regexp.MustCompile("`(cert-manager.io/)?" + name[1] + "`").Match(page) {
			t.Errorf("docs/ingress.md does not have %s", name[1])
		}
	}
	if len(names) < 30 {
		t.Errorf("%d annotations were tried", len(names))
	}
}
