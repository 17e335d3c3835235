package chaos

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
)

// verdict is what a look at the API server has found.
type verdict struct {
	// certificates, requests and orders there are.
	certificates, requests, orders int
	// wrong is what is not as it should be, and may become so.
	wrong []string
	// waiting are Certificates that have failed, say why and when they are tried again.
	waiting []*certmanagerv1.Certificate
}

// judge looks at all objects. It returns an error if the API server does not answer.
func (w *world) judge(ctx context.Context) (*verdict, error) {
	v := &verdict{}
	certificates, secrets, ingresses := &certmanagerv1.CertificateList{}, &corev1.SecretList{}, &networkingv1.IngressList{}
	signing, orders, challenges := &certificatesv1.CertificateSigningRequestList{}, &acmev1.OrderList{}, &acmev1.ChallengeList{}
	for _, list := range []client.ObjectList{certificates, ingresses, signing, orders, challenges, secrets} {
		if err := w.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
	}
	byName, there := map[string]*corev1.Secret{}, map[string]bool{}
	for i := range secrets.Items {
		s := &secrets.Items[i]
		byName[s.Name] = s
		if s.Labels[certmanagerv1.NextPrivateKeyLabel] != "" {
			v.wrong = append(v.wrong, "the private key of an issuance is left: Secret "+s.Name)
		}
	}
	for i := range certificates.Items {
		crt := &certificates.Items[i]
		there[crt.Name] = true
		if said := w.certificateWrong(crt, byName[crt.Spec.SecretName]); said != "" {
			if at := crt.Status.NextTry; crt.Status.Cause != nil && at != nil && at.After(time.Now()) {
				v.waiting = append(v.waiting, crt)
			} else {
				v.wrong = append(v.wrong, fmt.Sprintf("Certificate %s: %s", crt.Name, said))
			}
		}
	}
	for i := range ingresses.Items {
		if name := ingresses.Items[i].Name; !there[name] {
			v.wrong = append(v.wrong, "no Certificate of Ingress "+name)
		}
	}
	for i := range signing.Items {
		if csr := &signing.Items[i]; len(csr.Status.Certificate) == 0 {
			v.wrong = append(v.wrong, fmt.Sprintf("CertificateSigningRequest %s: %+v", csr.Name, csr.Status.Conditions))
		}
	}
	for i := range orders.Items {
		if o := &orders.Items[i]; !o.Status.State.IsFinal() {
			v.wrong = append(v.wrong, fmt.Sprintf("Order %s is %q: %s", o.Name, o.Status.State, o.Status.Reason))
		}
	}
	for i := range challenges.Items {
		c := &challenges.Items[i]
		v.wrong = append(v.wrong, fmt.Sprintf("Challenge %s is left: %q %s", c.Name, c.Status.State, c.Status.Reason))
	}
	if left := w.dns.TXT(); len(left) > 0 && len(challenges.Items) == 0 {
		v.wrong = append(v.wrong, fmt.Sprintf("records are left in DNS: %v", left))
	}
	v.certificates, v.requests, v.orders = len(certificates.Items), len(signing.Items), len(orders.Items)
	return v, nil
}

// certificateWrong says what is wrong with a Certificate and its Secret; empty for nothing.
func (w *world) certificateWrong(crt *certmanagerv1.Certificate, secret *corev1.Secret) string {
	ready := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady)
	issuing := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionIssuing)
	switch {
	case ready == nil || ready.Status != cmmeta.ConditionTrue || ready.ObservedGeneration != crt.Generation || issuing != nil:
		return fmt.Sprintf("%+v %+v", crt.Status.Conditions, crt.Status.Cause)
	case secret == nil:
		return "its Secret is missing"
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return err.Error()
	}
	names, wanted := slices.Sorted(slices.Values(pair.Leaf.DNSNames)), slices.Sorted(slices.Values(crt.Spec.DNSNames))
	if !slices.Equal(names, wanted) {
		return fmt.Sprintf("its certificate is for %v, not for %v", names, wanted)
	}
	if crt.Spec.IssuerRef.Name != "acme" {
		return ""
	}
	above := x509.NewCertPool()
	for _, der := range pair.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			above.AddCert(c)
		}
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: w.ca.RootPool(), Intermediates: above}); err != nil {
		return err.Error()
	}
	return ""
}

// issuedTooOften lists Certificates that were issued more often than somebody had a reason for. It is called with the
// load at rest.
func (w *world) issuedTooOften(ctx context.Context) (out []string, err error) {
	list := &certmanagerv1.CertificateList{}
	if err := w.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	for i := range list.Items {
		crt := &list.Items[i]
		if most := w.load.allowed[crt.Name]; crt.Name != "root" && crt.Status.Revision != nil && *crt.Status.Revision > most {
			out = append(out, fmt.Sprintf("Certificate %s has revision %d, and there were %d reasons to issue it", crt.Name, *crt.Status.Revision, most))
		}
	}
	return out, nil
}

// watchNames looks again and again whether two Challenges for one name are under way at once, until ctx ends.
func (w *world) watchNames(ctx context.Context) (looks int, twice []string) {
	for ; ctx.Err() == nil; sleep(ctx, pace) {
		list := &acmev1.ChallengeList{}
		if w.client.List(ctx, list) != nil {
			continue
		}
		looks++
		underWay := map[string][]types.UID{}
		for i := range list.Items {
			if c := &list.Items[i]; c.Status.Processing && !c.Status.State.IsFinal() && c.DeletionTimestamp == nil {
				key := strings.Join([]string{string(c.Spec.Type), c.Spec.DNSName, fmt.Sprint(c.Spec.Wildcard)}, " ")
				if underWay[key] = append(underWay[key], c.UID); len(underWay[key]) == 2 {
					twice = append(twice, key)
				}
			}
		}
	}
	return looks, twice
}
