package pki

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"chancery.dev/internal/rig/tool"
)

// today is a certificate that is valid now: Java has no other time.
func today(t *testing.T, cn string, isCA bool, parent *pair) *pair {
	t.Helper()
	key := mustKey(t, ECDSA)
	template := mustTemplate(t, mustCSR(t, CSRTemplate{Subject: pkix.Name{CommonName: cn}, IsCA: isCA, EncodeUsages: true}, key), isCA)
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	signer, by := template, key
	if parent != nil {
		signer, by = parent.cert, parent.key
	}
	cert, err := Sign(template, signer, by)
	if err != nil {
		t.Fatal(err)
	}
	return &pair{cert: cert, key: key}
}

// linked is a keystore after two rotations, below an intermediate, and the roots, oldest first.
func linked(t *testing.T) (k Keystore, roots []*x509.Certificate) {
	t.Helper()
	first, second, third := today(t, "root", true, nil), today(t, "root", true, nil), today(t, "root", true, nil)
	links := make([]*x509.Certificate, 2)
	for i, pair := range [][2]*pair{{third, second}, {second, first}} {
		var err error
		if links[i], err = NewLink(pair[0].cert, pair[1].cert, pair[1].key, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	middle := today(t, "middle", true, third)
	leaf := today(t, "leaf", false, middle)
	return Keystore{
		Alias: "certificate", Password: storePassword, Key: leaf.key,
		Chain: []*x509.Certificate{leaf.cert, middle.cert, links[0], links[1]}, CA: []*x509.Certificate{third.cert, second.cert, first.cert},
	}, []*x509.Certificate{first.cert, second.cert, third.cert}
}

// TestJavaKeepsLinks: all roots have one name. Java makes the chain of a PKCS#12 keystore itself, and tells the
// certificates apart by their key identifiers. It adds the root that the last link leads to.
func TestJavaKeepsLinks(t *testing.T) {
	keytool := program(t, "keytool")
	k, roots := linked(t)
	for name, store := range map[string]struct {
		data  []byte
		alias string
		want  []*x509.Certificate
	}{
		"JKS":               {must(t)(EncodeJKS(k)), "certificate", k.Chain},
		"PKCS#12":           {must(t)(EncodePKCS12(k, Modern2023)), "1", append(slices.Clone(k.Chain), roots[0])},
		"PKCS#12 LegacyRC2": {must(t)(EncodePKCS12(k, LegacyRC2)), "1", append(slices.Clone(k.Chain), roots[0])},
	} {
		out, err := keytool(store.data, "-list", "-rfc", "-alias", store.alias, "-storepass:env", "STORE_PASSWORD", "-keystore")
		if certs, _ := blocksOf(strings.ReplaceAll(out, "\r\n", "\n")); err != nil || certs != string(EncodeCertificates(store.want...)) {
			t.Errorf("%s: %v: another chain comes out\n%s", name, err, out)
		}
	}
}

// TestJavaFollowsLinks: Java accepts the chain with each of the roots, and with all. Compiling takes a JDK, which
// machines that test may lack.
func TestJavaFollowsLinks(t *testing.T) {
	java := tool.Path(t, "java")
	if _, err := tool.Find("javac"); err != nil {
		t.Skip("SKIPPED: ", err)
	}
	k, roots := linked(t)
	dir := t.TempDir()
	args := []string{"testdata/Accepts.java"}
	write := func(name string, data []byte) {
		args = append(args, filepath.Join(dir, name))
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("chain.pem", EncodeCertificates(k.Chain...))
	for name, ca := range map[string][]*x509.Certificate{"first": roots[:1], "second": roots[1:2], "third": roots[2:], "all": k.CA} {
		trusts := k
		trusts.CA = ca
		write(name+".jks", must(t)(EncodeJKSTruststore(trusts)))
		write(name+".p12", must(t)(EncodePKCS12Truststore(trusts, Modern2023)))
	}
	cmd := exec.CommandContext(t.Context(), java, args...)
	cmd.Env = append(os.Environ(), "STORE_PASSWORD="+storePassword)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	k.Chain = k.Chain[:3] // without the last link
	write("chain.pem", EncodeCertificates(k.Chain...))
	cmd = exec.CommandContext(t.Context(), java, "testdata/Accepts.java", filepath.Join(dir, "chain.pem"), filepath.Join(dir, "first.jks"))
	cmd.Env = append(os.Environ(), "STORE_PASSWORD="+storePassword)
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Errorf("it accepts a chain that leads elsewhere, too\n%s", out)
	}
}
