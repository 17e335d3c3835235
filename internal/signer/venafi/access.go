package venafi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/Venafi/vcert/v5/pkg/venafi/tpp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/egress"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/kube/credential"
	"chancery.dev/internal/limits"
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

// access is what it takes to reach an issuer's server. Two issuers, or two versions of one, have the same access if
// their inputs are equal.
type access struct {
	product product
	server  string
	zone    string
	// bundle verifies the server; empty means the roots of the system.
	bundle string
	// leftOut is that of signer.Facts.
	leftOut string
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
}

// inputs tell an access from all others, by all of its fields.
func (a *access) inputs() signer.Inputs { return sha256.Sum256(fmt.Appendf(nil, "%#v", *a)) }

const (
	// bytesPerRoot is how many bytes a byte of a CA bundle takes, as it was written and as certificates in use.
	bytesPerRoot = 4
	// bytesPerAnswer is how many bytes a byte of an answer takes as what the library makes of it: lists of short texts.
	bytesPerAnswer = 8
)

// size is how many bytes the session takes besides those that every session takes. It does not wait for a login.
func (a *session) size() int {
	n := bytesPerRoot*len(a.bundle) + int(a.held.Load())
	for _, text := range []string{
		a.server, a.zone, a.accessToken, a.username, a.password, a.clientID, a.clientSecret, a.apiKey, a.tokenEndpoint, a.scope, a.secret,
	} {
		n += len(text)
	}
	return n
}

// reasonMissing is the reason of a fault that waits for a Secret, or an entry of one, until it is known who reads it.
const reasonMissing = "missing"

func missing(format string, args ...any) error { return fault.Pending(reasonMissing, format, args...) }

// invalid waits for a change of the issuer, or of a Secret that it names.
func invalid(format string, args ...any) error { return fault.Pending("", format, args...) }

// accessFault says what a request does about an error of account.
func accessFault(err error, w words) error {
	switch f := fault.Of(err); {
	case f == nil:
		return fault.ClassUnavailable.After(0, w.initError, "%w", err)
	case f.Reason == reasonMissing:
		return fault.Pending(w.secretMissing, "%w", f.Err)
	default:
		return fault.Pending(w.initError, "%w", f.Err)
	}
}

// accessOf reads an issuer's Secrets. An error that is no fault is the API server's.
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
		return access{}, invalid("spec.venafi names no server: set one of tpp, cloud and ngts")
	}
	return a, read.err
}

// reader reads Secrets until the first error.
type reader struct {
	ctx       context.Context //nolint:containedctx // lives as long as one call of accessOf
	secrets   credential.Reader
	namespace string
	err       error
}

func (r *reader) tpp(spec *certmanagerv1.VenafiTPP, a *access) {
	a.product, a.server = productTPP, spec.URL
	if _, err := tpp.NewConnector(spec.URL, a.zone, false, nil); err != nil {
		r.err = invalid("spec.venafi.tpp.url %q is not the address of a server: use one like https://tpp.example.com/vedsdk", spec.URL)
		return
	}
	secret := r.secret(spec.CredentialsRef.Name, "access-token, or with username and password")
	if r.err != nil {
		return
	}
	a.secret = r.namespace + "/" + spec.CredentialsRef.Name
	a.accessToken, a.clientID = r.value(secret, keyAccessToken), r.value(secret, keyClientID)
	a.username, a.password = r.value(secret, keyUsername), r.value(secret, keyPassword)
	if r.err != nil {
		return
	}
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
		a.leftOut = pki.LeftOut(from, bundle)
	}
	if len(bundle) == 0 {
		return
	}
	if certs, leftOut := pki.Trust(bundle); len(certs) == 0 {
		r.err = invalid("%s has no certificate: %s", from, cmp.Or(strings.Join(leftOut[:min(len(leftOut), 1)], ""), "there is no PEM block CERTIFICATE"))
	}
	a.bundle = string(bundle)
}

func (r *reader) cloud(spec *certmanagerv1.VenafiCloud, a *access) {
	a.product, a.server = productCloud, cmp.Or(spec.URL, cloudURL)
	key := spec.APITokenSecretRef.KeyOr(certmanagerv1.DefaultVenafiCloudTokenKey)
	a.secret = r.namespace + "/" + spec.APITokenSecretRef.Name
	a.apiKey = r.entry(spec.APITokenSecretRef.Name, key)
}

func (r *reader) ngts(spec *certmanagerv1.VenafiNGTS, a *access) {
	a.product, a.server, a.tokenEndpoint = productNGTS, cmp.Or(spec.URL, ngtsURL), cmp.Or(spec.TokenEndpoint, ngtsTokenEndpoint)
	a.scope = "tsg_id:" + spec.TSGID
	a.secret = r.namespace + "/" + spec.CredentialsRef.Name
	a.clientID = r.entry(spec.CredentialsRef.Name, keyClientID)
	a.clientSecret = r.entry(spec.CredentialsRef.Name, keyClientSecret)
	if r.err == nil && !strings.HasPrefix(a.tokenEndpoint, "https://") {
		r.err = invalid("spec.venafi.ngts.tokenEndpoint %q is not an https address: the client secret is sent there", a.tokenEndpoint)
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
	value := r.value(secret, key)
	if value == "" && r.err == nil {
		r.err = missing("Secret %s/%s has no entry %s: add it", r.namespace, name, key)
	}
	return value
}

// value returns a credential without the line end that editors and echo leave.
func (r *reader) value(secret *corev1.Secret, key string) string {
	if len(secret.Data[key]) > limits.CredentialBytes {
		r.err = invalid("entry %s of Secret %s/%s has more than %d bytes: store what is needed, and nothing else, in it",
			key, secret.Namespace, secret.Name, limits.CredentialBytes)
		return ""
	}
	return strings.TrimRight(string(secret.Data[key]), "\r\n")
}

// account returns the session of an issuer. With other credentials the issuer gets another session.
func (s *Signer) account(ctx context.Context, issuer certmanagerv1.GenericIssuer) (*session, error) {
	access, err := s.accessOf(ctx, issuer)
	if err != nil {
		return nil, err
	}
	return s.accounts.For(issuer, access.inputs(), s.Now(), func() (*session, error) {
		return &session{access: access, transport: newTransport(access), now: s.Now, observe: s.Observe, userAgent: s.UserAgent, open: s.connect, turn: make(chan struct{}, 1), comparing: s.comparing}, nil
	})
}
