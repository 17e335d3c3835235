package takeover

import (
	"context"
	"crypto/x509"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/app"
	"chancery.dev/internal/machine/certificate"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/signer/ca"
)

// Forecast says what Chancery would do with the Certificates of a cluster.
type Forecast struct {
	Total int `json:"total"`
	// Reissued are those that would be issued again at once, although they are ready.
	Reissued []Reissue `json:"reissued"`
	// Planned are those that are issued again before their renewal, because their issuer has another CA now.
	Planned []Reissue `json:"planned"`
	// Due are those whose renewal is due now: cert-manager would renew them too.
	Due []string `json:"due"`
	// UnderWay are those that are being issued, or are not ready: Chancery continues the issuance.
	UnderWay []string `json:"underWay"`
	// Rewritten are those whose Secret is written again with the same certificate and the same key.
	Rewritten []string `json:"rewritten"`
	// Renewals counts those that are renewed as planned: in the next day, week, month, and later.
	Renewals map[string]int `json:"renewals"`
}

// Reissue is a Certificate that would be issued again.
type Reissue struct {
	Certificate string    `json:"certificate"`
	At          time.Time `json:"at"`
	Why         string    `json:"why"`
}

// forecaster has what decisions about Certificates need.
type forecaster struct {
	cluster

	now       time.Time
	ownerRef  bool
	secrets   map[types.NamespacedName]*corev1.Secret
	facts     map[types.NamespacedName]*facts.Secret
	keys      map[types.UID][]facts.Key
	requests  map[types.UID][]facts.Request
	claims    map[types.NamespacedName][]*certmanagerv1.Certificate
	issuers   map[string]certmanagerv1.GenericIssuer
	authority map[string][]*x509.Certificate
	signer    *ca.Signer
}

// Secret implements credential.Reader.
func (f *forecaster) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	if s := f.secrets[key]; s != nil {
		return s, nil
	}
	s := &corev1.Secret{}
	return s, f.Get(ctx, key, s)
}

// forecast asks the controller's own decisions what would become of each Certificate.
func (c cluster) forecast(ctx context.Context, in *installation, now time.Time) (*Forecast, error) {
	f := &forecaster{
		cluster: c, now: now, ownerRef: in.switches.Value("enable-certificate-owner-ref") == "true",
		secrets: map[types.NamespacedName]*corev1.Secret{}, facts: map[types.NamespacedName]*facts.Secret{},
		keys: map[types.UID][]facts.Key{}, requests: map[types.UID][]facts.Request{},
		claims:  map[types.NamespacedName][]*certmanagerv1.Certificate{},
		issuers: map[string]certmanagerv1.GenericIssuer{}, authority: map[string][]*x509.Certificate{},
	}
	f.signer = ca.New(ca.Config{Secrets: f, Now: func() time.Time { return now }, ClusterResourceNamespace: clusterResources(in)})
	out := &Forecast{Renewals: map[string]int{}, Reissued: []Reissue{}, Planned: []Reissue{}, Due: []string{}, UnderWay: []string{}, Rewritten: []string{}}
	var all []*certmanagerv1.Certificate
	list := &certmanagerv1.CertificateList{}
	if err := c.pages(ctx, list, func() {
		for i := range list.Items {
			crt := list.Items[i].DeepCopy()
			key := types.NamespacedName{Namespace: crt.Namespace, Name: crt.Spec.SecretName}
			all, f.claims[key] = append(all, crt), append(f.claims[key], crt)
		}
	}); err != nil {
		return nil, err
	}
	if err := f.gather(ctx); err != nil {
		return nil, err
	}
	for _, crt := range all {
		if err := f.judge(ctx, crt, out); err != nil {
			return nil, fmt.Errorf("Certificate %s: %w", nameOf(crt), err)
		}
	}
	out.Total = len(all)
	return out, nil
}

// gather reads requests, issuers and the Secrets that cert-manager has marked as its own.
func (f *forecaster) gather(ctx context.Context) error {
	requests, secrets, keys := &certmanagerv1.CertificateRequestList{}, &corev1.SecretList{}, &corev1.SecretList{}
	if err := f.pages(ctx, requests, func() {
		for i := range requests.Items {
			r := requests.Items[i].DeepCopy()
			for _, owner := range r.OwnerReferences {
				f.requests[owner.UID] = append(f.requests[owner.UID], facts.OfRequest(r))
			}
		}
	}); err != nil {
		return err
	}
	if err := f.pages(ctx, secrets, func() {
		for i := range secrets.Items {
			s := secrets.Items[i].DeepCopy()
			f.secrets[client.ObjectKeyFromObject(s)] = s
		}
	}, client.MatchingLabels{certmanagerv1.ManagedSecretLabel: certmanagerv1.LabelTrue}); err != nil {
		return err
	}
	if err := f.pages(ctx, keys, func() {
		for i := range keys.Items {
			for _, owner := range keys.Items[i].OwnerReferences {
				f.keys[owner.UID] = append(f.keys[owner.UID], facts.OfKey(&keys.Items[i]))
			}
		}
	}, client.HasLabels{certmanagerv1.NextPrivateKeyLabel}); err != nil {
		return err
	}
	issuers, err := f.allIssuers(ctx)
	for _, issuer := range issuers {
		f.issuers[issuer.GetNamespace()+"/"+issuer.GetName()] = issuer
	}
	return err
}

// judge puts a Certificate where it belongs in the forecast.
func (f *forecaster) judge(ctx context.Context, crt *certmanagerv1.Certificate, out *Forecast) error {
	state, err := f.state(ctx, crt)
	if err != nil {
		return err
	}
	name, action := nameOf(crt), certificate.Decide(state, f.now)
	ready := certmanagerv1.HasCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady, cmmeta.ConditionTrue)
	issuing := certmanagerv1.HasCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionIssuing, cmmeta.ConditionTrue)
	switch action.Step {
	case certificate.StepRepair:
		out.Rewritten = append(out.Rewritten, name)
	case certificate.StepRest, certificate.StepAskRenewalInfo, certificate.StepDeleteKeys, certificate.StepDropSurplus:
		f.plan(state, action, name, out)
	default:
		why := action.Unsaid
		switch {
		case issuing || !ready || why == nil:
			out.UnderWay = append(out.UnderWay, name)
		case why.Reason == certmanagerv1.CertificateReasonRenewing && crt.Status.RenewalTime != nil && !crt.Status.RenewalTime.After(f.now):
			out.Due = append(out.Due, name)
		default:
			out.Reissued = append(out.Reissued, Reissue{Certificate: name, At: f.now.UTC(), Why: why.Reason + ": " + why.Message})
		}
	}
	return nil
}

// plan counts a Certificate in order by when it is issued again.
func (f *forecaster) plan(state certificate.State, action certificate.Action, name string, out *Forecast) {
	if state.Issuer != nil && state.Issuer.Authority != nil {
		without := state
		without.Issuer = nil
		plain := certificate.Decide(without, f.now)
		if at := action.Wake; !at.IsZero() && (plain.Wake.IsZero() || at.Before(plain.Wake)) {
			out.Planned = append(out.Planned, Reissue{Certificate: name, At: at.UTC(), Why: "the CA of its issuer has changed since it was issued, or a CA certificate that came with it expires"})
			return
		}
	}
	status := state.Certificate.Status
	if action.Status != nil {
		status = *action.Status
	}
	const day = 24 * time.Hour
	switch at := status.RenewalTime; {
	case at == nil:
		out.Renewals["never"]++
	case at.Sub(f.now) < day:
		out.Renewals["in a day"]++
	case at.Sub(f.now) < 7*day:
		out.Renewals["in a week"]++
	case at.Sub(f.now) < 30*day:
		out.Renewals["in 30 days"]++
	default:
		out.Renewals["later"]++
	}
}

// state is what the controller would observe of a Certificate.
func (f *forecaster) state(ctx context.Context, crt *certmanagerv1.Certificate) (certificate.State, error) {
	s := certificate.State{
		Certificate: crt, Keys: f.keys[crt.UID], Requests: f.requests[crt.UID], Backoff: app.DefaultConfig().Backoff, OwnerReference: f.ownerRef,
	}
	key := types.NamespacedName{Namespace: crt.Namespace, Name: crt.Spec.SecretName}
	if _, read := f.facts[key]; !read {
		secret, err := f.Secret(ctx, key.Namespace, key.Name)
		switch {
		case apierrors.IsNotFound(err):
			f.facts[key] = nil
		case err != nil:
			return s, err
		default:
			f.facts[key] = facts.OfSecret(secret)
		}
	}
	s.Secret = f.facts[key]
	s.SecretOwner = certificate.SecretOwner(f.claims[key], s.Secret)
	s.Passwords = f.passwords(ctx, crt)
	s.Issuer = f.issuerOf(ctx, crt)
	return s, nil
}

// issuerOf says of the issuer of a Certificate what decisions depend on; nil for one that is not cert-manager's.
func (f *forecaster) issuerOf(ctx context.Context, crt *certmanagerv1.Certificate) *certificate.IssuerFacts {
	ref := crt.Spec.IssuerRef
	key := ref.NamespaceFrom(crt.Namespace) + "/" + ref.Name
	issuer := f.issuers[key]
	if issuer == nil || ref.GroupOrDefault() != certmanagerv1.GroupName {
		return nil
	}
	facts := &certificate.IssuerFacts{Version: fmt.Sprintf("%s/%d", issuer.GetUID(), issuer.GetGeneration())}
	if issuer.GetSpec().CA == nil {
		return facts
	}
	delivered, read := f.authority[key]
	if !read {
		delivered, _ = f.signer.Authority(ctx, issuer) // of one that is not fit, the condition of the issuer says why
		f.authority[key] = delivered
	}
	if len(delivered) > 0 {
		since := f.now // when the controller sees it first
		if said := issuer.GetStatus().CA; said != nil {
			since = said.FirstSeen.Time
		}
		facts.Authority = certificate.AuthorityOf(delivered, since)
		facts.ReissueNow = certmanagerv1.ReissuesNow(issuer)
	}
	return facts
}

// passwords reads those of the keystores that a Certificate wants.
func (f *forecaster) passwords(ctx context.Context, crt *certmanagerv1.Certificate) (p facts.Passwords) {
	stores := crt.Spec.Keystores
	if stores == nil {
		return p
	}
	read := func(ref cmmeta.SecretKeySelector, literal *string) string {
		if ref.Name == "" {
			if literal != nil {
				return *literal
			}
			return ""
		}
		secret, err := f.Secret(ctx, crt.Namespace, ref.Name)
		if err != nil || len(secret.Data[ref.Key]) == 0 {
			p.Error = fmt.Errorf("Secret %s has no %q", ref.Name, ref.Key)
			return ""
		}
		return string(secret.Data[ref.Key])
	}
	if jks := stores.JKS; jks != nil && jks.Create {
		p.JKS = read(jks.PasswordSecretRef, jks.Password)
	}
	if p12 := stores.PKCS12; p12 != nil && p12.Create {
		p.PKCS12 = read(p12.PasswordSecretRef, p12.Password)
	}
	return p
}

// clusterResources is the namespace of the Secrets of ClusterIssuers: cert-manager's default is not Chancery's.
func clusterResources(in *installation) string {
	if in.switches.Sets("cluster-resource-namespace") {
		return in.switches.Value("cluster-resource-namespace")
	}
	if isOurs(in.controller) {
		return home
	}
	return "kube-system"
}

// few joins names, the first ones.
func few(names []string) string {
	const most = 5
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}
