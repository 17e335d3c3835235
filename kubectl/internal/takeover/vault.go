package takeover

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// ownTokens are the issuers that log in to Vault with tokens of the controller's own service account, and those of them
// that ask for audiences which Chancery does not ask for.
type ownTokens struct{ issuers, audiences []string }

func (c cluster) ownTokens(ctx context.Context, in *installation) (of ownTokens, err error) {
	issuers, err := c.allIssuers(ctx)
	own := types.NamespacedName{Namespace: home, Name: controllerName}
	for _, issuer := range issuers {
		namespace, kind := issuer.GetNamespace(), certmanagerv1.IssuerKind
		if namespace == "" {
			namespace, kind = clusterResources(in), certmanagerv1.ClusterIssuerKind
		}
		ref := accountOf(issuer.GetSpec().Vault)
		if ref == nil || own != (types.NamespacedName{Namespace: namespace, Name: ref.Name}) {
			continue
		}
		name := kind + " " + nameOf(issuer)
		of.issuers = append(of.issuers, name)
		if len(ref.TokenAudiences) > 0 {
			of.audiences = append(of.audiences, name)
		}
	}
	return of, err
}

// accountOf is the service account whose tokens an issuer logs in with; nil for none.
func accountOf(vault *certmanagerv1.VaultIssuer) *acmev1.ServiceAccountRef {
	switch {
	case vault == nil:
		return nil
	case vault.Auth.Kubernetes != nil:
		return vault.Auth.Kubernetes.ServiceAccountRef
	case vault.Auth.AWS != nil:
		return vault.Auth.AWS.ServiceAccountRef
	default:
		return nil
	}
}

// vault says what becomes of the issuers that have tokens of the controller's own service account.
func (k *checker) vault(ctx context.Context) error {
	of, err := k.ownTokens(ctx, k.in)
	if err != nil || len(of.issuers) == 0 {
		return err
	}
	const help = "see docs/vault.md#tokens-of-service-accounts"
	f := k.add(aboutVault, Note, "issuers have tokens of the controller's own service account, and keep the right. The tokens are for the audience vault://… of the issuer alone: Vault's role has to take it")
	f.Objects, f.Help = of.issuers, help
	if len(of.audiences) > 0 {
		f := k.add(aboutVault, Red, "issuers ask for further audiences of the controller's own service account, which Chancery does not ask for")
		f.Objects, f.Help = of.audiences, "name another service account, or let Vault's role take vault://…; "+help
	}
	return nil
}
