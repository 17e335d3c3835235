package pki

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/bounds"
	"chancery.dev/internal/rig/growth"
)

// hugeKey is an RSA key of more bits than a modular exponentiation should be made
// with, in no more PEM than the limits of spec §9.3 allow.
func hugeKey(t *testing.T, bits int) *rsa.PublicKey {
	t.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), uint(bits-1)))
	if err != nil {
		t.Fatal(err)
	}
	n.SetBit(n, bits-1, 1)
	n.SetBit(n, 0, 1)
	return &rsa.PublicKey{N: n, E: 1<<31 - 1}
}

// forgedRequest is a certificate request for a key, with a signature by nobody.
func forgedRequest(t *testing.T, public *rsa.PublicKey) []byte {
	t.Helper()
	key, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	type info struct {
		Version    int
		Subject    asn1.RawValue
		PublicKey  asn1.RawValue
		Attributes []asn1.RawValue `asn1:"tag:0"`
	}
	der, err := asn1.Marshal(struct {
		Info      info
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}{
		info{Subject: asn1.RawValue{FullBytes: []byte{0x30, 0}}, PublicKey: asn1.RawValue{FullBytes: key}},
		pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11}, Parameters: asn1.NullRawValue},
		asn1.BitString{Bytes: make([]byte, public.Size()), BitLength: 8 * public.Size()},
	})
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemRequest, Bytes: der})
}

// What anybody can put into an object is refused before work is done that grows with
// the square of its size.
func TestHugeKeysAreRefused(t *testing.T) {
	huge := hugeKey(t, 250_000)
	request := forgedRequest(t, huge)
	if len(request) > MaxChainPEM {
		t.Fatalf("%d bytes of PEM are refused for their size alone", len(request))
	}
	key, err := GenerateKey(KeySpec{Algorithm: ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Unix(1<<31, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, huge, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: der})
	for name, decode := range map[string]func() error{
		"request": func() error { _, err := DecodeCSR(request); return err },
		"chain":   func() error { _, err := DecodeChain(certificate); return err },
		"bundle":  func() error { _, err := DecodeBundle(certificate); return err },
	} {
		if err := decode(); err == nil || !strings.Contains(err.Error(), "250000 bits") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRequestForAnUnknownKey: the words are about the key, and not about the signature, which nobody can verify.
func TestRequestForAnUnknownKey(t *testing.T) {
	t.Parallel()
	csr := mustCSR(t, CSRTemplate{}, mustKey(t, Ed25519))
	der := bytes.Replace(csr.Raw, []byte{0x06, 0x03, 0x2b, 0x65, 0x70}, []byte{0x06, 0x03, 0x2b, 0x65, 0x71}, 1) // Ed448 (RFC 8410 §3)
	_, err := DecodeCSR(pemBlock(pemRequest, der))
	if want := "the certificate request is for a kind of key that is not known here"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestCleanChainsAreReadAgain: PEM in one line is shorter than PEM as it is written. What is written has to be read.
func TestCleanChainsAreReadAgain(t *testing.T) {
	der := issue(t, "leaf", false, issue(t, "root", true, nil)).cert.Raw
	one := "-----BEGIN CERTIFICATE-----\n" + base64.StdEncoding.EncodeToString(der) + "\n-----END CERTIFICATE-----\n"
	for n := MaxChainPEM/len(one) - 10; n*len(one) <= MaxChainPEM; n++ {
		text := []byte(strings.Repeat(one, n))
		if _, err := DecodeChain(text); err != nil {
			t.Fatal(err)
		}
		if clean, _, err := CleanChain(text); err == nil && len(clean) > MaxChainPEM {
			t.Errorf("%d certificates of %d bytes become %d bytes", n, len(text), len(clean))
		}
	}
}

// TestPEMOfOtherPrograms: PEM is read as it is meant, or refused in words that say why. Nothing in it is passed over.
func TestPEMOfOtherPrograms(t *testing.T) {
	const mark = "\ufeff"
	root := issue(t, "root", true, nil)
	leaf := issue(t, "leaf", false, root)
	first, second := string(EncodeCertificates(leaf.cert)), string(EncodeCertificates(root.cert))
	key, request := string(must(t)(EncodePKCS8(leaf.key))), string(must(t)(CreateCSR(CSRTemplate{Subject: pkix.Name{CommonName: "x"}}, leaf.key)))
	label := func(text, label string) string { return strings.ReplaceAll(text, " CERTIFICATE-", " "+label+"-") }
	broken := strings.Replace(first, "MII", "M!I", 1)
	chain := func(text string) error {
		certs, err := DecodeChain([]byte(text))
		if err == nil && !slices.Equal(names(certs...), []string{"leaf", "root"}) {
			t.Errorf("%q are read of %.60q", names(certs...), text)
		}
		if clean, _, failed := CleanChain([]byte(text)); (failed == nil) != (err == nil) || err == nil && string(clean) != first+second {
			t.Errorf("%.60q cleaned is %q, %v", text, clean, failed)
		}
		return err
	}
	for name, c := range map[string]struct {
		err   error
		fails string // empty if it is read
	}{
		"X509 CERTIFICATE":                  {err: chain(label(first, "X509 CERTIFICATE") + second)},
		"X.509 CERTIFICATE":                 {err: chain(first + label(second, "X.509 CERTIFICATE"))},
		"TRUSTED CERTIFICATE":               {chain(label(first, "TRUSTED CERTIFICATE") + second), "openssl x509 writes it as a CERTIFICATE"},
		"PKCS7":                             {chain(label(first, "PKCS7") + second), `"PKCS7"`},
		"a mark":                            {err: chain(mark + first + second)},
		"a mark in between":                 {err: chain(first + mark + second)},
		"CRLF":                              {err: chain(strings.ReplaceAll(first+second, "\n", "\r\n"))},
		"text":                              {err: chain("Subject: leaf\n" + first + "\nIssuer: root\n\n" + second)},
		"text that names a block":           {err: chain("# paste -----BEGIN CERTIFICATE----- here\n" + first + second)},
		"no last line end":                  {err: chain(strings.TrimSuffix(first+second, "\n"))},
		"no line end between":               {chain(strings.TrimSuffix(first, "\n") + second), "PEM block"},
		"a broken first block":              {chain(broken + first + second), "PEM block 1 of the certificate chain: a PEM block cannot be read"},
		"a broken last block":               {chain(first + second + broken), "PEM block 3 of the certificate chain: a PEM block cannot be read"},
		"an indented block":                 {chain("  " + first + second), "without spaces before them"},
		"a block that is cut off":           {chain(first + second[:len(second)/2]), "PEM block 2"},
		"another label at the end":          {chain(strings.Replace(first, "END CERTIFICATE", "END X509", 1) + second), "PEM block 1"},
		"a key":                             {chain(first + second + key), `"PRIVATE KEY", not a CERTIFICATE`},
		"a key with a mark":                 {err: errorOf(DecodePrivateKey([]byte(mark + key)))},
		"a key after a broken block":        {errorOf(DecodePrivateKey([]byte(broken + key))), "the private key: a PEM block cannot be read"},
		"a request with a mark":             {err: errorOf(DecodeCSR([]byte(mark + request)))},
		"a request after a broken block":    {errorOf(DecodeCSR([]byte(broken + request))), "the certificate request: a PEM block cannot be read"},
		"a bundle with a broken block":      {errorOf(DecodeBundle([]byte(first + broken))), "PEM block 2 of the certificate bundle"},
		"the first of a Secret, a mark":     {firstOf(mark + first + second), "PEM block cannot be read"},
		"the first of a Secret, broken":     {firstOf(broken + second), "PEM block cannot be read"},
		"the first of a Secret, after text": {err: firstOf("Subject: leaf\n" + first + second)},
	} {
		if c.fails == "" && c.err != nil || c.fails != "" && (c.err == nil || !strings.Contains(c.err.Error(), c.fails)) {
			t.Errorf("%s: %v, want %q", name, c.err, c.fails)
		}
	}
}

// firstOf is FirstOf of a Secret, which other programs read as it is.
func firstOf(text string) error {
	_, _, err := FirstOf([]byte(text))
	return err
}

func TestOversizedInputIsNotDecoded(t *testing.T) {
	// decoded reports whether an error says that there is no PEM, instead of that there is too much of it.
	decoded := func(decode func([]byte) error) func(n int) limits.Outcome {
		return func(n int) limits.Outcome {
			err := decode(bytes.Repeat([]byte("x"), n))
			switch {
			case err == nil:
				t.Error("it is no PEM, and there is no error")
			case strings.Contains(err.Error(), "more bytes of PEM than the"):
				return limits.Refused
			}
			return limits.Taken
		}
	}
	bounds.Holds(t, "PEM of a certificate", decoded(func(text []byte) error { return errorOf(DecodeCertificate(text)) }))
	bounds.Holds(t, "PEM of a chain", decoded(func(text []byte) error { return errorOf(DecodeChain(text)) }))
	bounds.Holds(t, "PEM of a bundle", decoded(func(text []byte) error { return errorOf(DecodeBundle(text)) }))
	bounds.Holds(t, "PEM of a key", decoded(func(text []byte) error { return errorOf(DecodePrivateKey(text)) }))
	bounds.Holds(t, "request", decoded(func(text []byte) error { return errorOf(DecodeCSR(text)) }))
}

func errorOf[T any](_ T, err error) error { return err }

// TestGHSA_r4pg_vg54_wxx4: PEM that anybody can put into a Secret or a request, crafted to be slow to decode, cost
// cert-manager the processor for long. Just below the limits it must not cost more than real PEM does. CPU time
// tells, because other programs do not count in it.
func TestGHSA_r4pg_vg54_wxx4(t *testing.T) {
	growth.NotUnderRace(t)
	const begin, end = "-----BEGIN CERTIFICATE-----\n", "-----END CERTIFICATE-----\n"
	for name, unit := range map[string]string{
		"begins only":    begin,
		"dashes only":    "-",
		"headers only":   "a: b\n",
		"other blocks":   "-----BEGIN X-----\n-----END X-----\n",
		"empty ones":     begin + end,
		"unended blocks": begin + "AAAA\n",
		"foreign ends":   begin + "-----END X-----\n",
		"no base64":      begin + "!\n" + end,
		"ends only":      end,
	} {
		for what, decode := range map[string]struct {
			limit int
			of    func([]byte) error
		}{
			"certificate": {MaxCertificatePEM, func(text []byte) error { return errorOf(DecodeCertificate(text)) }},
			"chain":       {MaxChainPEM, func(text []byte) error { return errorOf(DecodeChain(text)) }},
			"bundle":      {MaxBundlePEM, func(text []byte) error { return errorOf(DecodeBundle(text)) }},
			"key":         {MaxPrivateKeyPEM, func(text []byte) error { return errorOf(DecodePrivateKey(text)) }},
			"request":     {MaxChainPEM, func(text []byte) error { return errorOf(DecodeCSR(text)) }},
		} {
			text := bytes.Repeat([]byte(unit), decode.limit/len(unit))
			if unit == "a: b\n" {
				copy(text, begin)
			}
			began := cpuTime(t)
			if err := decode.of(text); err == nil {
				t.Errorf("%s, %s: no error", name, what)
			}
			if took := cpuTime(t) - began; took > time.Second {
				t.Errorf("%s, %s: %s of CPU", name, what, took)
			}
		}
	}
}

// cpuTime is the CPU time that the process has used.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
