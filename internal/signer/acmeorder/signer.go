// Package acmeorder signs requests through Orders, and sets ACME issuers up.
//
// For a request it makes one Order, whose name follows from the request, and waits
// for the Order's events; obtaining the certificate is the Order's business
// (internal/acmeflow, internal/controller). For an issuer it sees to the account:
// its key, its registration, its contact (spec §5.1). Calls to the CA are made in
// flights, never on the caller's worker.
package acmeorder

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acmeaccount"
	"chancery.dev/internal/acmeflow"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/flight"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/signer"
)

// +kubebuilder:rbac:groups=acme.cert-manager.io,resources=orders,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=create

// Reasons of requests (spec §3.4, §4.5).
const (
	reasonRequestParsing = "RequestParsingError"
	reasonInvalidOrder   = "InvalidOrder"
	reasonOrderBuilding  = "OrderBuildingError"
	reasonOrderPending   = "OrderPending"
	reasonOrderFailed    = "OrderFailed"
	reasonBadCertificate = "OrderBadCertificate"
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

// Config is what a Signer needs.
type Config struct {
	// Objects makes Orders and account keys.
	Objects Objects
	// API reads from the API server, past every cache.
	API client.Reader
	// Secrets holds account keys and credentials.
	Secrets signer.SecretReader
	// Accounts takes the accounts of issuers that are set up.
	Accounts *acmeaccount.Registry
	// Flights makes the calls of registrations.
	Flights *flight.Flights
	// Notify has an issuer set up again. It MUST NOT block.
	Notify func(issuer acmeaccount.Issuer)
	// AccountKeyAlgorithm is that of account keys to make, as pki names it; empty means
	// RSA, which cert-manager would read too.
	AccountKeyAlgorithm string
	// Now is the clock.
	Now func() time.Time
	// ClusterResourceNamespace is where the Secrets of ClusterIssuers are.
	ClusterResourceNamespace string
	// Annotations chooses what Orders inherit from CertificateSigningRequests.
	Annotations func(map[string]string) map[string]string
}

// Signer implements signer.Signer and signer.Setupper for issuers with spec.acme.
type Signer struct {
	Config

	mu       sync.Mutex
	attempts map[types.UID]*attempt
	refused  map[types.UID]refusal
}

// New returns a Signer.
func New(c Config) *Signer {
	s := &Signer{Config: c, attempts: map[types.UID]*attempt{}, refused: map[types.UID]refusal{}}
	c.Accounts.Watch(func(i acmeaccount.Issuer, change acmeaccount.Change) {
		switch change {
		case acmeaccount.Lost:
			c.Notify(i)
		case acmeaccount.Released:
			s.forget(i.UID)
		case acmeaccount.Bound, acmeaccount.Parked:
		}
	})
	return s
}

// forget drops what is known of the registration for an issuer: it is over, or the
// issuer is gone.
func (s *Signer) forget(issuer types.UID) {
	s.mu.Lock()
	delete(s.attempts, issuer)
	s.mu.Unlock()
	s.Flights.Forget(issuer)
}

var (
	_ signer.Signer   = (*Signer)(nil)
	_ signer.Setupper = (*Signer)(nil)
)

// Sign implements signer.Signer. The Order's events call for the next look.
func (s *Signer) Sign(ctx context.Context, issuer certmanagerv1.GenericIssuer, r signer.Request) (signer.Result, error) {
	spec := issuer.GetSpec().ACME
	if spec == nil {
		return signer.Result{}, fmt.Errorf("issuer %q has no spec.acme", issuer.GetName())
	}
	wanted, err := s.build(spec, r)
	if err != nil {
		return signer.Result{}, err
	}
	order := &acmev1.Order{}
	err = s.Objects.Get(ctx, client.ObjectKeyFromObject(wanted), order)
	if apierrors.IsNotFound(err) {
		return signer.Result{}, s.create(ctx, wanted, r)
	}
	if err != nil {
		return signer.Result{}, fmt.Errorf("get Order %s/%s: %w", wanted.Namespace, wanted.Name, err)
	}
	if !metav1.IsControlledBy(order, r.Source) {
		return signer.Result{}, stranger(order)
	}
	return s.read(ctx, order, r)
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
func (s *Signer) read(ctx context.Context, order *acmev1.Order, r signer.Request) (signer.Result, error) {
	state := order.Status.State
	if state.IsFailure() {
		return signer.Result{}, fault.Terminal(reasonOrderFailed,
			"Failed to wait for order resource %q to become ready: order is in %q state: %s", order.Name, state, order.Status.Reason)
	}
	if order.DeletionTimestamp != nil || state != acmev1.Valid || len(order.Status.Certificate) == 0 {
		return signer.Result{}, pending(order)
	}
	if err := matches(order.Status.Certificate, r.CSR); err != nil {
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

// matches checks that the CA has issued what was asked for.
func matches(chain, request []byte) error {
	certs, err := pki.DecodeChain(chain)
	if err != nil {
		return err
	}
	csr, err := pki.DecodeCSR(request)
	if err != nil {
		return err
	}
	if !pki.PublicKeysEqual(certs[0].PublicKey, csr.PublicKey) {
		return fmt.Errorf("the certificate's public key is not that of the request")
	}
	return nil
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
	r.until = now.Add(acmeflow.Backoff(acmeflow.Failure{Class: acmeflow.ErrorRateLimited}, r.times, 0))
	s.refused[request] = r
}

func (s *Signer) refusedUntil(request types.UID) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused[request].until
}

// build makes the Order for a request (spec §3.4, §4.5).
func (s *Signer) build(spec *acmev1.ACMEIssuer, r signer.Request) (*acmev1.Order, error) {
	csr, err := pki.DecodeCSR(r.CSR)
	if err != nil {
		return nil, fault.Terminal(reasonRequestParsing, "Failed to decode CSR in spec.request: %w", err)
	}
	want := acmev1.OrderSpec{Request: r.CSR, CommonName: csr.Subject.CommonName, DNSNames: csr.DNSNames, Profile: spec.Profile}
	for _, ip := range csr.IPAddresses {
		want.IPAddresses = append(want.IPAddresses, ip.String())
	}
	if cn := want.CommonName; cn != "" && !slices.Contains(want.DNSNames, cn) && !hasAddress(csr.IPAddresses, cn) {
		return nil, fault.Terminal(reasonInvalidOrder,
			"The CSR PEM requests a commonName that is not present in the list of dnsNames or ipAddresses. If a commonName is set, ACME requires that the value is also present in the list of dnsNames or ipAddresses: %q does not exist in %q or %q",
			cn, want.DNSNames, want.IPAddresses)
	}
	meta := metav1.ObjectMeta{Namespace: r.ResourceNamespace, Labels: r.Source.GetLabels(), Annotations: r.Source.GetAnnotations()}
	owner := *metav1.NewControllerRef(r.Source, certmanagerv1.SchemeGroupVersion().WithKind(certmanagerv1.CertificateRequestKind))
	if cr, ok := r.Source.(*certmanagerv1.CertificateRequest); ok {
		want.IssuerRef = cr.Spec.IssuerRef
		if spec.EnableDurationFeature {
			want.Duration = cr.Spec.Duration
		}
	} else {
		owner = *metav1.NewControllerRef(r.Source, schema.GroupVersionKind{Group: "certificates.k8s.io", Version: "v1", Kind: r.SourceKind})
		want.IssuerRef = cmmeta.IssuerReference{Name: r.IssuerName, Kind: r.IssuerKind, Group: r.IssuerGroup}
		want.Profile = ""
		if spec.EnableDurationFeature {
			want.Duration = &metav1.Duration{Duration: r.Duration}
		}
		if s.Annotations != nil {
			meta.Annotations = s.Annotations(meta.Annotations)
		}
	}
	meta.OwnerReferences = []metav1.OwnerReference{owner}
	if meta.Name, err = nameOf(r, want); err != nil {
		return nil, fault.Terminal(reasonOrderBuilding, "Failed to build order: %w", err)
	}
	// A copy: the answer to its creation is read into it, and the request is shared.
	return (&acmev1.Order{ObjectMeta: meta, Spec: want}).DeepCopy(), nil
}

func hasAddress(addresses []net.IP, text string) bool {
	ip := net.ParseIP(text)
	return ip != nil && slices.ContainsFunc(addresses, ip.Equal)
}

// longName is the length from which the name of a request is cut in its Order's
// (spec §3.4), and is hashed instead.
const longName = 52

// nameOf names the Order after its request, so that there is never a second one.
func nameOf(r signer.Request, spec acmev1.OrderSpec) (string, error) {
	name := r.Source.GetName()
	if r.SourceKind == certmanagerv1.CertificateRequestKind || len(name) < longName {
		return acmeflow.OrderName(name, spec)
	}
	spec.Request = nil
	return acmeflow.ComputeName(name, struct {
		CertificateSigningRequestName string           `json:"certificateSigningRequestName"`
		Spec                          acmev1.OrderSpec `json:"spec"`
	}{name, spec})
}
