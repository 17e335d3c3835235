// Package acmeorder signs requests through Orders, and sets ACME issuers up.
//
// For a request it makes one Order, whose name follows from the request, and waits
// for the Order's events; obtaining the certificate is the Order's business
// (internal/acmeflow, internal/controller). For an issuer it sees to the account:
// its key, its registration, its contact (spec §5.1), and replaces the key when a person asks
// for it (RFC 8555 §7.3.5), as internal/machine/account decides. For a certificate it asks when the
// CA would have it renewed (RFC 9773). Its calls to the CA block: they are made off the workers.
package acmeorder

import (
	"context"
	"crypto/x509"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/acmeaccount"
	"chancery.dev/internal/acmeflow"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/signer"
)

// +kubebuilder:rbac:groups=acme.cert-manager.io,resources=orders,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=create;patch

// Reasons of requests (spec §3.4, §4.5).
const (
	reasonRequestParsing = "RequestParsingError"
	reasonInvalidOrder   = "InvalidOrder"
	reasonOrderBuilding  = "OrderBuildingError"
	reasonOrderPending   = "OrderPending"
	reasonOrderFailed    = "OrderFailed"
	reasonBadCertificate = "OrderBadCertificate"
	reasonRenewalInfo    = "ARIError"
)

// Objects reads what was written, and writes: overlay.Client is it.
type Objects interface {
	// Get reads an object, own writes included. The object MUST NOT be changed.
	Get(ctx context.Context, key client.ObjectKey, obj client.Object) error
	// Live reads an object from the API server.
	Live(ctx context.Context, reader client.Reader, key client.ObjectKey, obj client.Object) error
	// Create makes an object.
	Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error
	// Delete deletes exactly this object.
	Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error
}

// Patcher changes objects: overlay.Client is it.
type Patcher interface {
	// Patch changes an object.
	Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error
}

// Config is what a Signer needs.
type Config struct {
	// Objects makes Orders and account keys.
	Objects Objects
	// Keys replaces account keys in their Secrets.
	Keys Patcher
	// API reads from the API server, past every cache.
	API client.Reader
	// Secrets holds account keys and credentials.
	Secrets signer.SecretReader
	// Accounts takes the accounts of issuers that are set up.
	Accounts *acmeaccount.Registry
	// Doubt has an issuer looked at again, because the CA has lost its account. It MUST NOT block.
	Doubt func(issuer types.UID)
	// Issuers lists all issuers: some share an account.
	Issuers func(ctx context.Context) ([]certmanagerv1.GenericIssuer, error)
	// Tell emits an event about an issuer.
	Tell func(issuer certmanagerv1.GenericIssuer, warning bool, reason, message string)
	// AccountKeyAlgorithm is that of account keys to make, as pki names it; empty means
	// RSA, which cert-manager would read too.
	AccountKeyAlgorithm string
	// Now is the clock.
	Now func() time.Time
	// ClusterResourceNamespace is where the Secrets of ClusterIssuers are.
	ClusterResourceNamespace string
	// Process marks the Orders that this process makes (acmeflow.ProcessAnnotation).
	Process string
	// Annotations chooses what Orders inherit from CertificateSigningRequests.
	Annotations func(map[string]string) map[string]string
}

// Signer implements signer.Signer, signer.Prober and signer.RenewalInformer for issuers
// with spec.acme.
type Signer struct {
	Config

	mu      sync.Mutex
	refused map[types.UID]refusal
}

// New returns a Signer.
func New(c Config) *Signer {
	c.Accounts.Watch(func(i acmeaccount.Issuer, change acmeaccount.Change) {
		if change == acmeaccount.Lost {
			c.Doubt(i.UID)
		}
	})
	return &Signer{Config: c, refused: map[types.UID]refusal{}}
}

var (
	_ signer.Signer          = (*Signer)(nil)
	_ signer.Prober          = (*Signer)(nil)
	_ signer.Remote          = (*Signer)(nil)
	_ signer.Orderer         = (*Signer)(nil)
	_ signer.RenewalInformer = (*Signer)(nil)
)

// SignsByOrder implements signer.Orderer.
func (*Signer) SignsByOrder() {}

// Sign implements signer.Signer. The Order's events call for the next look.
func (s *Signer) Sign(ctx context.Context, issuer certmanagerv1.GenericIssuer, r signer.Request) (signer.Result, error) {
	spec := issuer.GetSpec().ACME
	if spec == nil {
		return signer.Result{}, fmt.Errorf("issuer %q has no spec.acme", issuer.GetName())
	}
	csr, err := pki.DecodeCSR(r.CSR)
	if err != nil {
		return signer.Result{}, fault.Failed(fault.ClassPermanent, reasonRequestParsing, "Failed to decode CSR in spec.request: %w", err)
	}
	wanted, err := s.build(spec, r, csr)
	if err != nil {
		return signer.Result{}, err
	}
	order := &acmev1.Order{}
	err = s.Objects.Get(ctx, client.ObjectKeyFromObject(wanted), order)
	if apierrors.IsNotFound(err) && !r.Approved {
		return signer.Result{}, pending(wanted)
	}
	if apierrors.IsNotFound(err) {
		if wanted.Spec.Replaces, err = s.replaces(ctx, issuer, r); err != nil {
			return signer.Result{}, err
		}
		return signer.Result{}, s.create(ctx, wanted, r)
	}
	if err != nil {
		return signer.Result{}, fmt.Errorf("get Order %s/%s: %w", wanted.Namespace, wanted.Name, err)
	}
	if !metav1.IsControlledBy(order, r.Source) {
		return signer.Result{}, stranger(order)
	}
	return s.read(ctx, order, r, csr)
}

// create makes the Order, or finds the one that a pass that was cut short has made.
func (s *Signer) create(ctx context.Context, wanted *acmev1.Order, r signer.Request) error {
	if until := s.refusedUntil(r.Source.GetUID()); s.Now().Before(until) {
		return fault.After(until.Sub(s.Now()), reasonBadCertificate,
			"The ACME server issued a certificate that is not for this request; ordering another one at %s", until.UTC().Format(time.RFC3339))
	}
	err := s.Objects.Create(ctx, wanted)
	if apierrors.IsAlreadyExists(err) {
		found := &acmev1.Order{}
		if err := s.Objects.Live(ctx, s.API, client.ObjectKeyFromObject(wanted), found); err != nil {
			return fmt.Errorf("get Order %s/%s: %w", wanted.Namespace, wanted.Name, err)
		}
		if !metav1.IsControlledBy(found, r.Source) {
			return stranger(found)
		}
		wanted, err = found, nil
	}
	if err != nil {
		return fmt.Errorf("create Order %s/%s: %w", wanted.Namespace, wanted.Name, err)
	}
	return pending(wanted)
}

func stranger(order *acmev1.Order) error {
	return fmt.Errorf("the Order %s/%s belongs to another request: delete it", order.Namespace, order.Name)
}

// pending waits for the Order. The text is the same until the Order has something to
// say, so that a request is not written again for each of its steps.
func pending(order *acmev1.Order) error {
	text := fmt.Sprintf("Waiting on certificate issuance from order %s/%s", order.Namespace, order.Name)
	if order.Status.Reason != "" {
		text += fmt.Sprintf(": %q: %s", order.Status.State, order.Status.Reason)
	}
	return fault.Pending(reasonOrderPending, "%s", text)
}

// read says what has become of the Order.
func (s *Signer) read(ctx context.Context, order *acmev1.Order, r signer.Request, csr *x509.CertificateRequest) (signer.Result, error) {
	state := order.Status.State
	if state.IsFailure() {
		return signer.Result{}, fault.Failed(acmeflow.OrderClass(order.Status), reasonOrderFailed,
			"Failed to wait for order resource %q to become ready: order is in %q state: %s", order.Name, state, order.Status.Reason)
	}
	if order.DeletionTimestamp != nil || state != acmev1.Valid || len(order.Status.Certificate) == 0 {
		return signer.Result{}, pending(order)
	}
	if err := answered(csr, order.Status.Certificate); err != nil {
		s.refuse(r.Source.GetUID())
		if err := s.Objects.Delete(ctx, order); err != nil {
			return signer.Result{}, fmt.Errorf("delete Order %s/%s: %w", order.Namespace, order.Name, err)
		}
		return signer.Result{}, fault.Pending(reasonBadCertificate, "Deleting Order with bad certificate: %w", err)
	}
	s.mu.Lock()
	delete(s.refused, r.Source.GetUID())
	s.mu.Unlock()
	return signer.Result{Bundle: signer.Bundle{Chain: order.Status.Certificate}}, nil
}

// refusal bounds how often a CA is asked again that issues wrong certificates.
type refusal struct {
	times int
	until time.Time
}

// maxRefusals bounds the memory of refusals; those that are over are dropped first.
const maxRefusals = 1000

func (s *Signer) refuse(request types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Now()
	if len(s.refused) >= maxRefusals {
		for uid, r := range s.refused {
			if now.After(r.until) {
				delete(s.refused, uid)
			}
		}
	}
	r := s.refused[request]
	r.times++
	r.until = now.Add(acmeflow.Backoff(acmeflow.Failure{Class: fault.ClassRateLimited}, r.times, 0))
	s.refused[request] = r
}

func (s *Signer) refusedUntil(request types.UID) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused[request].until
}
