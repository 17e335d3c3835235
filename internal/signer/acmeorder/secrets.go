package acmeorder

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/signer"
)

// managedBy marks the Secrets of account keys (spec §5.1).
const managedBy, managedByValue = "app.kubernetes.io/managed-by", "cert-manager"

// macOf returns the algorithm of an external account binding, and how many bytes its key
// has at least (RFC 7518 §3.2).
func macOf(algorithm acmev1.HMACKeyAlgorithm) (acme.MACAlgorithm, int) {
	switch algorithm {
	case acmev1.HS384:
		return acme.HS384, 48
	case acmev1.HS512:
		return acme.HS512, 64
	default:
		return acme.HS256, 32
	}
}

// entry is where the account's key is in its Secret; nextEntry, where the one is that is to take its place.
func (l *look) entry() string     { return l.spec.PrivateKey.KeyOr(corev1.TLSPrivateKeyKey) }
func (l *look) nextEntry() string { return l.entry() + ".next" }

// readKeys reads the Secret with the account's keys, if there is one.
func (l *look) readKeys(ctx context.Context) error {
	const reason = certmanagerv1.IssuerReasonErrVerifyACMEAccount
	where, entry := l.s.Where, l.entry()
	secret, err := l.Secrets.Secret(ctx, where.Namespace, where.Name)
	switch {
	case apierrors.IsNotFound(err) && l.spec.DisableAccountKeyGeneration:
		return fault.After(lookAgain, reason, "Secret %s does not exist and disableAccountKeyGeneration is set: create it with the account's private key in %s", where, entry)
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read Secret %s with the account's private key: %w", where, err)
	}
	text, ok := secret.Data[entry]
	if !ok {
		return fault.Pending(reason, "Secret %s has no entry %q with the account's private key: add it, or delete the Secret to have a new account made", where, entry)
	}
	if l.current, err = accountKey(text); err != nil {
		return fault.Pending(reason, "Secret %s: %w: correct the entry %q, or delete the Secret to have a new account made", where, err, entry)
	}
	l.secret = secret
	// Without the annotation, the entry is somebody else's.
	if text, ok = secret.Data[l.nextEntry()]; !ok || secret.Annotations[acmev1.AccountKeyRotationAnnotation] == "" {
		return nil
	}
	if l.next, err = accountKey(text); err != nil {
		return fault.Pending(reason, "Secret %s: %w: the entry %q holds a key that takes the place of the account's; remove it", where, err, l.nextEntry())
	}
	return nil
}

// accountKey reads the key of an account. ACME has no name for signatures by ML-DSA.
func accountKey(text []byte) (crypto.Signer, error) {
	key, err := pki.DecodePrivateKey(text)
	if err == nil && pki.IsMLDSA(key.Public()) {
		return nil, errors.New("an ML-DSA key cannot be that of an account: use RSA, ECDSA or Ed25519")
	}
	return key, err
}

// newSecret returns the Secret with an account key.
func (l *look) newSecret(key []byte) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.s.Where.Namespace, Name: l.s.Where.Name, Labels: map[string]string{
			managedBy: managedByValue, certmanagerv1.ManagedSecretLabel: certmanagerv1.LabelTrue,
		}},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{l.entry(): key},
	}
	if l.s.Wanted != "" { // it cannot be newer than that
		secret.Annotations = map[string]string{acmev1.AccountKeyRotationAnnotation: l.s.Wanted}
	}
	return secret
}

// keyHash is how status.acme names the key (spec §5.1, step 5).
func keyHash(key crypto.Signer) (string, error) {
	var der []byte
	var err error
	if k, ok := key.(*rsa.PrivateKey); ok {
		der = x509.MarshalPKCS1PrivateKey(k)
	} else {
		der, err = x509.MarshalPKCS8PrivateKey(key)
	}
	sum := sha256.Sum256(der)
	return base64.StdEncoding.EncodeToString(sum[:]), err
}

// externalAccount reads the MAC key of the external account binding; nil if the issuer has none. The field keyAlgorithm
// decides the algorithm; cert-manager takes HS256 whatever the field says (spec §5.1, step 7).
func (l *look) externalAccount(ctx context.Context) (*acme.ExternalAccount, error) {
	eab := l.spec.ExternalAccountBinding
	if eab == nil {
		return nil, nil //nolint:nilnil // as it says
	}
	bad := func(format string, args ...any) (*acme.ExternalAccount, error) {
		return nil, fault.After(lookAgain, certmanagerv1.IssuerReasonErrRegisterACMEAccount,
			"the key of the external account binding: "+format, args...)
	}
	secret, err := l.Secrets.Secret(ctx, l.s.Where.Namespace, eab.KeySecretRef.Name)
	if apierrors.IsNotFound(err) {
		return bad("Secret %s/%s does not exist: create it with the key in %s", l.s.Where.Namespace, eab.KeySecretRef.Name, eab.KeySecretRef.Key)
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s/%s: %w", l.s.Where.Namespace, eab.KeySecretRef.Name, err)
	}
	text, ok := secret.Data[eab.KeySecretRef.Key]
	if !ok {
		return bad("Secret %s/%s has no entry %q", l.s.Where.Namespace, eab.KeySecretRef.Name, eab.KeySecretRef.Key)
	}
	if len(text) > limits.CredentialBytes {
		return bad("entry %q of Secret %s/%s has more than %d bytes: store the key as the ACME server's operator gave it to you",
			eab.KeySecretRef.Key, l.s.Where.Namespace, eab.KeySecretRef.Name, limits.CredentialBytes)
	}
	unpadded := strings.NewReplacer("+", "-", "/", "_").Replace(strings.TrimRight(strings.TrimSpace(string(text)), "="))
	key, err := base64.RawURLEncoding.DecodeString(unpadded)
	if err != nil || len(key) == 0 {
		return bad("entry %q of Secret %s/%s is not base64url (RFC 4648 §5): store the key as the ACME server's operator gave it to you",
			eab.KeySecretRef.Key, l.s.Where.Namespace, eab.KeySecretRef.Name)
	}
	algorithm, least := macOf(eab.KeyAlgorithm)
	if len(key) < least {
		return bad("entry %q of Secret %s/%s is %d bytes long when decoded, and %s needs %d at least (RFC 7518 §3.2): store the key as the ACME server's operator gave it to you, and set keyAlgorithm to the algorithm it is for",
			eab.KeySecretRef.Key, l.s.Where.Namespace, eab.KeySecretRef.Name, len(key), algorithm, least)
	}
	return &acme.ExternalAccount{KeyID: eab.KeyID, Key: key, Algorithm: algorithm}, nil
}

// solverSecrets checks that what the DNS-01 solvers name is there (spec §5.1, step 3).
func (l *look) solverSecrets(ctx context.Context) error {
	var missing []string
	for i := range l.spec.Solvers {
		for _, ref := range signer.DNS01Secrets(l.spec.Solvers[i].DNS01) {
			secret, err := l.Secrets.Secret(ctx, l.s.Where.Namespace, ref.Name)
			switch {
			case apierrors.IsNotFound(err):
				missing = append(missing, fmt.Sprintf("failed to get secret %q: it does not exist in namespace %q", ref.Name, l.s.Where.Namespace))
			case err != nil:
				return fmt.Errorf("read Secret %s/%s: %w", l.s.Where.Namespace, ref.Name, err)
			case ref.Key != "" && secret.Data[ref.Key] == nil:
				missing = append(missing, fmt.Sprintf("the secret %q does not have key %q", ref.Name, ref.Key))
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fault.After(lookAgain, certmanagerv1.IssuerReasonInvalidSolver, "%s", strings.Join(missing, "; "))
}
