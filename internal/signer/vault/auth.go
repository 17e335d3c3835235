package vault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// The role has no right to tokens of service accounts: whoever may create an Issuer could make the controller send a
// token to a server of their choice. The owner of a service account grants the right (spec §1.3.4), and who installs,
// for the controller's own.

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
	value, err := p.entry(ctx, role.SecretRef, role.SecretRef.Key)
	if err != nil {
		return err
	}
	secretID := trimmed(value)
	mount := cmp.Or(strings.Trim(role.Path, "/"), certmanagerv1.DefaultVaultAppRolePath)
	p.login = func(ctx context.Context, s *session) (lease, error) {
		return s.authenticate(ctx, "auth/"+mount+"/login", map[string]any{"role_id": role.RoleID, "secret_id": secretID})
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

// vaultAudience begins the audiences of tokens for Vault issuers. No API server takes them for its own.
const vaultAudience = "vault://"

// ownAudience is the audience of tokens for this issuer and no other (spec appendix D).
func (p *plan) ownAudience() string {
	if ns := p.issuer.GetNamespace(); ns != "" {
		return vaultAudience + ns + "/" + p.issuer.GetName()
	}
	return vaultAudience + p.issuer.GetName()
}

// tokenOf returns a function that asks for a token of a service account. The token's audiences are those of the
// reference, the chosen one, and more. A token of the controller's own service account is for the chosen audience only:
// otherwise the author of an issuer could make the controller send a token for the API server to any server.
func (p *plan) tokenOf(ref *acmev1.ServiceAccountRef, chosen string, more ...string) func(context.Context) (string, error) {
	if ref == nil {
		return nil
	}
	account := types.NamespacedName{Namespace: p.namespace, Name: ref.Name}
	isOwn, give := p.Own, p.Token // the function is kept for long, and the plan is not: it has the whole issuer
	return func(ctx context.Context) (string, error) {
		audiences := []string{chosen}
		own, err := isOwn(ctx, account)
		if err != nil {
			return "", stageLogin.away("ask for a token of service account %s: %w", account, err)
		}
		if !own {
			audiences = slices.Concat(ref.TokenAudiences, audiences, more)
		}
		token, err := give(ctx, account, audiences)
		switch {
		case apierrors.IsForbidden(err) && own:
			return "", stageLogin.misplaced("a token of the controller's own service account %s may not be asked for: name another one, or see docs/vault.md: %w", account, err)
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

// TokenRequests returns a function that asks the API server for tokens of service accounts (TokenRequest). For the
// controller's own service account, the function refuses to ask for a token that the API server would accept.
func TokenRequests(api client.SubResourceClientConstructor, own func(context.Context, types.NamespacedName) (bool, error)) func(context.Context, types.NamespacedName, []string) (string, error) {
	harmless := func(audience string) bool {
		return audience == stsAudience || strings.HasPrefix(audience, vaultAudience)
	}
	return func(ctx context.Context, serviceAccount types.NamespacedName, audiences []string) (string, error) {
		is, err := own(ctx, serviceAccount)
		if err != nil {
			return "", err
		}
		if is && (len(audiences) == 0 || slices.ContainsFunc(audiences, func(a string) bool { return !harmless(a) })) {
			return "", fmt.Errorf("tokens of the controller's own service account %s are for the audiences %s and %s… only, not for %q: name another service account",
				serviceAccount, stsAudience, vaultAudience, audiences)
		}
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: serviceAccount.Namespace, Name: serviceAccount.Name}}
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: new(tokenSeconds)}}
		err = api.SubResource("token").Create(ctx, account, request)
		return request.Status.Token, err
	}
}
