// Package acmeorder sets up ACME issuers, and builds the Order for a request.
//
// The package derives the name of an Order from the request, so that a request never has two Orders. For an issuer the
// package looks at the account (spec §5.1), says what its Secret is to hold, and makes the calls that register the
// account, set its contact and, when a person asks for a new account key, replace the key (RFC 8555 §7.3.5).
// internal/machine/account decides these steps, and internal/controller/issuers takes them. The package also asks the
// CA when a certificate should be renewed (RFC 9773). Calls to the CA block: internal/engine runs them outside of the
// workers.
package acmeorder

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/acme/accounts"
	"chancery.dev/internal/kube/credential"
	"chancery.dev/internal/signer"
)

// Reasons of requests (spec §3.4, §4.5).
const (
	reasonRequestParsing = "RequestParsingError"
	reasonInvalidOrder   = "InvalidOrder"
	reasonOrderBuilding  = "OrderBuildingError"
	reasonRenewalInfo    = "ARIError"
)

// Objects reads objects from the cache, own writes included. What it returns MUST NOT be changed.
type Objects interface {
	Get(ctx context.Context, key client.ObjectKey, obj client.Object) error
}

// Config is what an Adapter needs.
type Config struct {
	// Objects reads the Certificates of requests.
	Objects Objects
	// Secrets holds account keys and credentials.
	Secrets credential.Reader
	// Accounts takes the accounts of issuers that are set up.
	Accounts *accounts.Registry
	// Issuers lists all issuers: some share an account.
	Issuers func(ctx context.Context) ([]certmanagerv1.GenericIssuer, error)
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
func New(c Config) *Adapter { return &Adapter{c} }

var (
	_ signer.AccountHolder   = (*Adapter)(nil)
	_ signer.Orderer         = (*Adapter)(nil)
	_ signer.RenewalInformer = (*Adapter)(nil)
)
