package certificate

import (
	"cmp"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/machine/revocation"
	"chancery.dev/internal/pki"
)

// start is when every story begins.
func start() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 300_000_000, time.UTC) }

// lifetime is the validity that the issuer of a world gives.
const lifetime = 90 * 24 * time.Hour

// world is a namespace with one Certificate, an executor that follows the contract
// of Action, and an issuer, all in one process with a clock that is stepped.
type world struct {
	t       *testing.T
	decoded *decoded
	now     time.Time

	crt      *certmanagerv1.Certificate
	secret   *corev1.Secret
	backup   *corev1.Secret
	keys     []*corev1.Secret
	requests []*certmanagerv1.CertificateRequest
	held     *heldKey
	owner    string
	backoff  Backoff

	// what the settings and the issuer say
	ownerReference bool
	olderRoots     facts.OlderRoots
	issuer         *IssuerFacts
	answer         *RenewalAnswer
	pinned         *revocation.Pin
	cannotRevoke   string
	revocation     *revocation.Answer
	refusal        *Refusal
	told           time.Time
	postponed      []Postponed
	passwords      facts.Passwords
	repaired       string
	repairError    string
	refuses        string // what the API server has against a repair; empty for nothing
	repairedAt     time.Time
	repairedFor    string
	versions       int
	asked          int
	revocations    int // calls to the CA

	// what was done so far
	statusWrites, keysMade, requestsMade, stores, repairs int
	events                                                []Event
	steps                                                 []Step
}

// heldKey is a private key in the memory of the process.
type heldKey struct {
	facts.HeldKey

	key crypto.Signer
}

// newWorld returns a world with a Certificate that was just made.
func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{t: t, decoded: newDecoded(), now: start(), owner: "web", backoff: Backoff{Min: time.Hour, Max: 32 * time.Hour}, crt: &certmanagerv1.Certificate{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "uid-web", Generation: 1, CreationTimestamp: metav1.NewTime(start())},
		Spec: certmanagerv1.CertificateSpec{
			SecretName: "web-tls", DNSNames: []string{"a.example.com", "b.example.com"},
			IssuerRef:  cmmeta.IssuerReference{Name: "ca"},
			PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm},
		},
	}}
}

// issued has a Certificate of revision 1 that is in order.
func issued(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.settle()
	w.sign(w.requests[0])
	w.settle()
	if w.stores != 1 || w.crt.Status.Revision == nil || *w.crt.Status.Revision != 1 {
		t.Fatalf("the first issuance did not end: %+v", w.crt.Status)
	}
	w.statusWrites, w.keysMade, w.requestsMade, w.stores, w.events, w.steps = 0, 0, 0, 0, nil, nil
	return w
}

// issuing has a renewal of a Certificate in order on its way: the key and the
// request of revision 2 are made.
func issuing(t *testing.T) *world {
	t.Helper()
	w := issued(t)
	w.trigger("ManuallyTriggered")
	w.settle()
	return w
}

// trigger does what a client does that asks for a renewal (spec §2.8).
func (w *world) trigger(reason string) {
	certmanagerv1.SetCertificateCondition(w.crt, certmanagerv1.CertificateCondition{
		Type: certmanagerv1.CertificateConditionIssuing, Status: cmmeta.ConditionTrue, Reason: reason,
	}, w.now)
}

func (w *world) state() State {
	s := State{
		Certificate: w.crt, SecretOwner: w.owner, Backoff: w.backoff, OwnerReference: w.ownerReference, OlderRoots: w.olderRoots,
		Issuer: w.issuer, Answer: w.answer, Passwords: w.passwords,
		Told: w.told, CannotRevoke: w.cannotRevoke, Revocation: w.revocation, Refusal: w.refusal, Postponed: w.postponed,
	}
	if w.pinned != nil {
		pin := *w.pinned
		pin.Reason, _ = revocation.ParseReason(w.crt.Annotations[revocation.Annotation])
		s.Pin = &pin
	}
	if w.repairedFor == "" || w.repairedFor == w.wanted() {
		s.Repaired, s.RepairError, s.RepairedAt = w.repaired, w.repairError, w.repairedAt
	}
	if w.secret != nil {
		s.Secret = w.decoded.secret(w.t, w.secret)
	}
	if w.held != nil {
		s.Held = &w.held.HeldKey
	}
	for _, k := range w.keys {
		s.Keys = append(s.Keys, w.decoded.key(k))
	}
	for _, r := range w.requests {
		s.Requests = append(s.Requests, w.decoded.request(r))
	}
	return s
}

// wanted says what a repair is made from, beside the Secret.
func (w *world) wanted() string {
	return fmt.Sprint(w.crt.Generation, w.ownerReference, w.olderRoots, w.passwords)
}

// settle decides and acts until there is nothing to do at this time, and returns
// when to look again.
func (w *world) settle() time.Time {
	w.t.Helper()
	const most = 20
	for range most {
		a := Decide(w.state(), w.now)
		w.act(a, 9)
		if a.Rests() && a.Status == nil {
			return a.Wake
		}
	}
	w.t.Fatalf("no rest within %d steps: %v, status %+v", most, w.steps, w.crt.Status)
	return time.Time{}
}

// act carries out an Action. budget says how many writes it has before the process
// dies; what it does not get to stays undone.
func (w *world) act(a Action, budget int) {
	w.t.Helper()
	w.steps = append(w.steps, a.Step)
	if budget <= 0 {
		return
	}
	switch a.Step {
	case StepRest:
	case StepDeleteKeys:
		w.deleteKeys(a.Names)
	case StepCreateKey:
		w.createKey(a)
	case StepDeleteRequests, StepDropSurplus:
		before := len(w.requests)
		w.requests = slices.DeleteFunc(w.requests, func(r *certmanagerv1.CertificateRequest) bool { return slices.Contains(a.Names, r.Name) })
		if before-len(w.requests) != len(a.Names) || len(a.Names) == 0 {
			w.t.Fatalf("deletes requests %q, of which %d were there", a.Names, before-len(w.requests))
		}
	case StepCreateRequest:
		w.createRequest(a)
	case StepStore:
		w.stores++
		w.apply(w.target(a, a.Chain, a.Request.Status.CA, a.Request.Spec.IssuerRef))
	case StepStoreTemporary:
		w.apply(w.target(a, w.temporary(a), nil, cmmeta.IssuerReference{}))
	case StepRepair:
		w.repairs++
		target := facts.RepairOf(w.crt, w.secret, w.olderRoots)
		target.Passwords, target.OwnerReference = w.passwords, w.ownerReference
		if w.refuses == "" {
			w.apply(target)
		}
		w.repaired, w.repairError, w.repairedAt, w.repairedFor = w.secret.ResourceVersion, w.refuses, w.now, w.wanted()
	case StepAskRenewalInfo:
		w.asked++
	case StepPin:
		leaf := facts.OfSecret(w.secret).Leaf
		w.pinned = &revocation.Pin{ID: leaf.ID, Serial: "0a", Key: leaf.Key, NotAfter: leaf.NotAfter, Since: w.now.Truncate(time.Second)}
	case StepRecord:
		w.crt = w.crt.DeepCopy()
		delete(w.crt.Annotations, revocation.Annotation)
		w.crt.Annotations[revocation.RecordAnnotation] = a.Record.String()
	case StepUnpin:
		w.pinned, w.revocation = nil, nil
	default:
		w.t.Fatalf("unknown step %v", a.Step)
	}
	if a.Revoke && a.Rests() {
		w.revocations++
	}
	if !a.Rests() {
		budget--
	}
	if a.Status != nil && budget > 0 {
		w.writeStatus(*a.Status)
		budget--
	}
	if budget <= 0 {
		return
	}
	if a.Step == StepStore {
		w.deleteKeys(a.Names)
	}
	w.events = append(w.events, a.Events...)
	if !a.Keep {
		w.held = nil
	}
}

// dies carries out an Action as far as the process gets before it dies.
func (w *world) dies(a Action, budget int) {
	w.t.Helper()
	w.act(a, budget)
	w.held = nil
}

// writeStatus stores as the API server does: in JSON, with times in whole seconds.
func (w *world) writeStatus(s certmanagerv1.CertificateStatus) {
	if !s.Cause.SameAs(w.crt.Status.Cause) {
		w.told = w.now
	}
	w.t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		w.t.Fatal(err)
	}
	changed := w.crt.DeepCopy()
	changed.Status = certmanagerv1.CertificateStatus{}
	if err := json.Unmarshal(text, &changed.Status); err != nil {
		w.t.Fatal(err)
	}
	w.crt = changed
	w.statusWrites++
}

func (w *world) deleteKeys(names []string) {
	w.keys = slices.DeleteFunc(w.keys, func(s *corev1.Secret) bool { return slices.Contains(names, s.Name) })
}

func (w *world) createKey(a Action) {
	w.t.Helper()
	w.keysMade++
	key := w.keyFor(a)
	if slices.ContainsFunc(w.keys, func(s *corev1.Secret) bool { return s.Name == a.Name }) {
		return // already exists
	}
	w.keys = append(w.keys, keySecret(w.t, a.Name, key))
}

// keyFor returns the private key that an Action means: one that there is, or a new one.
func (w *world) keyFor(a Action) crypto.Signer {
	w.t.Helper()
	var key crypto.Signer
	var err error
	switch {
	case a.Held:
		key = w.held.key
	case a.Key != "":
		key = w.keyCalled(a.Key)
	case a.ReuseKey:
		key, err = pki.DecodePrivateKey(w.secret.Data[cmmeta.TLSPrivateKeyKey])
	default:
		key, err = pki.GenerateKey(facts.KeySpecOf(&w.crt.Spec))
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return key
}

func keySecret(t *testing.T, name string, key crypto.Signer) *corev1.Secret {
	t.Helper()
	text, err := pki.EncodePKCS8(key)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{cmmeta.TLSPrivateKeyKey: text}}
}

func (w *world) keyCalled(name string) crypto.Signer {
	w.t.Helper()
	for _, s := range w.keys {
		if s.Name == name {
			key, err := pki.DecodePrivateKey(s.Data[cmmeta.TLSPrivateKeyKey])
			if err != nil {
				w.t.Fatal(err)
			}
			return key
		}
	}
	w.t.Fatalf("there is no key %q", name)
	return nil
}

func (w *world) createRequest(a Action) {
	w.t.Helper()
	w.requestsMade++
	key := w.keyFor(a)
	if a.Keep {
		held := &heldKey{key: key, HeldKey: facts.HeldKey{Public: pki.FactsOfKey(key.Public())}}
		switch {
		case a.Unsaid != nil:
			held.Issuing = *a.Unsaid
		case w.held != nil:
			held.Issuing = w.held.Issuing
		}
		w.held = held
	}
	r, err := NewRequest(w.crt, a, key, DefaultAnnotationFilter())
	if err != nil {
		w.t.Fatal(err)
	}
	if slices.ContainsFunc(w.requests, func(o *certmanagerv1.CertificateRequest) bool { return o.Name == r.Name }) {
		w.t.Fatalf("CertificateRequest %q exists already", r.Name)
	}
	r.CreationTimestamp, r.UID = metav1.NewTime(w.now.Truncate(time.Second)), types.UID("uid-"+r.Name)
	w.requests = append(w.requests, r)
}

func (w *world) target(a Action, chain, ca []byte, issuer cmmeta.IssuerReference) facts.Target {
	w.t.Helper()
	key, err := facts.EncodeKey(w.crt, w.keyFor(a))
	if err != nil {
		w.t.Fatal(err)
	}
	return facts.Target{
		Certificate: w.crt, Issuer: issuer, Chain: chain, CA: ca, Key: key, Passwords: w.passwords, OwnerReference: w.ownerReference,
	}
}

func (w *world) temporary(a Action) []byte {
	w.t.Helper()
	csr, err := pki.DecodeCSR(a.Request.Spec.Request)
	if err != nil {
		w.t.Fatal(err)
	}
	usages, err := pki.ParseUsages(w.crt.Spec.Usages, false, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	chain, err := pki.TemporaryCertificate(csr, pki.Issuance{NotBefore: w.now, Duration: lifetime, Usages: usages})
	if err != nil {
		w.t.Fatal(err)
	}
	return chain
}

// apply writes a Secret as server-side apply with force does: what we applied before
// and do not any more disappears, all of it is ours then, what is others' stays.
func (w *world) apply(target facts.Target) {
	w.t.Helper()
	applied, err := target.Secret()
	if err != nil {
		w.t.Fatal(err)
	}
	before := w.secret
	if before == nil {
		before = &corev1.Secret{}
	}
	ours := fieldSet{}
	for _, entry := range before.ManagedFields {
		if entry.Manager == facts.FieldManager {
			ours = fieldsOf(w.t, entry)
		}
	}
	merged := applied.DeepCopy()
	mergeKept(merged.Labels, before.Labels, ours["f:metadata"]["f:labels"])
	mergeKept(merged.Annotations, before.Annotations, ours["f:metadata"]["f:annotations"])
	mergeKept(merged.Data, before.Data, ours["f:data"])
	merged.ManagedFields = []metav1.ManagedFieldsEntry{managed(w.t, facts.FieldManager, applied)}
	for _, entry := range before.ManagedFields {
		if entry.Manager != facts.FieldManager {
			merged.ManagedFields = append(merged.ManagedFields, entry)
		}
	}
	merged.OwnerReferences = applied.OwnerReferences
	w.versions++
	merged.ResourceVersion = strconv.Itoa(w.versions)
	w.secret = merged
}

// mergeKept adds what was there before and was not applied by us.
func mergeKept[V any](into, before map[string]V, ours fieldSet) {
	for k, v := range before {
		if _, applied := into[k]; !applied && ours["f:"+k] == nil {
			into[k] = v
		}
	}
}

// fieldSet is a set of fields in the form of managedFields (FieldsV1).
type fieldSet map[string]fieldSet

func fieldsOf(t *testing.T, entry metav1.ManagedFieldsEntry) fieldSet {
	t.Helper()
	fields := fieldSet{}
	if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
		t.Fatal(err)
	}
	return fields
}

// managed is what the API server notes of who has applied an object.
func managed(t *testing.T, manager string, applied *corev1.Secret) metav1.ManagedFieldsEntry {
	t.Helper()
	leaves := func(names []string) fieldSet {
		out := fieldSet{".": {}}
		for _, n := range names {
			out["f:"+n] = fieldSet{}
		}
		return out
	}
	owners := fieldSet{}
	for _, ref := range applied.OwnerReferences {
		owners[fmt.Sprintf("k:{\"uid\":%q}", ref.UID)] = fieldSet{}
	}
	raw, err := json.Marshal(fieldSet{
		"f:metadata": {
			"f:labels": leaves(slices.Collect(maps.Keys(applied.Labels))), "f:annotations": leaves(slices.Collect(maps.Keys(applied.Annotations))), "f:ownerReferences": owners,
		},
		"f:data": leaves(slices.Collect(maps.Keys(applied.Data))),
		"f:type": {},
	})
	if err != nil {
		t.Fatal(err)
	}
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationApply, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(raw))}
}

// next returns the request of the highest revision.
func (w *world) next() *certmanagerv1.CertificateRequest {
	w.t.Helper()
	if len(w.requests) == 0 {
		w.t.Fatal("there is no request")
	}
	return slices.MaxFunc(w.requests, func(a, b *certmanagerv1.CertificateRequest) int {
		x, _ := facts.Request{CertificateRequest: a}.Revision()
		y, _ := facts.Request{CertificateRequest: b}.Revision()
		return cmp.Compare(x, y)
	})
}

// sign issues what was requested.
func (w *world) sign(r *certmanagerv1.CertificateRequest) {
	w.t.Helper()
	w.signFor(r, csrOf(w.t, r).PublicKey, w.now, w.now.Add(lifetime))
}

// signWithCA issues what was requested, with a CA that can be put into a truststore.
func (w *world) signWithCA(r *certmanagerv1.CertificateRequest) {
	w.t.Helper()
	w.sign(r)
	r.Status.CA = leafFor(w.t, csrOf(w.t, r), csrOf(w.t, r).PublicKey, w.now, w.now.Add(2*lifetime))
}

// signFor issues a certificate with the names requested, for any key and time.
func (w *world) signFor(r *certmanagerv1.CertificateRequest, public crypto.PublicKey, notBefore, notAfter time.Time) {
	w.t.Helper()
	r.Status.Certificate = leafFor(w.t, csrOf(w.t, r), public, notBefore, notAfter)
	r.Status.CA = []byte("the CA\n")
	w.conclude(r, cmmeta.ConditionTrue, certmanagerv1.CertificateRequestReasonIssued, "Certificate fetched from issuer successfully")
}

func csrOf(t *testing.T, r *certmanagerv1.CertificateRequest) *x509.CertificateRequest {
	t.Helper()
	csr, err := pki.DecodeCSR(r.Spec.Request)
	if err != nil {
		t.Fatal(err)
	}
	return csr
}

func leafFor(t *testing.T, csr *x509.CertificateRequest, public crypto.PublicKey, notBefore, notAfter time.Time) []byte {
	t.Helper()
	authority, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), RawSubject: csr.RawSubject, NotBefore: notBefore, NotAfter: notAfter,
		DNSNames: csr.DNSNames, IPAddresses: csr.IPAddresses, URIs: csr.URIs, EmailAddresses: csr.EmailAddresses,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, &x509.Certificate{SerialNumber: big.NewInt(2)}, public, authority)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return pki.EncodeCertificates(leaf)
}

// conclude sets the condition Ready of a request, and when it failed.
func (w *world) conclude(r *certmanagerv1.CertificateRequest, status cmmeta.ConditionStatus, reason, message string) {
	if reason == certmanagerv1.CertificateRequestReasonFailed || reason == certmanagerv1.CertificateRequestReasonDenied {
		r.Status.FailureTime = &metav1.Time{Time: w.now.Truncate(time.Second)}
	}
	w.say(r, certmanagerv1.CertificateRequestConditionReady, status, reason, message)
}

func (w *world) say(r *certmanagerv1.CertificateRequest, t certmanagerv1.CertificateRequestConditionType, status cmmeta.ConditionStatus, reason, message string) {
	certmanagerv1.SetCertificateRequestCondition(r, certmanagerv1.CertificateRequestCondition{Type: t, Status: status, Reason: reason, Message: message}, w.now)
}

// fail makes the issuer refuse a request.
func (w *world) fail(r *certmanagerv1.CertificateRequest) {
	w.conclude(r, cmmeta.ConditionFalse, certmanagerv1.CertificateRequestReasonFailed, "the CA said no")
}

// amend changes the spec, as a user does.
func (w *world) amend(change func(*certmanagerv1.CertificateSpec)) {
	w.crt = w.crt.DeepCopy()
	change(&w.crt.Spec)
	w.crt.Generation++
}

func newKey(t *testing.T, spec pki.KeySpec) crypto.Signer {
	t.Helper()
	key, err := pki.GenerateKey(spec)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (w *world) condition(t certmanagerv1.CertificateConditionType) certmanagerv1.CertificateCondition {
	if c := certmanagerv1.FindCertificateCondition(w.crt.Status.Conditions, t); c != nil {
		return *c
	}
	return certmanagerv1.CertificateCondition{}
}
