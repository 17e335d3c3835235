package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/clientside/explain"
	"chancery.dev/internal/clientside/preflight"
	"chancery.dev/internal/machine/certificate"
	"chancery.dev/kubectl/internal/status"
)

const (
	// lookAgain is how often the copy is looked at, and tidyTime how long its removal may take.
	lookAgain = 2 * time.Second
	tidyTime  = 30 * time.Second
)

// stage lets another issuer issue a copy of the Certificate. In the end it removes the copy and the copy's Secret.
func (k *checker) stage(ctx context.Context) (f preflight.Finding) {
	crt := k.copyFor(k.o.staging)
	issuer := explain.Name(crt.Spec.IssuerRef.Kind, "", crt.Spec.IssuerRef.Name)
	f = preflight.Finding{Check: "staging", Subject: crt.Name, Outcome: preflight.OK, Message: issuer + " has issued the certificate; the copy is removed"}
	found := certmanagerv1.NewIssuer(crt.Spec.IssuerRef, crt.Namespace)
	if err := k.client.Get(ctx, client.ObjectKeyFromObject(found), found); apierrors.IsNotFound(err) { // any other error says nothing of the issuer
		f.Subject, f.Outcome, f.Message = "", preflight.Failed, issuer+" does not exist, so no copy was made"
		f.WhatToDo = "Name an issuer that there is: kubectl chancery issuers -A"
		return f
	}
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTime) // whether it is there has to be known
	defer cancel()
	err := k.client.Create(whole, crt)
	if apierrors.IsForbidden(err) {
		return unread(f.Check, f.Subject, err)
	}
	if err != nil {
		f.Outcome, f.Message = preflight.Failed, err.Error()
		return f
	}
	defer func() {
		tidy, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTime)
		defer cancel()
		if err := k.remove(tidy, crt); err != nil {
			f.Message += "; the copy could not be removed: " + err.Error()
			f.Outcome = preflight.Failed
			f.WhatToDo = fmt.Sprintf("kubectl delete -n %s certificate/%s secret/%s", crt.Namespace, crt.Name, crt.Spec.SecretName)
		}
	}()
	report, err := k.await(ctx, crt)
	if err != nil {
		f.Outcome, f.Message = preflight.Failed, fmt.Sprintf("%s did not issue the certificate: %v", issuer, err)
		f.WhatToDo = report.WhatToDo
	}
	return f
}

// copyFor is the Certificate under another name, with another Secret and another issuer.
func (k *checker) copyFor(issuer string) *certmanagerv1.Certificate {
	kind, name, given := strings.Cut(issuer, "/")
	if !given {
		kind, name = cmp.Or(k.certificate.Spec.IssuerRef.Kind, cmmeta.DefaultIssuerKind), issuer
	} else if strings.EqualFold(kind, cmmeta.ClusterIssuerKind) {
		kind = cmmeta.ClusterIssuerKind
	} else {
		kind = cmmeta.DefaultIssuerKind
	}
	const longest = 200
	copied := k.certificate.Name[:min(len(k.certificate.Name), longest)] + "-preflight-" + rand.String(5)
	crt := &certmanagerv1.Certificate{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: k.certificate.Namespace, Name: copied, Labels: k.certificate.Labels,
			Annotations: certificate.DefaultAnnotationFilter().Apply(k.certificate.Annotations),
		},
		Spec: *k.certificate.Spec.DeepCopy(),
	}
	crt.Spec.SecretName, crt.Spec.IssuerRef = copied, cmmeta.IssuerReference{Name: name, Kind: kind, Group: certmanagerv1.GroupName}
	// What others could take for the real one, or act upon.
	crt.Spec.SecretTemplate, crt.Spec.Keystores, crt.Spec.Renewal = nil, nil, nil
	return crt
}

// await waits until the copy is issued. It gives up when the issuance has failed, or the time is over.
func (k *checker) await(ctx context.Context, crt *certmanagerv1.Certificate) (report explain.Report, err error) {
	ctx, cancel := context.WithTimeout(ctx, k.o.timeout)
	defer cancel()
	q := status.Query{Namespace: crt.Namespace, Args: []string{"certificate/" + crt.Name}, Selector: labels.Everything()}
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		reports, err := status.Gather(ctx, k.client, q, time.Now())
		if err == nil && len(reports) == 1 {
			report = reports[0]
			switch report.Outcome {
			case explain.Issued.String():
				return report, nil
			case explain.Failed.String():
				return report, errors.New(report.Cause)
			}
			k.progress.Step("%s: %s", crt.Name, cmp.Or(report.Cause, report.State))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return report, fmt.Errorf("it was not issued within %s, or the command was interrupted: %s", k.o.timeout, cmp.Or(report.Cause, report.State, "nothing is known"))
		}
	}
}

// remove deletes the copy and its Secret.
func (k *checker) remove(ctx context.Context, crt *certmanagerv1.Certificate) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: crt.Namespace, Name: crt.Spec.SecretName}}
	return errors.Join(
		client.IgnoreNotFound(k.client.Delete(ctx, crt, client.PropagationPolicy(metav1.DeletePropagationBackground))),
		client.IgnoreNotFound(k.client.Delete(ctx, secret)),
	)
}
