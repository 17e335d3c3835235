package servingcert_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/kube/servingcert"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
)

// stepped is a clock that a test steps.
type stepped struct {
	mu    sync.Mutex
	now   time.Time
	waits map[*func()]time.Time
}

func newStepped() *stepped {
	return &stepped{now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), waits: map[*func()]time.Time{}}
}

func (c *stepped) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *stepped) AfterFunc(d time.Duration, f func()) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := &f
	c.waits[key] = c.now.Add(d)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waits, key)
	}
}

// step moves the clock, and ends the waits that are over.
func (c *stepped) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	for f, at := range c.waits {
		if !at.After(c.now) {
			delete(c.waits, f)
			go (*f)()
		}
	}
}

// start runs a replica, with the rights of rc, until stop is called or the test ends.
func start(t *testing.T, rc *rest.Config, o servingcert.Options) (c *servingcert.Certificate, stop func()) {
	t.Helper()
	clients, err := kubernetes.NewForConfig(rc)
	if err != nil {
		t.Fatal(err)
	}
	o.Client, o.DNSNames = clients, []string{"metrics.example.com"}
	if c, err = servingcert.New(o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return c, stop
}

// leafOf is the certificate that a replica serves with; nil if there is none.
func leafOf(c *servingcert.Certificate) *x509.Certificate {
	if got, err := c.GetCertificate(nil); err == nil {
		return got.Leaf
	}
	return nil
}

// verifies says why a client that trusts the CA of one replica cannot connect to another one; empty if it can.
func verifies(client, server *servingcert.Certificate, now time.Time) string {
	leaf, roots := leafOf(server), x509.NewCertPool()
	if leaf == nil || !roots.AppendCertsFromPEM(client.CA()) {
		return "there is no certificate yet"
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "metrics.example.com", CurrentTime: now}); err != nil {
		return err.Error()
	}
	return ""
}

// TestTwoYears: two replicas that share a CA renew it and their certificates, and at every moment clients of either one
// can connect to the other one.
func TestTwoYears(t *testing.T) {
	t.Parallel()
	w, clock := rig.NewWorld(t), newStepped()
	o := servingcert.Options{Secret: types.NamespacedName{Namespace: w.Namespace, Name: "ca"}, Now: clock.Now, AfterFunc: clock.AfterFunc}
	a, _ := start(t, w.Admin, o)
	b, _ := start(t, w.Admin, o)
	const step = 24 * time.Hour
	cas, leaves := map[string]bool{}, map[string]bool{}
	for began, day := clock.Now(), 0; day < 2*365; day = int(clock.Now().Sub(began).Hours() / 24) {
		rig.Eventually(t, fmt.Sprintf("both are in order on day %d", day), func(ctx context.Context) string {
			secret := &corev1.Secret{}
			if err := w.Get(ctx, "ca", secret); err != nil {
				return err.Error()
			}
			ca, err := pki.DecodeCertificate(secret.Data[corev1.TLSCertKey])
			if err != nil {
				return err.Error()
			}
			now := clock.Now()
			for _, c := range []*servingcert.Certificate{a, b} {
				leaf := leafOf(c)
				if leaf == nil || leaf.NotAfter.Sub(now) < servingcert.DefaultLife/3-2*step {
					return fmt.Sprintf("the certificate is late: %v", leaf)
				}
				if !strings.HasPrefix(string(c.CA()), string(secret.Data[corev1.TLSCertKey])) || ca.NotAfter.Sub(now) < 365*24*time.Hour/3-step {
					return fmt.Sprintf("the CA is late: it ends %s", ca.NotAfter)
				}
				leaves[leaf.SerialNumber.String()] = true
			}
			cas[ca.SerialNumber.String()] = true
			return ""
		})
		for _, pair := range [][2]*servingcert.Certificate{{a, a}, {a, b}, {b, a}, {b, b}} {
			if why := verifies(pair[0], pair[1], clock.Now()); why != "" {
				t.Fatalf("day %d: %s", day, why)
			}
		}
		clock.step(step)
	}
	if len(cas) != 3 || len(leaves) < 2*2*365/7 {
		t.Errorf("there were %d CAs and %d certificates in two years", len(cas), len(leaves))
	}
}

// TestTrustComesFirst: a new CA signs only after clients have been told of the CA, and they are told again after a
// failure; the CA before stays in the bundle. A Secret that is deleted is made again.
func TestTrustComesFirst(t *testing.T) {
	t.Parallel()
	w, clock := rig.NewWorld(t), newStepped()
	var mu sync.Mutex
	var told []byte
	refuse, tries := false, 0
	c, _ := start(t, w.Admin, servingcert.Options{
		Secret: types.NamespacedName{Namespace: w.Namespace, Name: "ca"}, Now: clock.Now, AfterFunc: clock.AfterFunc, Life: 200 * 24 * time.Hour,
		Trust: func(_ context.Context, bundle []byte) error {
			mu.Lock()
			defer mu.Unlock()
			if tries++; refuse {
				return errors.New("refused")
			}
			told = bundle
			return nil
		},
	})
	authorities := func(want int) func(context.Context) string {
		return func(context.Context) string {
			mu.Lock()
			defer mu.Unlock()
			if got := strings.Count(string(told), "BEGIN"); got != want || leafOf(c) == nil {
				return fmt.Sprintf("%d CAs are told of", got)
			}
			return ""
		}
	}
	rig.Eventually(t, "the first CA is told of", authorities(1))
	first := leafOf(c)
	mu.Lock()
	refuse, tries = true, 0
	mu.Unlock()
	clock.step(260 * 24 * time.Hour) // the certificate has expired, and the CA is to be renewed
	rig.Eventually(t, "the new CA is tried twice", func(context.Context) string {
		clock.step(15 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if strings.Count(string(c.CA()), "BEGIN") != 2 || tries < 2 {
			return fmt.Sprintf("%d tries", tries)
		}
		return ""
	})
	if now := leafOf(c); string(now.AuthorityKeyId) != string(first.AuthorityKeyId) {
		t.Error("the new CA has signed before clients trust it")
	}
	mu.Lock()
	refuse = false
	mu.Unlock()
	clock.step(15 * time.Second)
	rig.Eventually(t, "both are told of", authorities(2))
	rig.Eventually(t, "the new CA signs", func(context.Context) string {
		clock.step(12 * time.Hour)
		if string(leafOf(c).AuthorityKeyId) == string(first.AuthorityKeyId) {
			return "the old one does"
		}
		return verifies(c, c, clock.Now())
	})
	if err := w.Client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "ca"}}); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "there is another one, beside those before", authorities(3))
}

// TestOnlyByName: with rights on the one Secret, which is there and empty, everything works; and what a Secret has that
// is made by others stays.
func TestOnlyByName(t *testing.T) {
	t.Parallel()
	w, clock := rig.NewWorld(t), newStepped()
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	foreign := map[string][]byte{corev1.TLSCertKey: []byte("mine"), corev1.TLSPrivateKeyKey: []byte("mine")}
	user := "server-" + w.Namespace
	w.Create(t, &corev1.Secret{ObjectMeta: meta("ca")}, &corev1.Secret{ObjectMeta: meta("others"), Data: foreign},
		&rbacv1.Role{ObjectMeta: meta("serving"), Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"ca", "others", "missing"}, Verbs: []string{"get", "list", "watch", "patch"},
		}}},
		&rbacv1.RoleBinding{
			ObjectMeta: meta("serving"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "serving"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
		})
	o := servingcert.Options{Secret: types.NamespacedName{Namespace: w.Namespace, Name: "ca"}, Now: clock.Now, AfterFunc: clock.AfterFunc}
	c, _ := start(t, rig.As(w.Admin, user), o)
	o.Secret.Name = "others"
	other, _ := start(t, rig.As(w.Admin, user), o)
	rig.Eventually(t, "there is a certificate", func(context.Context) string { return verifies(c, c, clock.Now()) })
	secret := &corev1.Secret{}
	if err := w.Get(t.Context(), "ca", secret); err != nil || secret.Annotations[certmanagerv1.AllowDirectInjectionAnnotation] != "true" {
		t.Errorf("%v, %v", err, secret.Annotations)
	}
	clock.step(time.Minute)
	if err := w.Get(t.Context(), "others", secret); err != nil || !slices.Equal(secret.Data[corev1.TLSCertKey], foreign[corev1.TLSCertKey]) {
		t.Errorf("%v, %v", err, secret.Data)
	}
	if _, err := other.GetCertificate(nil); err == nil || !strings.Contains(err.Error(), w.Namespace+"/others") {
		t.Errorf("got %v", err)
	}
	said := make(chan string, 100)
	o.Secret.Name, o.Log = "missing", funcr.New(func(_, line string) { said <- line }, funcr.Options{})
	late, _ := start(t, rig.As(w.Admin, user), o)
	if line := <-said; !strings.Contains(line, "create an empty one") {
		t.Errorf("where the Secret may not be created: %s", line)
	}
	w.Create(t, &corev1.Secret{ObjectMeta: meta("missing")})
	rig.Eventually(t, "the Secret that was missing is filled", func(context.Context) string { return verifies(late, late, clock.Now()) })
	made, _ := start(t, w.Admin, servingcert.Options{Secret: types.NamespacedName{Namespace: w.Namespace, Name: "made"}, Now: clock.Now, AfterFunc: clock.AfterFunc})
	rig.Eventually(t, "a Secret that is missing is made", func(context.Context) string { return verifies(made, made, clock.Now()) })
}
