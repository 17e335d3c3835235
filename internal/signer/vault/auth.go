package vault

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
)

// Only for the controller's own service account: whoever may create an Issuer could else have a token of any service
// account sent to a server of their choice. For another service account, its owner grants the right (spec §1.3.4).
// +kubebuilder:rbac:groups="",namespace=cert-manager,resources=serviceaccounts/token,resourceNames=cert-manager,verbs=create

// readAuth chooses the auth method, and reads its Secrets.
func (p *plan) readAuth(ctx context.Context) error {
	auth := &p.spec.Auth
	var found []string
	var read func(context.Context) error
	for _, m := range []struct {
		field string
		set   bool
		read  func(context.Context) error
	}{
		{"tokenSecretRef", auth.TokenSecretRef != nil, p.byToken},
		{"appRole", auth.AppRole != nil, p.byAppRole},
		{"clientCertificate", auth.ClientCertificate != nil, p.byCertificate},
		{"kubernetes", auth.Kubernetes != nil, p.byKubernetes},
		{"aws", auth.AWS != nil, p.byAWS},
	} {
		if m.set {
			found, read = append(found, m.field), m.read
		}
	}
	switch len(found) {
	case 0:
		return invalid("spec.vault.auth: no auth method is set: set one of tokenSecretRef, appRole, clientCertificate, kubernetes, aws")
	case 1:
		p.by = found[0]
		return read(ctx)
	default:
		return invalid("spec.vault.auth: %s are set together: keep one of them", strings.Join(found, " and "))
	}
}

// loginPath returns the path of a login. Mount paths are written with /v1 and without.
func loginPath(mount, byDefault string) string {
	return strings.TrimPrefix(cmp.Or(strings.Trim(mount, "/"), strings.Trim(byDefault, "/")), "v1/") + "/login"
}

func trimmed(value []byte) string { return strings.TrimSpace(string(value)) }

func (p *plan) byToken(ctx context.Context) error {
	value, err := p.entry(ctx, *p.spec.Auth.TokenSecretRef, certmanagerv1.DefaultVaultTokenKey)
	if err != nil {
		return err
	}
	token := trimmed(value)
	p.fixed = true
	p.login = func(context.Context, *session) (lease, error) { return lease{token: token}, nil }
	return nil
}

func (p *plan) byAppRole(ctx context.Context) error {
	role := p.spec.Auth.AppRole
	if role.RoleID == "" || role.SecretRef.Name == "" || role.SecretRef.Key == "" {
		return invalid("spec.vault.auth.appRole: set roleId, secretRef.name and secretRef.key")
	}
	secretID, err := p.entry(ctx, role.SecretRef, role.SecretRef.Key)
	if err != nil {
		return err
	}
	mount := cmp.Or(strings.Trim(role.Path, "/"), certmanagerv1.DefaultVaultAppRolePath)
	p.login = func(ctx context.Context, s *session) (lease, error) {
		return s.authenticate(ctx, "auth/"+mount+"/login", map[string]any{"role_id": role.RoleID, "secret_id": trimmed(secretID)})
	}
	return nil
}

func (p *plan) byCertificate(ctx context.Context) error {
	auth := p.spec.Auth.ClientCertificate
	if auth.SecretName != "" {
		ref := cmmeta.SecretKeySelector{Name: auth.SecretName}
		if err := p.useCertificate(ctx, ref, ref); err != nil {
			return err
		}
	}
	if p.certificate == nil {
		return invalid("spec.vault.auth.clientCertificate: there is no certificate to show: set secretName, or clientCertSecretRef and clientKeySecretRef")
	}
	p.login = func(ctx context.Context, s *session) (lease, error) {
		body := map[string]any{}
		if auth.Name != "" {
			body["name"] = auth.Name
		}
		return s.authenticate(ctx, loginPath(auth.Path, certmanagerv1.DefaultVaultClientCertMountPath), body)
	}
	return nil
}

func (p *plan) byKubernetes(ctx context.Context) error {
	auth := p.spec.Auth.Kubernetes
	if auth.Role == "" || (auth.SecretRef.Name != "") == (auth.ServiceAccountRef != nil) {
		return invalid("spec.vault.auth.kubernetes: set role, and exactly one of secretRef and serviceAccountRef")
	}
	kept, bound := "", p.tokenOf(auth.ServiceAccountRef, p.ownAudience(), p.spec.Server)
	if bound == nil {
		value, err := p.entry(ctx, auth.SecretRef, certmanagerv1.DefaultVaultTokenKey)
		if err != nil {
			return err
		}
		kept = trimmed(value)
	}
	p.login = func(ctx context.Context, s *session) (lease, error) {
		token := kept
		if bound != nil {
			var err error
			if token, err = bound(ctx); err != nil {
				return lease{}, err
			}
		}
		return s.authenticate(ctx, loginPath(auth.Path, certmanagerv1.DefaultVaultKubernetesMountPath), map[string]any{"role": auth.Role, "jwt": token})
	}
	return nil
}

// ownAudience is the audience of tokens for this issuer and no other (spec appendix D).
func (p *plan) ownAudience() string {
	if ns := p.issuer.GetNamespace(); ns != "" {
		return "vault://" + ns + "/" + p.issuer.GetName()
	}
	return "vault://" + p.issuer.GetName()
}

// tokenOf returns a function that asks for a token of a service account, for the audiences that the reference names
// and those given.
func (p *plan) tokenOf(ref *acmev1.ServiceAccountRef, audiences ...string) func(context.Context) (string, error) {
	if ref == nil {
		return nil
	}
	account := types.NamespacedName{Namespace: p.namespace, Name: ref.Name}
	all := slices.Concat(ref.TokenAudiences, audiences)
	return func(ctx context.Context) (string, error) {
		token, err := p.Token(ctx, account, all)
		switch {
		case apierrors.IsNotFound(err):
			return "", stageLogin.misplaced("service account %s does not exist: create it", account)
		case apierrors.IsForbidden(err):
			return "", stageLogin.misplaced("a token of service account %s may not be asked for: grant the controller's service account create on serviceaccounts/token for it, by a Role and a RoleBinding: %w", account, err)
		case err != nil:
			return "", stageLogin.away("ask for a token of service account %s: %w", account, err)
		case token == "":
			return "", errors.New("the API server gave an empty token")
		}
		return token, nil
	}
}

// tokenSeconds is how long tokens are asked for (spec appendix C).
const tokenSeconds int64 = 600

// TokenRequests returns a function that asks the API server for tokens of service accounts (TokenRequest).
func TokenRequests(api client.SubResourceClientConstructor) func(context.Context, types.NamespacedName, []string) (string, error) {
	return func(ctx context.Context, serviceAccount types.NamespacedName, audiences []string) (string, error) {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: serviceAccount.Namespace, Name: serviceAccount.Name}}
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: new(tokenSeconds)}}
		err := api.SubResource("token").Create(ctx, account, request)
		return request.Status.Token, err
	}
}
