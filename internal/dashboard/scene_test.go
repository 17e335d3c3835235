package dashboard

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"chancery.dev/api"
	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/podrequest"
)

// counted is a client that counts its requests.
type counted struct {
	client.WithWatch

	requests *atomic.Int32
}

func cluster(t *testing.T, objects ...client.Object) *counted {
	t.Helper()
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	requests := &atomic.Int32{}
	funcs := interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			requests.Add(1)
			return c.List(ctx, list, o...)
		},
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) (watch.Interface, error) {
			requests.Add(1)
			return c.Watch(ctx, list, o...)
		},
	}
	source := func(o client.Object) []string {
		if e, is := o.(*corev1.Event); is {
			return []string{e.Source.Component}
		}
		return nil
	}
	return &counted{fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(funcs).WithIndex(&corev1.Event{}, "source", source).Build(), requests}
}

func meta(kind, namespace, name string, owner client.Object) metav1.ObjectMeta {
	m := metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(kind + namespace + "/" + name), CreationTimestamp: metav1.NewTime(time.Now().Add(-90 * time.Second)),
	}
	if owner != nil {
		m.OwnerReferences = []metav1.OwnerReference{{UID: owner.GetUID(), Kind: "Owner", Name: owner.GetName(), Controller: new(true)}}
	}
	return m
}

func clusterIssuer(name string, ready cmmeta.ConditionStatus, reason, message string) *certmanagerv1.ClusterIssuer {
	i := &certmanagerv1.ClusterIssuer{ObjectMeta: meta("ClusterIssuer", "", name, nil)}
	i.Status.Conditions = []certmanagerv1.IssuerCondition{{Type: certmanagerv1.IssuerConditionReady, Status: ready, Reason: reason, Message: message}}
	return i
}

// certificate ends in some days, and renews after two thirds of them; with 0 days it is being issued.
func certificate(namespace, name, by string, days int) *certmanagerv1.Certificate {
	crt := &certmanagerv1.Certificate{ObjectMeta: meta("Certificate", namespace, name, nil)}
	crt.Spec = certmanagerv1.CertificateSpec{
		SecretName: name + "-tls", DNSNames: []string{name + ".example.com"}, IssuerRef: cmmeta.IssuerReference{Name: by, Kind: cmmeta.ClusterIssuerKind},
	}
	ready := certmanagerv1.CertificateCondition{Type: certmanagerv1.CertificateConditionReady, Status: cmmeta.ConditionTrue, Reason: "Ready", Message: "good"}
	if days == 0 {
		ready.Status, ready.Reason, ready.Message = cmmeta.ConditionFalse, "DoesNotExist", "Secret does not exist"
		crt.Status.Conditions = append(crt.Status.Conditions, certmanagerv1.CertificateCondition{
			Type: certmanagerv1.CertificateConditionIssuing, Status: cmmeta.ConditionTrue, Reason: "DoesNotExist",
			Message: fmt.Sprintf("Secret %q does not exist", crt.Spec.SecretName), LastTransitionTime: new(metav1.NewTime(time.Now().Add(-90 * time.Second))),
		})
	} else {
		ends := time.Now().Add(time.Duration(days) * day)
		crt.Status.NotAfter, crt.Status.RenewalTime = &metav1.Time{Time: ends}, &metav1.Time{Time: ends.Add(-30 * day)}
		crt.CreationTimestamp = metav1.NewTime(ends.Add(-400 * day))
		crt.Status.NotBefore, crt.Status.Revision = &metav1.Time{Time: ends.Add(-90 * day)}, new(4)
	}
	crt.Status.Conditions = append(crt.Status.Conditions, ready)
	return crt
}

// ordered is a Certificate under way with its request, its Order and its Challenges, by their reasons.
func ordered(crt *certmanagerv1.Certificate, reasons ...string) []client.Object {
	request := &certmanagerv1.CertificateRequest{ObjectMeta: meta("CertificateRequest", crt.Namespace, crt.Name+"-1", crt)}
	request.Spec.IssuerRef = crt.Spec.IssuerRef
	request.Status.Conditions = []certmanagerv1.CertificateRequestCondition{
		{Type: certmanagerv1.CertificateRequestConditionApproved, Status: cmmeta.ConditionTrue, Reason: "policy"},
		{Type: certmanagerv1.CertificateRequestConditionReady, Status: cmmeta.ConditionFalse, Reason: "Pending", Message: "Waiting for Order"},
	}
	order := &acmev1.Order{ObjectMeta: meta("Order", crt.Namespace, crt.Name+"-1-1", request)}
	order.Spec.IssuerRef, order.Status.State = crt.Spec.IssuerRef, acmev1.Pending
	all := []client.Object{crt, request, order}
	for i, reason := range reasons {
		c := &acmev1.Challenge{ObjectMeta: meta("Challenge", crt.Namespace, fmt.Sprintf("%s-1-1-%d", crt.Name, i), order)}
		c.Spec.IssuerRef, c.Spec.DNSName, c.Spec.Type = crt.Spec.IssuerRef, crt.Spec.DNSNames[i%len(crt.Spec.DNSNames)], acmev1.ChallengeTypeDNS01
		c.Status = acmev1.ChallengeStatus{State: acmev1.Pending, Processing: i == 0, Presented: i == 1, Reason: reason}
		if reason != "" { // the controller notes it in the Certificate, too
			c.Status.FailureClass = "Credential"
			crt.Status.Cause = cause.New(cause.Class(fault.ClassCredential), "", crt.Spec.DNSNames[0], reason)
		}
		all = append(all, c)
	}
	return all
}

// failed is a renewal that has failed, and is tried again after a time.
func failed(crt *certmanagerv1.Certificate, next time.Duration, why *cmmeta.Cause) *certmanagerv1.Certificate {
	crt.Status.Cause, crt.Status.NextTry = why, &metav1.Time{Time: time.Now().Add(next)}
	crt.Status.LastFailureTime, crt.Status.FailedIssuanceAttempts = &metav1.Time{Time: time.Now().Add(-20 * time.Minute)}, new(3)
	crt.Status.Conditions = append(crt.Status.Conditions, certmanagerv1.CertificateCondition{
		Type: certmanagerv1.CertificateConditionIssuing, Status: cmmeta.ConditionFalse, Reason: "Failed", Message: cause.Sentence(why),
		LastTransitionTime: crt.Status.LastFailureTime,
	})
	return crt
}

// authority is a CA issuer whose CA expires in some days.
func authority(name string, days int) *certmanagerv1.ClusterIssuer {
	i := clusterIssuer(name, cmmeta.ConditionTrue, "KeyPairVerified", "Signing CA verified")
	i.Spec.CA = &certmanagerv1.CAIssuer{SecretName: name + "-ca"}
	i.Status.CA = &certmanagerv1.CAIssuerStatus{
		NotBefore: &metav1.Time{Time: time.Now().Add(-1000 * day)}, NotAfter: &metav1.Time{Time: time.Now().Add(time.Duration(days) * day)},
	}
	return i
}

// alike is how many Certificates of the scene fail for one cause.
const alike = 12

// scene is a cluster with something of everything, and two pages of certificates: 88.
func scene(t *testing.T) []client.Object {
	t.Helper()
	caa := cause.New(cause.Class(fault.ClassValidation), acme.CodeCAA.Type(), "shop.example.com", "CAA record for example.com prevents issuance")
	limit := cause.New(cause.Class(fault.ClassRateLimited), acme.CodeRateLimited.Type(), "",
		"too many certificates (5) already issued for this exact set of identifiers in the last 168h0m0s")
	quota := cause.New(cause.Quota, "", "Secret pay-tls", "exceeded quota: few, requested: count/secrets=1, used: count/secrets=50, limited: count/secrets=50")
	encrypt, vault := clusterIssuer("letsencrypt", cmmeta.ConditionTrue, "ACMEAccountRegistered", "The ACME account is registered"),
		clusterIssuer("vault", cmmeta.ConditionFalse, "VaultError", "permission denied")
	encrypt.Spec.ACME, vault.Spec.Vault = &acmev1.ACMEIssuer{Server: "https://acme.example/directory"}, &certmanagerv1.VaultIssuer{}
	wild := certificate("mail", "all-mail", "letsencrypt", 61)
	wild.Spec.DNSNames = []string{"*.mail.example.com", "mail.example.com"}
	all := []client.Object{
		encrypt, vault,
		authority("internal", 400), authority("internal-2023", -1), authority("partners", 20),
		certificate("shop", "gone", "nobody", 0), certificate("bank", "old", "letsencrypt", -2), certificate("bank", "sealed", "vault", 0),
		failed(certificate("shop", "front", "letsencrypt", 21), 3*time.Hour, caa), failed(certificate("bank", "api", "letsencrypt", 1), 40*time.Hour, limit),
		failed(certificate("bank", "pay", "internal", 12), 5*time.Minute, quota), certificate("bank", "ledger", "internal-2023", 30),
		certificate("bank", "ledger-db", "internal-2023", 45), certificate("partners", "edi", "partners", 60), wild,
		certificate("platform", "registry", "internal", 80), certificate("platform", "a-rather-long-name-of-a-service-in-staging", "internal", 70),
	}
	web := certificate("shop", "web", "letsencrypt", 0)
	web.Spec.DNSNames = []string{"web.example.com", "www.example.com", "shop.example.com"}
	all = append(all, ordered(web,
		"Error presenting challenge: rfc2136: 192.0.2.53:53 refuses the update of example.com.: BADSIG", "", "")...)
	for i := range pageRows {
		crt := certificate([]string{"shop", "bank", "mail"}[i%3], fmt.Sprintf("host-%02d", i), "letsencrypt", 31+(i*37)%59)
		if i >= pageRows-alike {
			answer := "the answer at http://" + crt.Spec.DNSNames[0] + "/.well-known/acme-challenge/… is 404 Not Found"
			crt = failed(certificate(crt.Namespace, crt.Name, "letsencrypt", 25+i%5), time.Hour, cause.New(cause.Class(fault.ClassSelfCheck), "", crt.Spec.DNSNames[0], answer))
		}
		all = append(all, crt)
	}
	return all
}

// podRequest is a request for a certificate of a Pod by a ClusterIssuer, with a verdict if there is one, and the
// warning about a Pod that waits.
func podRequest(name, by, verdict, warning string) []client.Object {
	pcr := &certificatesv1.PodCertificateRequest{ObjectMeta: meta("PodCertificateRequest", "shop", name, nil)}
	pcr.Spec.SignerName, pcr.Spec.PodName, pcr.Spec.PodUID = "cert-manager.io/"+by, name, types.UID(name)
	all := []client.Object{pcr}
	if verdict != "" {
		pcr.Status.Conditions = []metav1.Condition{{Type: verdict, Status: metav1.ConditionTrue, Reason: "UnsupportedKeyType", Message: warning}}
	} else if warning != "" {
		e := &corev1.Event{ObjectMeta: meta("Event", "shop", name, nil), Type: corev1.EventTypeWarning, Reason: "SignerForbidden", Message: warning, LastTimestamp: metav1.Now()}
		e.InvolvedObject, e.Source.Component = corev1.ObjectReference{Kind: "Pod", UID: types.UID(name), FieldPath: podrequest.FieldPath(pcr.Spec.SignerName)}, "chancery-podcertificaterequests"
		all = append(all, e)
	}
	return all
}

// podScene are requests of Pods: one is denied, one is issued, some wait for a right, and one for an issuer.
func podScene() (all []client.Object) {
	for i := range 20 {
		all = append(all, podRequest(fmt.Sprintf("web-5d9c7b8f6d-x%02d", i), "internal", "", "the ServiceAccount web may not have certificates of the signer cert-manager.io/internal")...)
	}
	for verdict, name := range map[string]string{"Denied": "with-a-key-of-an-unknown-kind", "Issued": "well"} {
		all = append(all, podRequest(name, "internal", verdict, "the kind of key is not known here. ECDSAP256 is a keyType that is")...)
	}
	return append(all, podRequest("lost", "nowhere", "", "")...)
}

// heals has the certificate shop/web come.
func heals(t *testing.T, c client.Client) {
	t.Helper()
	crt := &certmanagerv1.Certificate{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, crt); err != nil {
		t.Fatal(err)
	}
	crt.Status = certificate("shop", "web", "letsencrypt", 90).Status
	if err := c.Update(t.Context(), crt); err != nil {
		t.Fatal(err)
	}
}
