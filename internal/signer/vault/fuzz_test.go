package vault

import (
	"encoding/json"
	"encoding/xml"
	"strings"
	"testing"

	"chancery.dev/internal/pki"
)

// FuzzSigned: what is taken of Vault's answer is a chain whose first certificate is for the key of the request, and
// that everybody can read.
func FuzzSigned(f *testing.F) {
	key := newKey(f)
	r := requestFor(f, "request", "CertificateRequest", key)
	o, err := newOrder("pki/sign/web", r)
	if err != nil {
		f.Fatal(err)
	}
	rootKey := newKey(f)
	root := issue(f, "root", true, rootKey, nil, rootKey)
	leaf := issue(f, "leaf", false, key, root, rootKey)
	for _, chain := range [][]string{nil, {string(pki.EncodeCertificates(root))}, {"", " "}} {
		text, err := json.Marshal(map[string]any{"certificate": string(pki.EncodeCertificates(leaf)), "issuing_ca": string(pki.EncodeCertificates(root)), "ca_chain": chain})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		result, err := o.read(t.Context(), text)
		if err != nil {
			return
		}
		certs, err := pki.DecodeChain(result.Bundle.Chain)
		if err != nil || !pki.PublicKeysEqual(certs[0].PublicKey, key.Public()) {
			t.Fatalf("%q, %v", result.Bundle.Chain, err)
		}
		if len(result.Bundle.CA) > 0 {
			if _, err := pki.DecodeCertificate(result.Bundle.CA); err != nil {
				t.Error(err)
			}
		}
	})
}

// FuzzAWSError: of an answer that is no error of STS, no word is shown.
func FuzzAWSError(f *testing.F) {
	f.Add([]byte(`<ErrorResponse><Error><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>`))
	f.Add([]byte(`<html>an internal page</html>`))
	f.Fuzz(func(t *testing.T, text []byte) {
		got := awsError(403, text)
		if got == "Forbidden" {
			return
		}
		var reply struct {
			Error struct{ Code, Message string }
		}
		if xml.Unmarshal(text, &reply) != nil || !strings.HasPrefix(got, reply.Error.Code+": ") {
			t.Errorf("%q is shown as %q", text, got)
		}
	})
}
