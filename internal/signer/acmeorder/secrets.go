package acmeorder

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// accountKeys are the keys in an account's Secret.
type accountKeys struct {
	// current is the account's; nil if there is none yet.
	current crypto.Signer
	// next takes its place at the CA (RFC 8555 §7.3.5), or has done so already; mostly nil.
	next crypto.Signer
	// secret is what they were read from.
	secret *corev1.Secret
}

// accountKeys reads the account's key.
func (p *probe) accountKeys(ctx context.Context) (accountKeys, error) {
	name := p.spec.PrivateKey.Name
	secret, err := p.Secrets.Secret(ctx, p.namespace, name)
	switch {
	case apierrors.IsNotFound(err) && p.spec.DisableAccountKeyGeneration:
		return accountKeys{}, fault.After(lookAgain, certmanagerv1.IssuerReasonErrVerifyACMEAccount,
			"Secret %s/%s does not exist and disableAccountKeyGeneration is set: create it with the account's private key in %s", p.namespace, name, p.entry())
	case apierrors.IsNotFound(err) && p.made != nil:
		secret = p.made
	case apierrors.IsNotFound(err):
		return accountKeys{}, nil
	case err != nil:
		return accountKeys{}, fmt.Errorf("read Secret %s/%s with the account's private key: %w", p.namespace, name, err)
	}
	return p.keysIn(secret)
}

// entry is where the account's key is in its Secret; nextEntry, where the one is that is to
// take its place.
func (p *probe) entry() string     { return p.spec.PrivateKey.KeyOr(corev1.TLSPrivateKeyKey) }
func (p *probe) nextEntry() string { return p.entry() + ".next" }

func (p *probe) keysIn(secret *corev1.Secret) (accountKeys, error) {
	text, ok := secret.Data[p.entry()]
	if !ok {
		return accountKeys{}, fault.Pending(certmanagerv1.IssuerReasonErrVerifyACMEAccount,
			"Secret %s/%s has no entry %q with the account's private key: add it, or delete the Secret to have a new account made", p.namespace, secret.Name, p.entry())
	}
	k := accountKeys{secret: secret}
	var err error
	if k.current, err = pki.DecodePrivateKey(text); err != nil {
		return accountKeys{}, fault.Pending(certmanagerv1.IssuerReasonErrVerifyACMEAccount,
			"Secret %s/%s: %w: correct the entry %q, or delete the Secret to have a new account made", p.namespace, secret.Name, err, p.entry())
	}
	// Without the annotation, the entry is somebody else's.
	if text, ok = secret.Data[p.nextEntry()]; !ok || secret.Annotations[acmev1.AccountKeyRotationAnnotation] == "" {
		return k, nil
	}
	if k.next, err = pki.DecodePrivateKey(text); err != nil {
		return accountKeys{}, fault.Pending(certmanagerv1.IssuerReasonErrVerifyACMEAccount,
			"Secret %s/%s: %w: the entry %q holds a key that takes the place of the account's; remove it", p.namespace, secret.Name, err, p.nextEntry())
	}
	return k, nil
}

// newKey makes an account key of the kind that is configured, in the encoding that other
// tools that share the Secret expect of it: PKCS#1 for RSA, SEC 1 for ECDSA.
func (p *probe) newKey() ([]byte, error) {
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: p.AccountKeyAlgorithm})
	if err != nil {
		return nil, err
	}
	return pki.EncodePrivateKey(key, pki.PKCS1)
}

// createKey makes the Secret with an account key.
func (p *probe) createKey(ctx context.Context) error {
	text, err := p.newKey()
	if err != nil {
		return err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.spec.PrivateKey.Name, Labels: map[string]string{
			managedBy: managedByValue, certmanagerv1.ManagedSecretLabel: certmanagerv1.LabelTrue,
		}},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{p.entry(): text},
	}
	if wanted := p.rotation(); wanted != "" { // it cannot be newer than that
		secret.Annotations = map[string]string{acmev1.AccountKeyRotationAnnotation: wanted}
	}
	err = p.Objects.Create(ctx, secret)
	if apierrors.IsAlreadyExists(err) {
		// Another issuer with the same Secret was faster, or a cache lags behind.
		err = p.Objects.Live(ctx, p.API, client.ObjectKeyFromObject(secret), secret)
	}
	if err != nil {
		return fmt.Errorf("create Secret %s/%s for the account's private key: %w", p.namespace, secret.Name, err)
	}
	p.made = secret
	return nil
}

// keyHash is how status.acme names the key (spec §5.1, step 5).
func keyHash(key crypto.Signer) (string, error) {
	var der []byte
	if k, ok := key.(*rsa.PrivateKey); ok {
		der = x509.MarshalPKCS1PrivateKey(k)
	} else {
		var err error
		if der, err = x509.MarshalPKCS8PrivateKey(key); err != nil {
			return "", err
		}
	}
	sum := sha256.Sum256(der)
	return base64.StdEncoding.EncodeToString(sum[:]), nil
}

// externalAccount reads the MAC key of the external account binding; nil if the issuer has none. The field keyAlgorithm
// decides the algorithm; cert-manager takes HS256 whatever the field says (spec §5.1, step 7).
func (p *probe) externalAccount(ctx context.Context) (*acme.ExternalAccount, error) {
	eab := p.spec.ExternalAccountBinding
	if eab == nil {
		return nil, nil //nolint:nilnil // as it says
	}
	bad := func(format string, args ...any) (*acme.ExternalAccount, error) {
		return nil, fault.After(lookAgain, certmanagerv1.IssuerReasonErrRegisterACMEAccount,
			"the key of the external account binding: "+format, args...)
	}
	secret, err := p.Secrets.Secret(ctx, p.namespace, eab.KeySecretRef.Name)
	if apierrors.IsNotFound(err) {
		return bad("Secret %s/%s does not exist: create it with the key in %s", p.namespace, eab.KeySecretRef.Name, eab.KeySecretRef.Key)
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s/%s: %w", p.namespace, eab.KeySecretRef.Name, err)
	}
	text, ok := secret.Data[eab.KeySecretRef.Key]
	if !ok {
		return bad("Secret %s/%s has no entry %q", p.namespace, eab.KeySecretRef.Name, eab.KeySecretRef.Key)
	}
	if len(text) > limits.CredentialBytes {
		return bad("entry %q of Secret %s/%s has more than %d bytes: store the key as the ACME server's operator gave it to you",
			eab.KeySecretRef.Key, p.namespace, eab.KeySecretRef.Name, limits.CredentialBytes)
	}
	unpadded := strings.NewReplacer("+", "-", "/", "_").Replace(strings.TrimRight(strings.TrimSpace(string(text)), "="))
	key, err := base64.RawURLEncoding.DecodeString(unpadded)
	if err != nil || len(key) == 0 {
		return bad("entry %q of Secret %s/%s is not base64url (RFC 4648 §5): store the key as the ACME server's operator gave it to you",
			eab.KeySecretRef.Key, p.namespace, eab.KeySecretRef.Name)
	}
	algorithm, least := macOf(eab.KeyAlgorithm)
	if len(key) < least {
		return bad("entry %q of Secret %s/%s is %d bytes long when decoded, and %s needs %d at least (RFC 7518 §3.2): store the key as the ACME server's operator gave it to you, and set keyAlgorithm to the algorithm it is for",
			eab.KeySecretRef.Key, p.namespace, eab.KeySecretRef.Name, len(key), algorithm, least)
	}
	return &acme.ExternalAccount{KeyID: eab.KeyID, Key: key, Algorithm: algorithm}, nil
}

// solverSecrets checks that what the DNS-01 solvers name is there (spec §5.1, step 3).
func (p *probe) solverSecrets(ctx context.Context) error {
	var missing []string
	for i := range p.spec.Solvers {
		for _, ref := range signer.DNS01Secrets(p.spec.Solvers[i].DNS01) {
			secret, err := p.Secrets.Secret(ctx, p.namespace, ref.Name)
			switch {
			case apierrors.IsNotFound(err):
				missing = append(missing, fmt.Sprintf("failed to get secret %q: it does not exist in namespace %q", ref.Name, p.namespace))
			case err != nil:
				return fmt.Errorf("read Secret %s/%s: %w", p.namespace, ref.Name, err)
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
