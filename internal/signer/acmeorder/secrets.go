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
	// current is the account's; fresh says that it has just been made.
	current crypto.Signer
	fresh   bool
	// next takes its place at the CA (RFC 8555 §7.3.5), or has done so already; mostly nil.
	next crypto.Signer
	// secret is what they were read from.
	secret *corev1.Secret
}

// accountKeys reads the account's key, or makes one.
func (u *setup) accountKeys(ctx context.Context) (accountKeys, error) {
	name := u.spec.PrivateKey.Name
	secret, err := u.Secrets.Secret(ctx, u.namespace, name)
	switch {
	case apierrors.IsNotFound(err) && u.spec.DisableAccountKeyGeneration:
		return accountKeys{}, troubled(certmanagerv1.IssuerReasonErrVerifyACMEAccount, lookAgain,
			"Secret %s/%s does not exist and disableAccountKeyGeneration is set: create it with the account's private key in %s", u.namespace, name, u.entry())
	case apierrors.IsNotFound(err):
		return u.createKey(ctx)
	case err != nil:
		return accountKeys{}, fmt.Errorf("read Secret %s/%s with the account's private key: %w", u.namespace, name, err)
	}
	return u.keysIn(secret)
}

// entry is where the account's key is in its Secret; nextEntry, where the one is that is to
// take its place.
func (u *setup) entry() string     { return u.spec.PrivateKey.KeyOr(corev1.TLSPrivateKeyKey) }
func (u *setup) nextEntry() string { return u.entry() + ".next" }

func (u *setup) keysIn(secret *corev1.Secret) (accountKeys, error) {
	text, ok := secret.Data[u.entry()]
	if !ok {
		return accountKeys{}, troubled(certmanagerv1.IssuerReasonErrVerifyACMEAccount, 0,
			"Secret %s/%s has no entry %q with the account's private key: add it, or delete the Secret to have a new account made", u.namespace, secret.Name, u.entry())
	}
	k := accountKeys{secret: secret}
	var err error
	if k.current, err = pki.DecodePrivateKey(text); err != nil {
		return accountKeys{}, troubled(certmanagerv1.IssuerReasonErrVerifyACMEAccount, 0,
			"Secret %s/%s: %w: correct the entry %q, or delete the Secret to have a new account made", u.namespace, secret.Name, err, u.entry())
	}
	// Without the annotation, the entry is somebody else's.
	if text, ok = secret.Data[u.nextEntry()]; !ok || secret.Annotations[acmev1.AccountKeyRotationAnnotation] == "" {
		return k, nil
	}
	if k.next, err = pki.DecodePrivateKey(text); err != nil {
		return accountKeys{}, troubled(certmanagerv1.IssuerReasonErrVerifyACMEAccount, 0,
			"Secret %s/%s: %w: the entry %q holds a key that takes the place of the account's; remove it", u.namespace, secret.Name, err, u.nextEntry())
	}
	return k, nil
}

// newKey makes an account key of the kind that is configured, in the encoding that other
// tools that share the Secret expect of it: PKCS#1 for RSA, SEC 1 for ECDSA.
func (u *setup) newKey() (crypto.Signer, []byte, error) {
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: u.AccountKeyAlgorithm})
	if err != nil {
		return nil, nil, err
	}
	text, err := pki.EncodePrivateKey(key, pki.PKCS1)
	return key, text, err
}

// createKey makes the Secret with an account key.
func (u *setup) createKey(ctx context.Context) (accountKeys, error) {
	key, text, err := u.newKey()
	if err != nil {
		return accountKeys{}, err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: u.namespace, Name: u.spec.PrivateKey.Name, Labels: map[string]string{
			managedBy: managedByValue, certmanagerv1.ManagedSecretLabel: certmanagerv1.LabelTrue,
		}},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{u.entry(): text},
	}
	if wanted := u.rotation(); wanted != "" { // it cannot be newer than that
		secret.Annotations = map[string]string{acmev1.AccountKeyRotationAnnotation: wanted}
	}
	err = u.Objects.Create(ctx, secret)
	if apierrors.IsAlreadyExists(err) {
		// Another issuer with the same Secret was faster, or a cache lags behind.
		found := &corev1.Secret{}
		if err := u.Objects.Live(ctx, u.API, client.ObjectKeyFromObject(secret), found); err != nil {
			return accountKeys{}, err
		}
		k, err := u.keysIn(found)
		k.fresh = true
		return k, err
	}
	if err != nil {
		return accountKeys{}, fmt.Errorf("create Secret %s/%s for the account's private key: %w", u.namespace, secret.Name, err)
	}
	return accountKeys{current: key, fresh: true, secret: secret}, nil
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

// externalAccount reads the binding's MAC key, with the version of what it was read from.
// The algorithm is the field's; upstream takes HS256 whatever it says (spec §5.1, step 7).
func (u *setup) externalAccount(ctx context.Context) (*acme.ExternalAccount, string, error) {
	eab := u.spec.ExternalAccountBinding
	if eab == nil {
		return nil, "", nil
	}
	bad := func(format string, args ...any) (*acme.ExternalAccount, string, error) {
		return nil, "", troubled(certmanagerv1.IssuerReasonErrRegisterACMEAccount, lookAgain,
			"the key of the external account binding: "+format, args...)
	}
	secret, err := u.Secrets.Secret(ctx, u.namespace, eab.KeySecretRef.Name)
	if apierrors.IsNotFound(err) {
		return bad("Secret %s/%s does not exist: create it with the key in %s", u.namespace, eab.KeySecretRef.Name, eab.KeySecretRef.Key)
	}
	if err != nil {
		return nil, "", fmt.Errorf("read Secret %s/%s: %w", u.namespace, eab.KeySecretRef.Name, err)
	}
	text, ok := secret.Data[eab.KeySecretRef.Key]
	if !ok {
		return bad("Secret %s/%s has no entry %q", u.namespace, eab.KeySecretRef.Name, eab.KeySecretRef.Key)
	}
	key, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(string(text)), "="))
	if err != nil || len(key) == 0 {
		return bad("entry %q of Secret %s/%s is not base64url (RFC 4648 §5): store the key as the ACME server's operator gave it to you",
			eab.KeySecretRef.Key, u.namespace, eab.KeySecretRef.Name)
	}
	algorithm, least := macOf(eab.KeyAlgorithm)
	if len(key) < least {
		return bad("entry %q of Secret %s/%s is %d bytes long when decoded, and %s needs %d at least (RFC 7518 §3.2): store the key as the ACME server's operator gave it to you, and set keyAlgorithm to the algorithm it is for",
			eab.KeySecretRef.Key, u.namespace, eab.KeySecretRef.Name, len(key), algorithm, least)
	}
	version := eab.KeyID + " " + string(algorithm) + " " + string(secret.UID) + secret.ResourceVersion
	return &acme.ExternalAccount{KeyID: eab.KeyID, Key: key, Algorithm: algorithm}, version, nil
}

// solverSecrets checks that what the DNS-01 solvers name is there (spec §5.1, step 3).
func (u *setup) solverSecrets(ctx context.Context) error {
	var missing []string
	for i := range u.spec.Solvers {
		for _, ref := range signer.DNS01Secrets(u.spec.Solvers[i].DNS01) {
			secret, err := u.Secrets.Secret(ctx, u.namespace, ref.Name)
			switch {
			case apierrors.IsNotFound(err):
				missing = append(missing, fmt.Sprintf("failed to get secret %q: it does not exist in namespace %q", ref.Name, u.namespace))
			case err != nil:
				return fmt.Errorf("read Secret %s/%s: %w", u.namespace, ref.Name, err)
			case ref.Key != "" && secret.Data[ref.Key] == nil:
				missing = append(missing, fmt.Sprintf("the secret %q does not have key %q", ref.Name, ref.Key))
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return troubled(certmanagerv1.IssuerReasonInvalidSolver, lookAgain, "%s", strings.Join(missing, "; "))
}
