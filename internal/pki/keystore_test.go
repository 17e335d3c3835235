package pki

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pavlo-v-chernykh/keystore-go/v4"
	"software.sslmate.com/src/go-pkcs12"

	"chancery.dev/internal/rig/tool"
)

const storePassword = `p "a$$ w0rd`

// mustKeystore returns a leaf below an intermediate below a root.
func mustKeystore(t *testing.T, key crypto.Signer) Keystore {
	t.Helper()
	root := issue(t, "root", true, nil)
	middle := issue(t, "middle", true, root)
	leaf := issueFor(t, "leaf", false, key, middle)
	return Keystore{
		Alias: "Certificate", Password: storePassword, Key: key,
		Chain: []*x509.Certificate{leaf.cert, middle.cert}, CA: []*x509.Certificate{root.cert},
	}
}

// program returns a run of a program outside, or skips the test without it.
func program(t *testing.T, name string) func(in []byte, args ...string) (string, error) {
	t.Helper()
	return programWith(t, name, storePassword)
}

// programWith is program with the password of the store.
func programWith(t *testing.T, name, password string) func(in []byte, args ...string) (string, error) {
	t.Helper()
	name = tool.Path(t, name)
	return func(in []byte, args ...string) (string, error) {
		path := filepath.Join(t.TempDir(), "store")
		if err := os.WriteFile(path, in, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), name, append(slices.Clone(args), path)...)
		cmd.Env = append(os.Environ(), "STORE_PASSWORD="+password, "LC_ALL=C.UTF-8")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
}

func must(t *testing.T) func([]byte, error) []byte {
	t.Helper()
	return func(out []byte, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
}

var profiles = []PKCS12Profile{"", LegacyRC2, LegacyDES, Modern2023, Modern2026}

// TestOpenSSLOpensPKCS12: each profile, each kind of key; the key and the
// certificates come out in their order, and the algorithms are those of the profile.
func TestOpenSSLOpensPKCS12(t *testing.T) {
	openssl := program(t, "openssl")
	help, _ := openssl(nil, "pkcs12", "-help")
	pbmac1 := strings.Contains(help, "-pbmac1_pbkdf2") // OpenSSL 3.4
	algorithms := map[PKCS12Profile][]string{
		"":         {"MAC: sha1", "pbeWithSHA1And40BitRC2-CBC, Iteration 2048", "pbeWithSHA1And3-KeyTripleDES-CBC, Iteration 2048"},
		LegacyRC2:  {"MAC: sha1", "pbeWithSHA1And40BitRC2-CBC, Iteration 2048", "pbeWithSHA1And3-KeyTripleDES-CBC, Iteration 2048"},
		LegacyDES:  {"MAC: sha1", "Encrypted data: pbeWithSHA1And3-KeyTripleDES-CBC, Iteration 2048"},
		Modern2023: {"MAC: sha256", "Encrypted data: PBES2, PBKDF2, AES-256-CBC, Iteration 2048, PRF hmacWithSHA256"},
		Modern2026: {"PBMAC1", "Encrypted data: PBES2, PBKDF2, AES-256-CBC, Iteration 2048, PRF hmacWithSHA256"},
	}
	for _, algorithm := range []string{RSA, ECDSA, Ed25519} {
		k := mustKeystore(t, mustKey(t, algorithm))
		want := string(must(t)(EncodePKCS8(k.Key))) + string(EncodeCertificates(append(slices.Clone(k.Chain), k.CA...)...))
		for _, profile := range profiles {
			args := []string{"pkcs12", "-info", "-legacy", "-nodes", "-passin", "env:STORE_PASSWORD", "-in"}
			words := algorithms[profile]
			if profile == Modern2026 && !pbmac1 {
				// It cannot check the integrity, and can decrypt all the rest.
				args, words = append([]string{"pkcs12", "-nomacver"}, args[1:]...), words[1:]
			}
			out, err := openssl(must(t)(EncodePKCS12(k, profile)), args...)
			if err != nil {
				t.Fatalf("%s %q: %v\n%s", algorithm, profile, err, out)
			}
			for _, word := range words {
				if !strings.Contains(out, word) {
					t.Errorf("%s %q: openssl does not say %q:\n%s", algorithm, profile, word, out)
				}
			}
			certs, keys := blocksOf(out)
			if keys+certs != want {
				t.Errorf("%s %q: openssl reads\n%s, want\n%s", algorithm, profile, keys+certs, want)
			}
		}
	}
}

// blocksOf returns the PEM blocks of a text, certificates apart from keys.
func blocksOf(text string) (certs, keys string) {
	for {
		from := strings.Index(text, "-----BEGIN ")
		to := strings.Index(text, "-----END ")
		if from < 0 || to < 0 {
			return certs, keys
		}
		end := to + strings.IndexByte(text[to:], '\n') + 1
		if block := text[from:end]; strings.Contains(block, "CERTIFICATE") {
			certs += block
		} else {
			keys += block
		}
		text = text[end:]
	}
}

// TestKeytoolOpensKeystores: Java reads all four kinds of store with the password,
// and not without.
func TestKeytoolOpensKeystores(t *testing.T) {
	keytool := program(t, "keytool")
	k := mustKeystore(t, mustKey(t, ECDSA))
	// A second CA certificate of the same name, as when a CA changes its key.
	k.CA = append(k.CA, issue(t, "root", true, nil).cert)
	stores := []struct {
		name string
		data []byte
		says []string
		not  string
	}{
		{"jks", must(t)(EncodeJKS(k)), []string{
			"Keystore type: JKS", "3 entries", "Alias name: certificate\n", "Entry type: PrivateKeyEntry", "Certificate chain length: 2",
			"Alias name: ca\n", "Alias name: ca-1\n", "Entry type: trustedCertEntry",
		}, ""},
		{"jks truststore", must(t)(EncodeJKSTruststore(k)), []string{"2 entries", "Alias name: ca\n", "Alias name: ca-1\n"}, "PrivateKeyEntry"},
		{"p12", must(t)(EncodePKCS12(k, Modern2023)), []string{"Keystore type: PKCS12", "Entry type: PrivateKeyEntry", "Owner: CN=leaf", "Owner: CN=root"}, ""},
		{"p12 legacy", must(t)(EncodePKCS12(k, LegacyRC2)), []string{"Entry type: PrivateKeyEntry", "Owner: CN=leaf"}, ""},
		{"p12 legacy DES", must(t)(EncodePKCS12(k, LegacyDES)), []string{"Entry type: PrivateKeyEntry", "Owner: CN=leaf"}, ""},
		{"p12 PBMAC1", must(t)(EncodePKCS12(k, Modern2026)), []string{"Entry type: PrivateKeyEntry", "Owner: CN=leaf"}, ""},
		{"p12 modern truststore", must(t)(EncodePKCS12Truststore(k, Modern2023)), []string{"2 entries", "trustedCertEntry"}, "PrivateKeyEntry"},
		{"p12 PBMAC1 truststore", must(t)(EncodePKCS12Truststore(k, Modern2026)), []string{"2 entries", "trustedCertEntry"}, "PrivateKeyEntry"},
		{"p12 truststore", must(t)(EncodePKCS12Truststore(k, LegacyDES)), []string{"2 entries", "Alias name: cn=root\n", "Alias name: cn=root (2)\n", "trustedCertEntry"}, "PrivateKeyEntry"},
	}
	for _, s := range stores {
		t.Run(s.name, func(t *testing.T) {
			out, err := keytool(s.data, "-list", "-v", "-storepass:env", "STORE_PASSWORD", "-keystore")
			if strings.Contains(out, "Algorithm HmacPBE1.2.840.113549.1.5.14 not available") {
				t.Skip("SKIPPED: this Java is older than PBMAC1 (RFC 9579), so go-pkcs12 alone has checked the integrity")
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, word := range s.says {
				if !strings.Contains(out, word) {
					t.Errorf("keytool does not say %q:\n%s", word, out)
				}
			}
			if s.not != "" && strings.Contains(out, s.not) {
				t.Errorf("keytool says %q:\n%s", s.not, out)
			}
			if out, err := keytool(s.data, "-list", "-storepass", "something else", "-keystore"); err == nil {
				t.Errorf("keytool opens it with a wrong password:\n%s", out)
			}
		})
	}
}

// TestKeystoresOfAnyPassword: other programs open each store with the password that somebody types.
func TestKeystoresOfAnyPassword(t *testing.T) {
	keytool, openssl := tool.Path(t, "keytool"), tool.Path(t, "openssl")
	k := mustKeystore(t, mustKey(t, ECDSA))
	k.Alias = "schlüssel-🔑"
	want := string(must(t)(EncodePKCS8(k.Key)))
	for name, c := range map[string]struct {
		stored, typed string
		javaOnly      bool // PKCS#12 refuses it
	}{
		"ASCII":                 {stored: storePassword, typed: storePassword},
		"ISO 8859-1 characters": {stored: "pässwörd", typed: "pässwörd"},
		"others":                {stored: "pässwörd→", typed: "pässwörd→"},
		"Japanese":              {stored: "パスワード", typed: "パスワード"},
		"combining marks":       {stored: "pa\u0308ssword", typed: "pa\u0308ssword"},
		"past U+FFFF":           {stored: "password🔑", typed: "password🔑", javaOnly: true},
		"ISO 8859-1 bytes":      {stored: "p\xe4ssw\xf6rd", typed: "pässwörd"},
		"white space":           {stored: " pass word ", typed: " pass word "},
	} {
		t.Run(name, func(t *testing.T) {
			k := k
			k.Password = c.stored
			java, ssl := programWith(t, keytool, c.typed), programWith(t, openssl, c.typed)
			for what, store := range map[string][]byte{"keystore": must(t)(EncodeJKS(k)), "truststore": must(t)(EncodeJKSTruststore(k))} {
				if out, err := java(store, "-list", "-v", "-storepass:env", "STORE_PASSWORD", "-keystore"); err != nil || !strings.Contains(out, "Alias name: ca\n") {
					t.Errorf("keytool does not open the %s: %v\n%s", what, err, out)
				}
			}
			// -certreq signs with the key, so the key's own encryption is opened too.
			if out, err := java(must(t)(EncodeJKS(k)), "-certreq", "-alias", k.Alias, "-storepass:env", "STORE_PASSWORD", "-keystore"); err != nil || !strings.Contains(out, "CERTIFICATE REQUEST") {
				t.Errorf("keytool does not sign with the key: %v\n%s", err, out)
			}
			for _, profile := range []PKCS12Profile{LegacyRC2, LegacyDES, Modern2023} {
				store, err := EncodePKCS12(k, profile)
				if c.javaOnly {
					if err == nil || !strings.Contains(err.Error(), "past U+FFFF") {
						t.Errorf("PKCS#12 %s: %v", profile, err)
					}
					continue
				}
				out, err := ssl(must(t)(store, err), "pkcs12", "-legacy", "-nodes", "-passin", "env:STORE_PASSWORD", "-in")
				if _, keys := blocksOf(out); err != nil || keys != want {
					t.Errorf("openssl does not open PKCS#12 %s: %v\n%s", profile, err, out)
				}
			}
		})
	}
}

// TestPKCS12Contents reads with the library, for machines without other programs and
// for Modern2026, which few programs know.
func TestPKCS12Contents(t *testing.T) {
	k := mustKeystore(t, mustKey(t, ECDSA))
	for _, profile := range profiles {
		key, leaf, rest, err := pkcs12.DecodeChain(must(t)(EncodePKCS12(k, profile)), k.Password)
		if err != nil {
			t.Fatalf("%q: %v", profile, err)
		}
		signer, ok := key.(crypto.Signer)
		if !ok || !PublicKeysEqual(signer.Public(), k.Key.Public()) || !leaf.Equal(k.Chain[0]) ||
			!slices.EqualFunc(rest, []*x509.Certificate{k.Chain[1], k.CA[0]}, (*x509.Certificate).Equal) {
			t.Errorf("%q: other contents than were put in", profile)
		}
		trusted, err := pkcs12.DecodeTrustStore(must(t)(EncodePKCS12Truststore(k, profile)), k.Password)
		if err != nil || len(trusted) != 1 || !trusted[0].Equal(k.CA[0]) {
			t.Errorf("%q: truststore has %d certificates, %v", profile, len(trusted), err)
		}
	}
}

// TestJKSKeepsKeyBesideCA: an alias that CA certificates use does not lose the key.
func TestJKSKeepsKeyBesideCA(t *testing.T) {
	k := mustKeystore(t, mustKey(t, ECDSA))
	k.CA = append(k.CA, issue(t, "other root", true, nil).cert)
	for alias, want := range map[string][]string{
		"CA":          {"ca", "ca-1", "ca-2"},
		"ca-1":        {"ca", "ca-1", "ca-2"},
		"certificate": {"ca", "ca-1", "certificate"},
	} {
		k.Alias = alias
		store := keystore.New(keystore.WithOrderedAliases())
		if err := store.Load(bytes.NewReader(must(t)(EncodeJKS(k))), []byte(k.Password)); err != nil {
			t.Fatal(err)
		}
		if got := store.Aliases(); !slices.Equal(got, want) {
			t.Errorf("%s: aliases %q, want %q", alias, got, want)
		}
		entry, err := store.GetPrivateKeyEntry(alias, []byte(k.Password))
		if err != nil {
			t.Fatalf("%s: %v", alias, err)
		}
		key, err := x509.ParsePKCS8PrivateKey(entry.PrivateKey)
		if signer, ok := key.(crypto.Signer); !ok || !PublicKeysEqual(signer.Public(), k.Key.Public()) {
			t.Errorf("%s: another key came out, %v", alias, err)
		}
	}
}

// TestKeystoresAreReproducible: the same contents give the same bytes, and each change
// other ones, salts included.
func TestKeystoresAreReproducible(t *testing.T) {
	key := mustKey(t, ECDSA)
	k := mustKeystore(t, key)
	encodings := map[string]func(Keystore) ([]byte, error){
		"jks":            EncodeJKS,
		"jks truststore": EncodeJKSTruststore,
		"p12":            func(k Keystore) ([]byte, error) { return EncodePKCS12(k, Modern2023) },
		"p12 truststore": func(k Keystore) ([]byte, error) { return EncodePKCS12Truststore(k, Modern2023) },
	}
	for name, encode := range encodings {
		first := must(t)(encode(k))
		if !bytes.Equal(first, must(t)(encode(k))) {
			t.Errorf("%s: the same contents give other bytes", name)
		}
		other := k
		other.Password = "another"
		if bytes.Equal(first, must(t)(encode(other))) {
			t.Errorf("%s: another password gives the same bytes", name)
		}
		other = k
		other.CA = []*x509.Certificate{issue(t, "new root", true, nil).cert}
		if bytes.Equal(first, must(t)(encode(other))) {
			t.Errorf("%s: another CA gives the same bytes", name)
		}
	}
	salt := func(k Keystore, purpose ...string) string {
		stream, err := k.saltSource(purpose...)
		if err != nil {
			t.Fatal(err)
		}
		out := make([]byte, 16)
		if _, err := stream.Read(out); err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	renewed := mustKeystore(t, key)
	salts := []string{
		salt(k, saltJKS), salt(k, saltPKCS12, "LegacyDES"), salt(k, saltPKCS12, "Modern2023"), salt(k, saltPKCS12Truststore, "Modern2023"),
		salt(renewed, saltJKS),
	}
	if slices.Sort(salts); len(slices.Compact(salts)) != 5 {
		t.Error("two stores have the same salt")
	}
}

func TestKeystoreRefuses(t *testing.T) {
	k := mustKeystore(t, mustKey(t, ECDSA))
	empty := Keystore{Alias: "certificate", Password: "p", Key: k.Key}
	beyond := k
	beyond.Password = "p\U0001F511"
	for name, err := range map[string]error{
		"JKS without a chain":     second(EncodeJKS(empty)),
		"JKS without a CA":        second(EncodeJKSTruststore(empty)),
		"PKCS#12 without a chain": second(EncodePKCS12(empty, "")),
		"PKCS#12 without a CA":    second(EncodePKCS12Truststore(empty, "")),
		"unknown profile":         second(EncodePKCS12(k, "Modern2030")),
		"password beyond UCS-2":   second(EncodePKCS12(beyond, Modern2023)),
	} {
		if err == nil {
			t.Errorf("%s: want an error", name)
		}
	}
}

func second(_ []byte, err error) error { return err }

// TestPKCS12TruststoreOfAnyName: a name that BMPString cannot hold is no reason to
// have no truststore.
func TestPKCS12TruststoreOfAnyName(t *testing.T) {
	k := mustKeystore(t, mustKey(t, ECDSA))
	k.CA = []*x509.Certificate{issue(t, "root \U0001F511", true, nil).cert}
	if _, err := pkcs12.DecodeTrustStore(must(t)(EncodePKCS12Truststore(k, "")), k.Password); err != nil {
		t.Error(err)
	}
}
