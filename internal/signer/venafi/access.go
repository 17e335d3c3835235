package venafi

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/Venafi/vcert/v5/pkg/venafi/tpp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/egress"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/signer"
)

// Entries of Secrets (spec appendix A).
const (
	keyUsername     = "username"
	keyPassword     = "password"
	keyAccessToken  = "access-token"
	keyClientID     = "client-id"
	keyClientSecret = "client-secret"
)

// product is one of the three servers.
type product int

const (
	productTPP product = iota + 1
	productCloud
	productNGTS
)

// Where SaaS products are if the issuer does not say (spec appendix D).
const (
	cloudURL          = "https://api.venafi.cloud"
	ngtsURL           = "https://api.sase.paloaltonetworks.com/ngts"
	ngtsTokenEndpoint = "https://auth.apps.paloaltonetworks.com/oauth2/access_token"
)

// access is what an issuer's server is reached with.
type access struct {
	product product
	server  string
	zone    string
	// roots verify the server; nil means those of the system.
	roots *x509.CertPool
	// accessToken, or username and password, for TPP; clientID for both of TPP's logins
	// and, with clientSecret, for NGTS; apiKey for Cloud.
	accessToken, username, password string
	clientID, clientSecret          string
	apiKey                          string
	// tokenEndpoint and scope are NGTS's.
	tokenEndpoint, scope string
	// secret is the namespace/name of the credentials, for messages.
	secret string
	// egress says which addresses the server may have; nil means all.
	egress *egress.Policy
	// digest tells this access from any other.
	digest string
}

// accessError is an access that cannot be had before somebody changes something.
type accessError struct {
	// missing says that a Secret, or an entry of it, is not there.
	missing bool
	err     error
}

func (e *accessError) Error() string { return e.err.Error() }
func (e *accessError) Unwrap() error { return e.err }

func missing(format string, args ...any) error {
	return &accessError{true, fmt.Errorf(format, args...)}
}

// accessFault says what a request does about an error of account.
func accessFault(err error, w words) error {
	var bad *accessError
	switch {
	case !errors.As(err, &bad):
		return fault.ClassUnavailable.After(0, w.initError, "%w", err)
	case bad.missing:
		return fault.Pending(w.secretMissing, "%w", err)
	default:
		return fault.Pending(w.initError, "%w", err)
	}
}

// accessOf reads what an issuer names. An error that is no accessError is the API
// server's.
func (s *Signer) accessOf(ctx context.Context, issuer certmanagerv1.GenericIssuer) (access, error) {
	spec := issuer.GetSpec().Venafi
	read := reader{ctx: ctx, secrets: s.Secrets, namespace: signer.ResourceNamespace(issuer, s.ClusterResourceNamespace)}
	a := access{zone: spec.Zone}
	if issuer.GetNamespace() != "" {
		a.egress = s.Egress
	}
	switch {
	case spec.TPP != nil:
		read.tpp(spec.TPP, &a)
	case spec.Cloud != nil:
		read.cloud(spec.Cloud, &a)
	case spec.NGTS != nil:
		read.ngts(spec.NGTS, &a)
	default:
		return access{}, &accessError{err: errors.New("spec.venafi names no server: set one of tpp, cloud and ngts")}
	}
	if read.err != nil {
		return access{}, read.err
	}
	sum := sha256.New()
	for _, part := range []string{strconv.Itoa(int(a.product)), a.server, a.zone, read.bundle, a.accessToken, a.username, a.password, a.clientID, a.clientSecret, a.apiKey, a.tokenEndpoint, a.scope} {
		fmt.Fprintf(sum, "%d:%s", len(part), part)
	}
	a.digest = hex.EncodeToString(sum.Sum(nil))
	return a, nil
}

// reader reads Secrets until the first error.
type reader struct {
	ctx       context.Context //nolint:containedctx // lives as long as one call of accessOf
	secrets   signer.SecretReader
	namespace string
	bundle    string
	err       error
}

func (r *reader) tpp(spec *certmanagerv1.VenafiTPP, a *access) {
	a.product, a.server = productTPP, spec.URL
	if _, err := tpp.NewConnector(spec.URL, a.zone, false, nil); err != nil {
		r.err = &accessError{err: fmt.Errorf("spec.venafi.tpp.url %q is not the address of a server: use one like https://tpp.example.com/vedsdk", spec.URL)}
		return
	}
	secret := r.secret(spec.CredentialsRef.Name, "access-token, or with username and password")
	if r.err != nil {
		return
	}
	a.secret = r.namespace + "/" + spec.CredentialsRef.Name
	a.accessToken, a.clientID = entry(secret, keyAccessToken), entry(secret, keyClientID)
	a.username, a.password = entry(secret, keyUsername), entry(secret, keyPassword)
	if a.accessToken == "" && (a.username == "" || a.password == "") {
		r.err = missing("Secret %s has neither an entry %s nor both %s and %s: add one or the other", a.secret, keyAccessToken, keyUsername, keyPassword)
		return
	}
	bundle, from := spec.CABundle, "spec.venafi.tpp.caBundle"
	if ref := spec.CABundleSecretRef; ref != nil {
		key := ref.KeyOr(cmmeta.TLSCAKey)
		from = fmt.Sprintf("entry %s of Secret %s/%s", key, r.namespace, ref.Name)
		secret := r.secret(ref.Name, key)
		if r.err != nil {
			return
		}
		if bundle = secret.Data[key]; len(bundle) == 0 {
			r.err = missing("Secret %s/%s has no entry %s with the certificates that verify the server: add it", r.namespace, ref.Name, key)
			return
		}
	}
	if len(bundle) == 0 {
		return
	}
	certs, err := pki.DecodeBundle(bundle)
	if err != nil {
		r.err = &accessError{err: fmt.Errorf("%s: %w", from, err)}
		return
	}
	r.bundle, a.roots = string(bundle), x509.NewCertPool()
	for _, c := range certs {
		a.roots.AddCert(c)
	}
}

func (r *reader) cloud(spec *certmanagerv1.VenafiCloud, a *access) {
	a.product, a.server = productCloud, or(spec.URL, cloudURL)
	key := spec.APITokenSecretRef.KeyOr(certmanagerv1.DefaultVenafiCloudTokenKey)
	a.secret = r.namespace + "/" + spec.APITokenSecretRef.Name
	a.apiKey = r.entry(spec.APITokenSecretRef.Name, key)
}

func (r *reader) ngts(spec *certmanagerv1.VenafiNGTS, a *access) {
	a.product, a.server, a.tokenEndpoint = productNGTS, or(spec.URL, ngtsURL), or(spec.TokenEndpoint, ngtsTokenEndpoint)
	a.scope = "tsg_id:" + spec.TSGID
	a.secret = r.namespace + "/" + spec.CredentialsRef.Name
	a.clientID = r.entry(spec.CredentialsRef.Name, keyClientID)
	a.clientSecret = r.entry(spec.CredentialsRef.Name, keyClientSecret)
	if r.err == nil && !strings.HasPrefix(a.tokenEndpoint, "https://") {
		r.err = &accessError{err: fmt.Errorf("spec.venafi.ngts.tokenEndpoint %q is not an https address: the client secret is sent there", a.tokenEndpoint)}
	}
}

// secret reads a Secret; holds says what it should hold.
func (r *reader) secret(name, holds string) *corev1.Secret {
	if r.err != nil {
		return nil
	}
	secret, err := r.secrets.Secret(r.ctx, r.namespace, name)
	switch {
	case apierrors.IsNotFound(err):
		r.err = missing("Secret %s/%s does not exist: create it with %s", r.namespace, name, holds)
	case err != nil:
		r.err = fmt.Errorf("read Secret %s/%s: %w", r.namespace, name, err)
	}
	return secret
}

func (r *reader) entry(name, key string) string {
	secret := r.secret(name, key)
	if r.err != nil {
		return ""
	}
	value := entry(secret, key)
	if value == "" {
		r.err = missing("Secret %s/%s has no entry %s: add it", r.namespace, name, key)
	}
	return value
}

// entry returns a credential without the line end that editors and echo leave.
func entry(secret *corev1.Secret, key string) string {
	return strings.TrimRight(string(secret.Data[key]), "\r\n")
}

func or(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

// account returns the account of an issuer; with other credentials it is another one.
func (s *Signer) account(ctx context.Context, issuer certmanagerv1.GenericIssuer) (*account, error) {
	access, err := s.accessOf(ctx, issuer)
	if err != nil {
		return nil, err
	}
	return s.accounts.For(issuer.GetUID(), access.digest, s.Now(), func() (*account, error) { return newAccount(access, s), nil })
}
