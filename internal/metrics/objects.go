// Package metrics exports metrics of Certificates, issuers, Challenges and ACME requests to Prometheus, under the names
// that cert-manager's users have in their alerts and dashboards (spec §9.1). When Prometheus asks, the package computes
// the samples of objects from the cached objects, and keeps none: 10,000 Certificates have 70,000 samples.
package metrics

import (
	"context"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/clientside/explain"
)

// Objects are the metrics of each Certificate, Challenge and issuer.
type Objects struct {
	// Reader is a cache. Objects that it gives out are not changed.
	Reader client.Reader
	// ClusterIssuers includes ClusterIssuers; false where the controller is limited to namespaces.
	ClusterIssuers bool
}

// write writes all samples, as things stand now. An error is one of the cache.
func (o Objects) write(ctx context.Context, t *text, now time.Time) error {
	for _, write := range []func(context.Context, *text) error{o.certificates, o.challenges, o.issuers} {
		if err := write(ctx, t); err != nil {
			return err
		}
	}
	return o.healths(ctx, t, now)
}

// list reads all of a kind. The items share what they point to with the cache.
func (o Objects) list(ctx context.Context, list client.ObjectList) error {
	return o.Reader.List(ctx, list, client.UnsafeDisableDeepCopy)
}

func (o Objects) certificates(ctx context.Context, t *text) error {
	list := &certmanagerv1.CertificateList{}
	if err := o.list(ctx, list); err != nil {
		return err
	}
	t.family("certmanager_certificate_ready_status", gauge, "Whether the Certificate's condition Ready has the status that the label condition names.")
	for i := range list.Items {
		crt := &list.Items[i]
		t.ready(func() { t.certificate(crt) }, statusOf(certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady)))
	}
	for _, f := range []struct {
		name, help string
		of         func(certmanagerv1.CertificateStatus) *metav1.Time
	}{
		{
			"certmanager_certificate_expiration_timestamp_seconds", "When the certificate in the Secret expires, in seconds since 1970; 0 if there is none.",
			func(s certmanagerv1.CertificateStatus) *metav1.Time { return s.NotAfter },
		},
		{
			"certmanager_certificate_not_after_timestamp_seconds", "When the certificate in the Secret expires, in seconds since 1970; 0 if there is none.",
			func(s certmanagerv1.CertificateStatus) *metav1.Time { return s.NotAfter },
		},
		{
			"certmanager_certificate_not_before_timestamp_seconds", "From when on the certificate in the Secret is valid, in seconds since 1970; 0 if there is none.",
			func(s certmanagerv1.CertificateStatus) *metav1.Time { return s.NotBefore },
		},
		{
			"certmanager_certificate_renewal_timestamp_seconds", "When the certificate is going to be renewed, in seconds since 1970; 0 if that is not known.",
			func(s certmanagerv1.CertificateStatus) *metav1.Time { return s.RenewalTime },
		},
	} {
		t.family(f.name, gauge, f.help)
		for i := range list.Items {
			t.begin()
			t.certificate(&list.Items[i])
			t.end(seconds(f.of(list.Items[i].Status)))
		}
	}
	return nil
}

// certificate writes the labels that all samples of Certificates have.
func (t *text) certificate(crt *certmanagerv1.Certificate) {
	t.label("name", crt.Name)
	t.label("namespace", crt.Namespace)
	t.label("issuer_name", crt.Spec.IssuerRef.Name)
	t.label("issuer_kind", crt.Spec.IssuerRef.Kind)
	t.label("issuer_group", crt.Spec.IssuerRef.Group)
}

// challengeStates are the values of the label status.
var challengeStates = [...]acmev1.State{
	acmev1.Ready, acmev1.Valid, acmev1.Errored, acmev1.Expired, acmev1.Invalid, acmev1.Processing, acmev1.Unknown, acmev1.Pending,
}

func (o Objects) challenges(ctx context.Context, t *text) error {
	list := &acmev1.ChallengeList{}
	if err := o.list(ctx, list); err != nil {
		return err
	}
	t.family("certmanager_certificate_challenge_status", gauge, "Whether the Challenge has the state that the label status names.")
	for i := range list.Items {
		c := &list.Items[i]
		for _, state := range challengeStates {
			t.begin()
			t.label("status", string(state))
			t.label("domain", c.Spec.DNSName)
			t.label("reason", c.Status.Reason)
			t.label("processing", strconv.FormatBool(c.Status.Processing))
			t.label("name", c.Name)
			t.label("namespace", c.Namespace)
			t.label("type", string(c.Spec.Type))
			t.end(truth(state == c.Status.State))
		}
	}
	t.family("chancery_challenge_created_timestamp_seconds", gauge, "When a Challenge that is not finished yet was created, in seconds since 1970.")
	for i := range list.Items {
		c := &list.Items[i]
		if c.Status.State.IsFinal() || c.DeletionTimestamp != nil {
			continue
		}
		t.begin()
		t.label("name", c.Name)
		t.label("namespace", c.Namespace)
		t.label("domain", c.Spec.DNSName)
		t.label("type", string(c.Spec.Type))
		t.label("processing", strconv.FormatBool(c.Status.Processing))
		t.label("cause", string(c.Status.FailureClass))
		t.end(seconds(&c.CreationTimestamp))
	}
	return nil
}

func (o Objects) issuers(ctx context.Context, t *text) error {
	namespaced, global := &certmanagerv1.IssuerList{}, &certmanagerv1.ClusterIssuerList{}
	if err := o.list(ctx, namespaced); err != nil {
		return err
	}
	t.family("certmanager_issuer_ready_status", gauge, "Whether the Issuer's condition Ready has the status that the label condition names.")
	for i := range namespaced.Items {
		issuer := &namespaced.Items[i]
		t.ready(func() {
			t.label("name", issuer.Name)
			t.label("namespace", issuer.Namespace)
		}, issuerStatus(issuer))
	}
	if o.ClusterIssuers {
		if err := o.list(ctx, global); err != nil {
			return err
		}
		t.family("certmanager_clusterissuer_ready_status", gauge, "Whether the ClusterIssuer's condition Ready has the status that the label condition names.")
		for i := range global.Items {
			t.ready(func() { t.label("name", global.Items[i].Name) }, issuerStatus(&global.Items[i]))
		}
	}
	t.authorities(namespaced, global)
	return nil
}

// authorities writes, for each CA issuer, when the CA's validity begins and ends.
func (t *text) authorities(namespaced *certmanagerv1.IssuerList, global *certmanagerv1.ClusterIssuerList) {
	for _, f := range []struct {
		name, help string
		of         func(*certmanagerv1.CAIssuerStatus) *metav1.Time
	}{
		{
			"chancery_issuer_ca_expiration_timestamp_seconds",
			"When the first of the certificates expires that a CA issuer signs with and delivers, in seconds since 1970.",
			func(s *certmanagerv1.CAIssuerStatus) *metav1.Time { return s.NotAfter },
		},
		{
			"chancery_issuer_ca_not_before_timestamp_seconds",
			"From when on that certificate is valid which chancery_issuer_ca_expiration_timestamp_seconds is about, in seconds since 1970.",
			func(s *certmanagerv1.CAIssuerStatus) *metav1.Time { return s.NotBefore },
		},
		{
			"chancery_issuer_older_root_expiration_timestamp_seconds",
			"When the first of the older roots expires that the Secret of a CA issuer still holds, in seconds since 1970.",
			firstOlderRoot,
		},
		{
			"chancery_issuer_ca_first_seen_timestamp_seconds",
			"Since when a CA issuer is known to have its CA, in seconds since 1970.",
			func(s *certmanagerv1.CAIssuerStatus) *metav1.Time { return &s.FirstSeen },
		},
	} {
		t.family(f.name, gauge, f.help)
		write := func(kind string, issuer certmanagerv1.GenericIssuer) {
			ca := issuer.GetStatus().CA
			if issuer.GetSpec().CA == nil || ca == nil || f.of(ca) == nil {
				return
			}
			t.issuer(kind, issuer)
			t.end(seconds(f.of(ca)))
		}
		for i := range namespaced.Items {
			write(cmmeta.DefaultIssuerKind, &namespaced.Items[i])
		}
		for i := range global.Items {
			write(cmmeta.ClusterIssuerKind, &global.Items[i])
		}
	}
}

// firstOlderRoot is when the first of the older roots expires; nil if there is none.
func firstOlderRoot(s *certmanagerv1.CAIssuerStatus) (first *metav1.Time) {
	for i := range s.OlderRoots {
		if at := &s.OlderRoots[i].NotAfter; first == nil || at.Before(first) {
			first = at
		}
	}
	return first
}

// healths counts the Certificates by how they stand, the numbers of the page, and those that earlier CAs have signed.
func (o Objects) healths(ctx context.Context, t *text, now time.Time) error {
	certificates, lists := &certmanagerv1.CertificateList{}, []client.ObjectList{&certmanagerv1.IssuerList{}}
	unread := map[string]bool{cmmeta.ClusterIssuerKind: !o.ClusterIssuers}
	if o.ClusterIssuers {
		lists = append(lists, &certmanagerv1.ClusterIssuerList{})
	}
	var objects []metav1.Object
	for _, list := range append(lists, certificates) {
		if err := o.list(ctx, list); err != nil {
			return err
		}
		_ = meta.EachListItem(list, func(item runtime.Object) error { // the function gives no error
			if object, is := item.(metav1.Object); is {
				objects = append(objects, object)
			}
			return nil
		})
	}
	w, counts, earlier := explain.NewCluster(objects, unread, now), map[explain.Health]int{}, map[metav1.Object]int{}
	for i := range certificates.Items {
		counts[w.Health(&certificates.Items[i])]++
		if issuer := w.EarlierCA(&certificates.Items[i]); issuer != nil {
			earlier[issuer]++
		}
	}
	t.family("chancery_certificates", gauge, "How many Certificates stand as the label health says.")
	for _, health := range explain.Healths() {
		t.begin()
		t.label("health", string(health))
		t.end(float64(counts[health]))
	}
	t.announced(w, certificates.Items)
	t.family("chancery_issuer_earlier_ca_certificates", gauge, "How many Certificates have a certificate by an earlier CA of their issuer, for issuers whose CA was replaced.")
	for _, o := range objects {
		issuer, is := o.(certmanagerv1.GenericIssuer)
		if !is || issuer.GetSpec().CA == nil || issuer.GetStatus().CA == nil || !issuer.GetStatus().CA.Replaced {
			continue
		}
		t.issuer(explain.KindOf(issuer), issuer)
		t.end(float64(earlier[issuer]))
	}
	return nil
}

// announced writes from when on fields of Certificates cannot work, as public CAs have announced it.
func (t *text) announced(w *explain.Cluster, certificates []certmanagerv1.Certificate) {
	t.family("chancery_certificate_announced_timestamp_seconds", gauge, "From when on the field of the Certificate that the label field names cannot work, as a public CA has announced it, in seconds since 1970. It begins 90 days before.")
	for i := range certificates {
		crt := &certificates[i]
		for _, a := range w.Announced(crt, false) {
			if a.From.IsZero() {
				continue // it has always held
			}
			t.begin()
			t.certificate(crt)
			t.label("field", a.Field)
			t.end(seconds(&metav1.Time{Time: a.From}))
		}
	}
}

// issuer begins a sample of an issuer.
func (t *text) issuer(kind string, issuer metav1.Object) {
	t.begin()
	t.label("kind", kind)
	t.label("namespace", issuer.GetNamespace())
	t.label("name", issuer.GetName())
}

func issuerStatus(i certmanagerv1.GenericIssuer) cmmeta.ConditionStatus {
	if c := certmanagerv1.FindIssuerCondition(i.GetStatus().Conditions, certmanagerv1.IssuerConditionReady); c != nil {
		return c.Status
	}
	return cmmeta.ConditionUnknown
}

func statusOf(c *certmanagerv1.CertificateCondition) cmmeta.ConditionStatus {
	if c == nil {
		return cmmeta.ConditionUnknown
	}
	return c.Status
}

// ready writes a sample for each status that a condition can have. Labels writes those of the object.
func (t *text) ready(labels func(), is cmmeta.ConditionStatus) {
	for _, status := range []cmmeta.ConditionStatus{cmmeta.ConditionTrue, cmmeta.ConditionFalse, cmmeta.ConditionUnknown} {
		t.begin()
		labels()
		t.label("condition", string(status))
		t.end(truth(status == is))
	}
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func seconds(at *metav1.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return float64(at.Unix())
}
