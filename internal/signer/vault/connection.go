package vault

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/vault/api"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/egress"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/signer"
)

// plan is a session to be opened: an issuer's spec, with the entries of the Secrets that the spec names.
type plan struct {
	*Signer

	issuer    certmanagerv1.GenericIssuer
	spec      *certmanagerv1.VaultIssuer
	namespace string
	// versions of the Secrets that were read, and how many bytes their entries have.
	versions []string
	read     int

	roots       []byte
	certificate *tls.Certificate
	leftOut     string
	login       method
	by          string
	fixed       bool
}

// plan reads what an issuer needs. Nothing leaves the cluster.
func (s *Signer) plan(ctx context.Context, issuer certmanagerv1.GenericIssuer) (*plan, error) {
	p := &plan{
		Signer: s, issuer: issuer, spec: issuer.GetSpec().Vault,
		namespace: signer.ResourceNamespace(issuer, s.ClusterResourceNamespace),
	}
	for _, step := range []func(context.Context) error{p.checkSpec, p.readRoots, p.readCertificate, p.readAuth} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// checkSpec repeats the rules of our resource definitions, for clusters with other definitions.
func (p *plan) checkSpec(context.Context) error {
	server, err := url.Parse(p.spec.Server)
	switch {
	case p.spec.Server == "":
		return invalid("spec.vault.server: must not be empty: set the address of the server, such as https://vault.example.com")
	case err != nil || server.Host == "" || (server.Scheme != "https" && server.Scheme != "http"):
		return invalid("spec.vault.server: %q is not an address: use one such as https://vault.example.com", p.spec.Server)
	case strings.Trim(p.spec.Path, "/") == "":
		return invalid("spec.vault.path: must not be empty: set the path that signs, such as pki/sign/role")
	case len(p.spec.CABundle) > 0 && p.spec.CABundleSecretRef != nil:
		return invalid(`spec.vault.caBundle: Invalid value: "<snip>": specified caBundle and caBundleSecretRef cannot be used together, `+
			`spec.vault.caBundleSecretRef: Invalid value: %q: specified caBundleSecretRef and caBundle cannot be used together`, p.spec.CABundleSecretRef.Name)
	case (p.spec.ClientCertSecretRef == nil) != (p.spec.ClientKeySecretRef == nil):
		return invalid("spec.vault: clientCertSecretRef and clientKeySecretRef belong together: set both or none")
	default:
		return p.checkPaths()
	}
}

// checkPaths refuses paths with "..", which lead elsewhere.
func (p *plan) checkPaths() error {
	paths, auth := map[string]string{"path": p.spec.Path}, p.spec.Auth
	if auth.AppRole != nil {
		paths["auth.appRole.path"] = auth.AppRole.Path
	}
	if auth.ClientCertificate != nil {
		paths["auth.clientCertificate.mountPath"] = auth.ClientCertificate.Path
	}
	if auth.Kubernetes != nil {
		paths["auth.kubernetes.mountPath"] = auth.Kubernetes.Path
	}
	if auth.AWS != nil {
		paths["auth.aws.mountPath"] = auth.AWS.Path
	}
	for field, path := range paths {
		if slices.Contains(strings.Split(path, "/"), "..") {
			return invalid("spec.vault.%s: must not contain a segment '..'", field)
		}
	}
	return nil
}

func (p *plan) readRoots(ctx context.Context) error {
	p.roots = p.spec.CABundle
	where := "spec.vault.caBundle"
	if ref := p.spec.CABundleSecretRef; ref != nil {
		var err error
		if p.roots, err = p.text(ctx, *ref, cmmeta.TLSCAKey, limits.BundlePEM); err != nil {
			return err
		}
		where = fmt.Sprintf("entry %q of Secret %s/%s", ref.KeyOr(cmmeta.TLSCAKey), p.namespace, ref.Name)
		p.leftOut = pki.LeftOut(where, p.roots)
	}
	if len(p.roots) > limits.BundlePEM {
		return invalid("%s has more than %d bytes: leave the CA of this server in it only", where, limits.BundlePEM)
	}
	if len(p.roots) > 0 && pki.TrustPool(p.roots) == nil {
		return invalid("%s holds no certificate in PEM form: store the CA that Vault's own certificate is verified with", where)
	}
	return nil
}

// readCertificate reads the client certificate of the connection. The auth method clientCertificate may replace it.
func (p *plan) readCertificate(ctx context.Context) error {
	certRef, keyRef := p.spec.ClientCertSecretRef, p.spec.ClientKeySecretRef
	if certRef == nil {
		return nil
	}
	return p.useCertificate(ctx, *certRef, *keyRef)
}

func (p *plan) useCertificate(ctx context.Context, certRef, keyRef cmmeta.SecretKeySelector) error {
	cert, err := p.entry(ctx, certRef, corev1.TLSCertKey)
	if err != nil {
		return err
	}
	key, err := p.entry(ctx, keyRef, corev1.TLSPrivateKeyKey)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return invalid("the client certificate for Vault in Secret %s/%s: %w", p.namespace, certRef.Name, err)
	}
	p.certificate = &pair
	return nil
}

// entry reads an entry of a Secret with a credential.
func (p *plan) entry(ctx context.Context, ref cmmeta.SecretKeySelector, key string) ([]byte, error) {
	return p.text(ctx, ref, key, limits.CredentialBytes)
}

// text reads an entry of a Secret that has so many bytes at most.
func (p *plan) text(ctx context.Context, ref cmmeta.SecretKeySelector, key string, most int) ([]byte, error) {
	key = ref.KeyOr(key)
	secret, err := p.Secrets.Secret(ctx, p.namespace, ref.Name)
	if apierrors.IsNotFound(err) {
		return nil, missing("Secret %s/%s does not exist: create it with the entry %q", p.namespace, ref.Name, key)
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s/%s: %w", p.namespace, ref.Name, err)
	}
	value := secret.Data[key]
	if len(value) == 0 {
		return nil, missing("Secret %s/%s has no entry %q: add it, or name another one in spec.vault", p.namespace, ref.Name, key)
	}
	if len(value) > most {
		return nil, invalid("entry %q of Secret %s/%s has more than %d bytes: store what is needed, and nothing else, in it", key, p.namespace, ref.Name, most)
	}
	p.read += len(value)
	p.versions = append(p.versions, ref.Name+" "+string(secret.UID)+" "+secret.ResourceVersion)
	return value, nil
}

// inputs tells sessions apart.
func (p *plan) inputs() signer.Inputs {
	text, _ := json.Marshal([]any{p.spec, p.namespace, p.versions}) // cannot fail: the spec came as JSON
	return sha256.Sum256(text)
}

// open makes the session. It does not connect yet.
func (p *plan) open() (*session, error) {
	through := p.transport()
	client, err := api.NewClient(&api.Config{Address: p.spec.Server, HttpClient: through})
	if err != nil {
		return nil, invalid("spec.vault.server: %w", err)
	}
	// The library has read the controller's environment, which is not for issuers.
	client.ClearToken()
	client.SetWrappingLookupFunc(func(string, string) string { return "" })
	client.SetHeaders(http.Header{api.RequestHeaderName: {"true"}})
	if p.spec.Namespace != "" {
		client.SetNamespace(p.spec.Namespace)
	}
	return &session{
		server: p.spec.Server, client: client, http: through, login: p.login, by: p.by, fixed: p.fixed, now: p.Now, leftOut: p.leftOut,
		turn: make(chan struct{}, 1), made: p.size(),
	}, nil
}

const (
	dialTimeout      = 10 * time.Second
	handshakeTimeout = 10 * time.Second
	idleTimeout      = 90 * time.Second
	// idleConns keeps the connections of one burst for the next.
	idleConns = 8
	// bytesPerByte is how many bytes a byte of a CA bundle or a credential takes, as it was written and in use.
	bytesPerByte = 4
)

// size is how many bytes a session takes that is made of the plan: the bundle, what was read of Secrets, and the rest
// of the spec, of which the login holds a part.
func (p *plan) size() int {
	rest := *p.spec
	rest.CABundle = nil
	text, _ := json.Marshal(rest) // cannot fail: the spec came as JSON
	return bytesPerByte*(len(p.spec.CABundle)+p.read) + len(text)
}

// transport makes the client with the issuer's roots and certificate.
func (p *plan) transport() *http.Client {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: p.spec.ServerName}
	if len(p.roots) > 0 {
		conf.RootCAs = pki.TrustPool(p.roots)
	}
	if p.certificate != nil {
		conf.Certificates = []tls.Certificate{*p.certificate}
	}
	if p.clustered() {
		return newHTTPClient(conf, nil)
	}
	return newHTTPClient(conf, p.Egress)
}

// newHTTPClient makes a client that reads short answers and follows no redirect.
func newHTTPClient(conf *tls.Config, policy *egress.Policy) *http.Client {
	transport := policy.Transport(&http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		TLSClientConfig:     conf,
		TLSHandshakeTimeout: handshakeTimeout,
		ForceAttemptHTTP2:   true,
		IdleConnTimeout:     idleTimeout,
		MaxIdleConnsPerHost: idleConns,
	}, net.Dialer{Timeout: dialTimeout}, limits.VaultBody)
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
