// Package acmeorder sets up ACME issuers, and builds the Order for a request.
//
// The package derives the name of an Order from the request, so that a request never has two Orders. For an issuer the
// package makes the account key, registers the account and sets the account's contact (spec §5.1). When a person asks
// for a new account key, the package replaces the key (RFC 8555 §7.3.5). internal/machine/account decides these steps.
// The package also asks the CA when a certificate should be renewed (RFC 9773). Calls to the CA block: internal/engine
// runs them outside of the workers.
package acmeorder

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/acme/accounts"
	"chancery.dev/internal/kube/credential"
	"chancery.dev/internal/signer"
)

// +kubebuilder:rbac:groups="",resources=secrets,verbs=create;patch

// Reasons of requests (spec §3.4, §4.5).
const (
	reasonRequestParsing = "RequestParsingError"
	reasonInvalidOrder   = "InvalidOrder"
	reasonOrderBuilding  = "OrderBuildingError"
	reasonRenewalInfo    = "ARIError"
)

// Objects reads what was written, and writes: ownwrites.Client is it.
type Objects interface {
	// Get reads an object, own writes included. The object MUST NOT be changed.
	Get(ctx context.Context, key client.ObjectKey, obj client.Object) error
	// Live reads an object from the API server.
	Live(ctx context.Context, reader client.Reader, key client.ObjectKey, obj client.Object) error
	// Create makes an object.
	Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error
	// Patch changes an object.
	Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error
}

// Config is what an Adapter needs.
type Config struct {
	// Objects makes and replaces account keys.
	Objects Objects
	// API reads from the API server, past every cache.
	API client.Reader
	// Secrets holds account keys and credentials.
	Secrets credential.Reader
	// Accounts takes the accounts of issuers that are set up.
	Accounts *accounts.Registry
	// CheckIssuer asks for another check of an issuer, because the CA has lost its account. It MUST NOT block.
	CheckIssuer func(issuer types.UID)
	// Issuers lists all issuers: some share an account.
	Issuers func(ctx context.Context) ([]certmanagerv1.GenericIssuer, error)
	// Tell emits an event about an issuer.
	Tell func(issuer certmanagerv1.GenericIssuer, warning bool, reason, message string)
	// NoARI asks no CA for renewal information, and names no replaced certificate.
	NoARI bool
	// AccountKeyAlgorithm is the algorithm of new account keys, as pki names it. Empty means RSA, which cert-manager
	// can read too.
	AccountKeyAlgorithm string
	// Now is the clock.
	Now func() time.Time
	// ClusterResourceNamespace is where the Secrets of ClusterIssuers are.
	ClusterResourceNamespace string
	// Process marks the Orders that this process makes (order.ProcessAnnotation).
	Process string
	// Annotations chooses what Orders inherit from CertificateSigningRequests.
	Annotations func(map[string]string) map[string]string
}

// Adapter implements signer.Orderer and the abilities of the port for issuers with spec.acme.
type Adapter struct{ Config }

// New returns an Adapter.
func New(c Config) *Adapter {
	c.Accounts.Watch(func(i accounts.Issuer, change accounts.Change) {
		if change == accounts.Lost {
			c.CheckIssuer(i.UID)
		}
	})
	return &Adapter{c}
}

var (
	_ signer.Prober          = (*Adapter)(nil)
	_ signer.Remote          = (*Adapter)(nil)
	_ signer.Orderer         = (*Adapter)(nil)
	_ signer.RenewalInformer = (*Adapter)(nil)
)
