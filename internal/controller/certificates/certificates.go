// Package certificates reconciles Certificates with internal/engine. internal/machine/certificate decides each step
// (Decide). To get a certificate, the package makes a CertificateRequest. The package itself signs only temporary
// certificates (spec §2.4).
package certificates

import (
	"context"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/kube/ownwrites"
	"chancery.dev/internal/kube/secrets"
	"chancery.dev/internal/kube/stub"
	"chancery.dev/internal/machine/certificate"
	"chancery.dev/internal/machine/facts"
)

// The right to patch Certificates is for the annotation that asks for a revocation, which goes when it is done.
// +kubebuilder:rbac:groups=cert-manager.io,resources=certificates,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=cert-manager.io,resources=certificates/status,verbs=patch
// +kubebuilder:rbac:groups=cert-manager.io,resources=certificates/finalizers,verbs=update
// +kubebuilder:rbac:groups=cert-manager.io,resources=certificaterequests,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=create;patch;delete

// Indexes of Certificates.
const (
	// secretNameIndex finds the Certificates that keep a certificate in a Secret.
	secretNameIndex = "chancery.dev/secret-name"
	// passwordIndex finds those whose keystores have their password in a Secret.
	passwordIndex = "chancery.dev/keystore-password"
	// issuerIndex finds those of an issuer.
	issuerIndex = "chancery.dev/issuer-of-certificate"
)

// certificates observes Certificates, and carries out what is decided.
type certificates struct {
	*controller.Deps
	self   secrets.Identity
	claims *secrets.Claims
}

// view is a Certificate as a pass sees it.
type view struct {
	certificate.State

	issuer certmanagerv1.GenericIssuer
	pinned *pinned
	// successor is what a CA that is stored takes over from the one before; nil for nothing.
	successor *successor
}

// pass is one look at a Certificate. runner makes the passes.
type (
	pass   = engine.Pass[*certmanagerv1.Certificate, memory]
	runner = engine.Runner[*certmanagerv1.Certificate, memory, *view, certificate.Action]
)

// Setup adds the controller of Certificates.
func Setup(ctx context.Context, d *controller.Deps) error {
	r := &certificates{Deps: d, claims: secrets.NewClaims()}
	if err := r.index(ctx); err != nil {
		return err
	}
	if err := r.Observed(ctx, &certmanagerv1.Certificate{}, &corev1.Secret{}); err != nil {
		return err
	}
	runner := engine.Run(d.Engine, engine.Kind[*certmanagerv1.Certificate, memory, *view, certificate.Action]{
		Name: certmanagerv1.CertificateKind, New: func() *certmanagerv1.Certificate { return &certmanagerv1.Certificate{} },
		Events: d.Events("cert-manager-certificates-issuing"), Observe: r.observe, Plan: r.plan,
		Decide:   func(v *view, now time.Time) certificate.Action { return certificate.Decide(v.State, now) },
		TooLarge: r.tooLarge,
	})
	if err := d.Manager.Add(manager.RunnableFunc(func(ctx context.Context) error { return keepHeldKeys(ctx, runner) })); err != nil {
		return err
	}
	owned := controller.OnOwned(certmanagerv1.GroupName, certmanagerv1.CertificateKind)
	b := ctrl.NewControllerManagedBy(d.Manager).Named("certificates").
		Watches(&certmanagerv1.Certificate{}, &inOrderLast{now: r.Now, claims: r.claims}).
		Watches(&certmanagerv1.CertificateRequest{}, owned).
		Watches(&corev1.Secret{}, owned).
		WatchesRawSource(d.OnSecret(r.dependents)).
		WatchesRawSource(d.OnIssuerSecret(r.affectedBy)).
		WatchesRawSource(runner).
		WithOptions(r.Options(time.Second, 30*time.Second))
	for _, kind := range d.Scope.IssuerKinds() {
		b = b.Watches(kind, handler.EnqueueRequestsFromMapFunc(r.affectedByIssuer), builder.WithPredicates(matters()))
	}
	return b.Complete(runner)
}

func (r *certificates) index(ctx context.Context) error {
	for _, kind := range []client.Object{&certmanagerv1.CertificateRequest{}, &corev1.Secret{}} {
		if err := r.IndexWithin(ctx, kind, ownwrites.OwnerIndex, ownwrites.OwnerOf); err != nil {
			return err
		}
	}
	for name, of := range map[string]client.IndexerFunc{secretNameIndex: secretNameOf, passwordIndex: passwordSecretsOf} {
		if err := r.IndexWithin(ctx, &certmanagerv1.Certificate{}, name, of); err != nil {
			return err
		}
	}
	return r.Manager.GetFieldIndexer().IndexField(ctx, &certmanagerv1.Certificate{}, issuerIndex, issuerOf)
}

func secretNameOf(obj client.Object) []string {
	if crt, ok := obj.(*certmanagerv1.Certificate); ok {
		return []string{crt.Spec.SecretName}
	}
	return nil
}

// dependents lists the Certificates that keep their certificate or a password in a Secret.
func (r *certificates) dependents(ctx context.Context, secret client.Object) (out []reconcile.Request) {
	for _, index := range []string{secretNameIndex, passwordIndex} {
		out = append(out, r.Indexed(ctx, &certmanagerv1.CertificateList{}, index, secret.GetName(), client.InNamespace(secret.GetNamespace()))...)
	}
	return out
}

// tooLarge returns a Certificate that is not ready since it is too large; nil if it says so.
func (r *certificates) tooLarge(crt *certmanagerv1.Certificate, said string) client.Object {
	ready := certmanagerv1.CertificateCondition{
		Type: certmanagerv1.CertificateConditionReady, Status: cmmeta.ConditionFalse, Reason: stub.Reason, Message: said, ObservedGeneration: crt.Generation,
	}
	changed := crt.DeepCopy()
	certmanagerv1.SetCertificateCondition(changed, ready, r.Now())
	if cmmeta.Equal(changed.Status, crt.Status) {
		return nil
	}
	return changed
}

// observe gathers what Decide wants to know, from caches and from the memory.
func (r *certificates) observe(ctx context.Context, p *pass) (*view, error) {
	crt, m := p.Object, p.Memory
	v := &view{State: certificate.State{
		Certificate: crt, Backoff: r.Settings.Backoff, OwnerReference: r.Settings.EnableCertificateOwnerRef,
	}}
	var err error
	if v.Secret, err = r.Secrets.Facts(ctx, crt.Namespace, crt.Spec.SecretName); err != nil {
		return nil, err
	}
	named := ""
	if v.Secret != nil {
		named = v.Secret.CertificateName
	}
	v.SecretOwner = certificate.SecretOwner(r.claims.PossibleOwners(crt, named), v.Secret)
	if v.Keys, err = r.Secrets.Keys(ctx, crt.Namespace, crt.UID); err != nil {
		return nil, err
	}
	if v.Requests, err = r.requestsOf(ctx, m, crt); err != nil {
		return nil, err
	}
	if v.issuer, err = r.IssuerOf(ctx, crt.Namespace, crt.Spec.IssuerRef); err != nil {
		return nil, err
	}
	v.Issuer = r.issuerFacts(ctx, crt, v.issuer)
	if v.OlderRoots, err = r.olderRoots(ctx, v); err != nil {
		return nil, err
	}
	if v.Passwords, err = r.passwords(ctx, crt); err != nil {
		return nil, err
	}
	takeRenewalInfo(p)
	m.recall(&v.State)
	return v, r.observeRevocation(ctx, p, v)
}

// requestsOf returns the facts of the requests of a Certificate. The cache leaves out
// the two ends of those that are issued: they are put back into one that is looked at
// for the first time, or that an issuance is waiting for.
func (r *certificates) requestsOf(ctx context.Context, m *memory, crt *certmanagerv1.Certificate) ([]facts.Request, error) {
	list := &certmanagerv1.CertificateRequestList{}
	if err := r.Client.ListOwned(ctx, list, crt.Namespace, crt.UID); err != nil {
		return nil, err
	}
	next := nextRevision(crt)
	for i := range list.Items {
		request := &list.Items[i]
		_, known := m.requests[request.UID]
		if known && request.Annotations[certmanagerv1.CertificateRevisionAnnotation] != next || r.Requests.Complete(request) {
			continue
		}
		if err := readInFull(ctx, r.Manager.GetAPIReader(), request); err != nil {
			return nil, err
		}
	}
	facts := m.factsOf(list.Items)
	for i := range list.Items {
		if list.Items[i].Annotations[certmanagerv1.CertificateRevisionAnnotation] != next {
			r.Requests.Forget(list.Items[i].UID)
		}
	}
	return facts, nil
}

// readInFull replaces a request of the cache by what the API server has. It is not read
// into the same object, whose maps are the cache's.
func readInFull(ctx context.Context, live client.Reader, request *certmanagerv1.CertificateRequest) error {
	whole := &certmanagerv1.CertificateRequest{}
	if err := live.Get(ctx, client.ObjectKeyFromObject(request), whole); err != nil {
		return err
	}
	*request = *whole
	return nil
}

// nextRevision is the revision that the next issuance makes, or the one under way.
func nextRevision(crt *certmanagerv1.Certificate) string {
	if crt.Status.Revision == nil {
		return "1"
	}
	return strconv.Itoa(*crt.Status.Revision + 1)
}
