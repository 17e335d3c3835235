package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/api"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig/slow"
)

// TestKilledInTheMiddleOfIssuances kills the whole process, API server and all,
// while certificates are being issued. After a restart all are there, each issued once.
func TestKilledInTheMiddleOfIssuances(t *testing.T) {
	slow.Test(t, slow.Crash)
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	arguments := []string{"--controllers=true", "--unsafe-no-fsync=false", "--data-dir", filepath.Join(dir, "data"), "--kubeconfig-out", kubeconfig}
	first := start(t, arguments...)
	c := typedClient(t, kubeconfig)
	const certificates = 20
	createSelfSigned(t, c, certificates)
	eventually(t, "an issuance is under way", func(ctx context.Context) error {
		requests := &certmanagerv1.CertificateRequestList{}
		if err := c.List(ctx, requests); err != nil {
			return err
		}
		if len(requests.Items) == 0 {
			return fmt.Errorf("no request yet")
		}
		return nil
	})
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-first.exited

	second := start(t, append(arguments, "--dashboard-address", "127.0.0.1:0")...)
	c = typedClient(t, kubeconfig)
	eventually(t, "every Certificate is ready", func(ctx context.Context) error {
		all := &certmanagerv1.CertificateList{}
		if err := c.List(ctx, all); err != nil {
			return err
		}
		for _, crt := range all.Items {
			if !certmanagerv1.HasCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady, cmmeta.ConditionTrue) {
				return fmt.Errorf("%s: %+v", crt.Name, crt.Status.Conditions)
			}
			if *crt.Status.Revision != 1 {
				return fmt.Errorf("%s was issued %d times", crt.Name, *crt.Status.Revision)
			}
		}
		return nil
	})
	requests := &certmanagerv1.CertificateRequestList{}
	if err := c.List(t.Context(), requests); err != nil || len(requests.Items) != certificates {
		t.Errorf("%d requests for %d certificates: %v", len(requests.Items), certificates, err)
	}
	seeDashboard(t, second, fmt.Sprintf("%[1]d of %[1]d Certificates", certificates))
}

// seeDashboard waits until the page says something.
func seeDashboard(t *testing.T, p *process, says string) {
	t.Helper()
	var cookies []*http.Cookie
	get := func(ctx context.Context, url string) (string, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return "", err
		}
		for _, cookie := range cookies {
			request.AddCookie(cookie)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return "", err
		}
		defer func() { _ = answer.Body.Close() }()
		cookies = append(cookies, answer.Cookies()...)
		text, err := io.ReadAll(answer.Body)
		return string(text), err
	}
	eventually(t, "the dashboard says "+says, func(ctx context.Context) error {
		origin, token, printed := strings.Cut(p.stdout.String(), "/open/")
		if !printed {
			return fmt.Errorf("no address of the dashboard: %s", p.stdout)
		}
		origin = origin[strings.LastIndex(origin, "http://"):]
		if len(cookies) == 0 {
			if _, err := get(ctx, origin+"/open/"+strings.TrimSpace(token)); err != nil {
				return err
			}
		}
		text, err := get(ctx, origin+"/")
		if err == nil && !strings.Contains(text, says) {
			err = errors.New(text)
		}
		return err
	})
}

func typedClient(t *testing.T, kubeconfig string) ctrlclient.Client {
	t.Helper()
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := ctrlclient.New(load(t, kubeconfig), ctrlclient.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func createSelfSigned(t *testing.T, c ctrlclient.Client, certificates int) {
	t.Helper()
	objects := []ctrlclient.Object{&certmanagerv1.ClusterIssuer{
		ObjectMeta: metav1.ObjectMeta{Name: "selfsigned"},
		Spec:       certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}},
	}}
	for i := range certificates {
		name := fmt.Sprintf("web-%d", i)
		objects = append(objects, &certmanagerv1.Certificate{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec: certmanagerv1.CertificateSpec{
				SecretName: name, DNSNames: []string{name + ".example.com"},
				PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm},
				IssuerRef:  cmmeta.IssuerReference{Name: "selfsigned", Kind: cmmeta.ClusterIssuerKind},
			},
		})
	}
	for _, o := range objects {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}
