package app_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/slow"
)

// journal is a log that can be searched.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) logger() logr.Logger {
	return funcr.New(func(prefix, args string) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.lines = append(j.lines, prefix+" "+args)
	}, funcr.Options{})
}

// with returns the lines that have all the words.
func (j *journal) with(words ...string) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []string
	for _, line := range j.lines {
		line = strings.ReplaceAll(line, `\"`, `"`)
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			found = append(found, line)
		}
	}
	return found
}

func (j *journal) await(t *testing.T, words ...string) {
	t.Helper()
	rig.Eventually(t, "the log says "+strings.Join(words, ", "), func(context.Context) string {
		if len(j.with(words...)) == 0 {
			return fmt.Sprintf("%d lines, none of them does", len(j.with()))
		}
		return ""
	})
}

// smallCA makes a self-signed CA and an issuer that signs with it, and a Certificate by it.
func smallCA(t *testing.T, w *rig.World) {
	t.Helper()
	key := &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm}
	w.Create(t,
		&certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "self"}, Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}},
		&certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "ca"}, Spec: certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "root"}}},
		&certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: "root"}, Spec: certmanagerv1.CertificateSpec{
			SecretName: "root", CommonName: "root", IsCA: true, PrivateKey: key, IssuerRef: cmmeta.IssuerReference{Name: "self"},
		}},
		&certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: certmanagerv1.CertificateSpec{
			SecretName: "web", DNSNames: []string{"web.example.com"}, PrivateKey: key, IssuerRef: cmmeta.IssuerReference{Name: "ca"},
		}})
}

func certificateReady(t *testing.T, w *rig.World, name string) {
	t.Helper()
	rig.Eventually(t, "Certificate "+name+" is ready", func(ctx context.Context) string {
		crt := &certmanagerv1.Certificate{}
		if err := w.Get(ctx, name, crt); err != nil {
			return err.Error()
		}
		if !certmanagerv1.HasCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady, cmmeta.ConditionTrue) {
			return fmt.Sprintf("%+v", crt.Status.Conditions)
		}
		return ""
	})
}

// runLogged runs controllers with the rights that they have on a cluster.
func runLogged(t *testing.T, w *rig.World) *journal {
	t.Helper()
	j := &journal{}
	rc := rig.As(w.Admin, rig.Controller, "system:serviceaccounts", "system:serviceaccounts:cert-manager")
	w.RunLogged(t, w.Config(), rc, j.logger())
	return j
}

// TestRule8_NotServed: where the API server has no certificates.k8s.io/v1, the signers never
// start, say so once, and everything else runs.
func TestRule8_NotServed(t *testing.T) {
	slow.Test(t, slow.Versions)
	t.Parallel()
	w := rig.NewWorldOn(t, rig.OwnCluster(t, "--kube-apiserver-arg=--runtime-config=certificates.k8s.io/v1=false"))
	if err := w.Client.List(t.Context(), &certificatesv1.CertificateSigningRequestList{}); err == nil {
		t.Fatal("the API server serves certificates.k8s.io/v1 all the same")
	}
	j := runLogged(t, w)
	smallCA(t, w)
	certificateReady(t, w, "web")
	if said := j.with("does not serve certificates.k8s.io/v1"); len(said) != 1 {
		t.Errorf("it is said %d times: %q", len(said), said)
	}
	if wrong := j.with("certificatesigningrequests"); len(wrong) > 0 {
		t.Errorf("something looks for them all the same: %q", wrong)
	}
}

// TestOneNamespace: with --namespace, rights in that namespace are enough, and the role that is installed for the verbs
// that are not namespaced: to approve, and to issue Orders. ClusterIssuers are not read.
func TestOneNamespace(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	user := "system:serviceaccount:" + w.Namespace + ":chancery"
	w.Create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "chancery"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "chancery-controller"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	})
	w.Create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName("chancery")}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "chancery-namespaced-controller"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	})
	cfg := w.Config()
	cfg.Namespaces, cfg.ClusterResourceNamespace, cfg.Scope.Namespaces = []string{w.Namespace}, "cert-manager", nil
	j := &journal{}
	w.RunLogged(t, cfg, rig.As(w.Admin, user), j.logger())
	smallCA(t, w)
	certificateReady(t, w, "web")
	w.Create(t, &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: "clustered"}, Spec: certmanagerv1.CertificateSpec{
		SecretName: "clustered", DNSNames: []string{"c.example.com"}, IssuerRef: cmmeta.IssuerReference{Name: "any", Kind: cmmeta.ClusterIssuerKind},
	}})
	rig.Eventually(t, "a request to a ClusterIssuer says that it waits in vain", func(ctx context.Context) string {
		cr := &certmanagerv1.CertificateRequest{}
		if err := w.Get(ctx, "clustered-1", cr); err != nil {
			return err.Error()
		}
		ready := certmanagerv1.FindCertificateRequestCondition(cr.Status.Conditions, certmanagerv1.CertificateRequestConditionReady)
		if ready == nil || !strings.Contains(ready.Message, "--namespace") {
			return fmt.Sprintf("%+v", cr.Status.Conditions)
		}
		return ""
	})
	if wrong := j.with("is forbidden"); len(wrong) > 0 {
		t.Errorf("it does what it has no right to: %q", wrong)
	}
	own, err := client.New(rig.As(w.Admin, user), client.Options{Scheme: w.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	o := &acmev1.Order{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "order"}, Spec: acmev1.OrderSpec{
		Request: []byte("request"), IssuerRef: cmmeta.IssuerReference{Name: "acme"}, DNSNames: []string{"web.example.com"},
	}}
	eventuallyFails(t, "", func(ctx context.Context) error { return own.Create(ctx, o, client.DryRunAll) })
	o.Namespace = "default"
	eventuallyFails(t, "cannot create resource", func(ctx context.Context) error { return own.Create(ctx, o, client.DryRunAll) })
}

// TestStopsWithoutRights: controllers that may not watch say which right is missing, and stop when
// they are told to, with and without leader election.
func TestStopsWithoutRights(t *testing.T) {
	t.Parallel()
	for _, elect := range []bool{false, true} {
		t.Run(fmt.Sprint("leader election ", elect), func(t *testing.T) {
			t.Parallel()
			w := rig.NewWorld(t)
			cfg := w.Config()
			cfg.LeaderElect, cfg.LeaderElectionNamespace = elect, w.Namespace
			j := &journal{}
			stop := w.RunLogged(t, cfg, rig.As(w.Admin, "nobody-"+w.Namespace), j.logger())
			j.await(t, "a right is missing", `cannot list resource "certificaterequests" in API group "cert-manager.io"`)
			stopped := make(chan struct{})
			go func() {
				defer close(stopped)
				stop()
			}()
			select {
			case <-stopped:
			case <-time.After(rig.Patience / 4):
				t.Fatal("the controllers do not stop")
			}
		})
	}
}

// grant gives a user rights in the whole cluster.
func grant(t *testing.T, w *rig.World, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	name := strings.ReplaceAll(user, ":", "-")
	w.Create(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	})
}
