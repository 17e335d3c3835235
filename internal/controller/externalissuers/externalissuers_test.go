package externalissuers_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	acv1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/api"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/controller/externalissuers"
	"chancery.dev/internal/install"
	"chancery.dev/internal/rig"
)

// definition is a kind of issuer whose plural nobody would guess.
func definition(group, kind, plural string, scope apiextensionsv1.ResourceScope) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: scope, Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, Plural: plural},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
	}
}

// createDefinition creates a definition for the time of the test, and returns the client for it.
func createDefinition(t *testing.T, w *rig.World, crd *apiextensionsv1.CustomResourceDefinition) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	admin, err := client.New(w.Admin, client.Options{Scheme: scheme})
	if err == nil {
		err = admin.Create(t.Context(), crd)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), crd) })
	return admin
}

// approver is a user with rights on signers, who approves requests of the world.
type approver struct {
	*rig.World

	as client.Client
}

func newApprover(t *testing.T, w *rig.World, signers ...string) approver {
	t.Helper()
	name := "approver-" + w.Namespace
	w.Create(t,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"cert-manager.io"}, Resources: []string{"signers"}, ResourceNames: signers, Verbs: []string{"approve"}},
			{APIGroups: []string{"cert-manager.io"}, Resources: []string{"certificaterequests", "certificaterequests/status"}, Verbs: []string{"*"}},
		}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
		})
	as, err := client.New(rig.As(w.Admin, name), client.Options{Scheme: w.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return approver{w, as}
}

// approves waits until an approval is answered so; empty for yes.
func (a approver) approves(t *testing.T, group, kind, name, want string) {
	t.Helper()
	const pem = "-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n"
	cr := &certmanagerv1.CertificateRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "r-", Namespace: a.Namespace}, Spec: certmanagerv1.CertificateRequestSpec{
		IssuerRef: cmmeta.IssuerReference{Group: group, Kind: kind, Name: name}, Request: []byte(pem),
	}}
	a.Create(t, cr)
	cr.Status.Conditions = []certmanagerv1.CertificateRequestCondition{{
		Type: certmanagerv1.CertificateRequestConditionApproved, Status: cmmeta.ConditionTrue, Reason: "test",
	}}
	rig.Eventually(t, kind+" "+name+": "+want, func(ctx context.Context) string {
		err := a.as.Status().Update(ctx, cr.DeepCopy(), client.DryRunAll)
		switch {
		case want == "" && err == nil, want != "" && err != nil && strings.Contains(err.Error(), want):
			return ""
		case err == nil:
			return "it is approved"
		default:
			return err.Error()
		}
	})
}

// TestKindsAreDiscovered: a kind that was there before the controller, and kinds made while it runs, count with the
// plural and the scope that they have; one that is deleted, or never was, does not exist.
func TestKindsAreDiscovered(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	group := w.Namespace + ".example.com"
	create := func(crd *apiextensionsv1.CustomResourceDefinition) client.Client {
		t.Helper()
		return createDefinition(t, w, crd)
	}
	old := definition(group, "Old", "oldies", apiextensionsv1.NamespaceScoped)
	admin := create(old)
	cfg := w.Config()
	cfg.AutoApprove, cfg.KeepKinds = false, true
	w.Run(t, cfg)
	a := newApprover(t, w, "oldies."+group+"/"+w.Namespace+".x", "oxen."+group+"/x", "mice."+group+"/*", "geese."+group+"/x", "kings."+group+"/*",
		"laughing-hyenas."+group+"/x")
	denied, missing := "does not have permissions to set approved/denied conditions for issuer {x ", "referenced signer resource does not exist: {x "
	a.approves(t, group, "Old", "x", "")
	a.approves(t, group, "Ox", "x", missing+"Ox "+group+"}")

	create(definition(group, "Ox", "oxen", apiextensionsv1.ClusterScoped))
	create(definition(group, "Mouse", "mice", apiextensionsv1.NamespaceScoped))
	create(definition(group, "Goose", "geese", apiextensionsv1.NamespaceScoped))
	create(definition(group, "Cow", "kine", apiextensionsv1.ClusterScoped))
	create(definition(group, "Hyena", "laughing-hyenas", apiextensionsv1.ClusterScoped))
	a.approves(t, group, "Ox", "x", "")
	a.approves(t, group, "Mouse", "any", "")
	a.approves(t, group, "Hyena", "x", "")
	a.approves(t, group, "Goose", "x", denied+"Goose "+group+"}") // the right is for one that is cluster-scoped
	a.approves(t, group, "Cow", "x", denied+"Cow "+group+"}")
	a.approves(t, group, "King", "x", missing+"King "+group+"}")

	if err := admin.Delete(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	a.approves(t, group, "Old", "x", missing+"Old "+group+"}")
}

// TestApproverMeetsNewKind: the built-in approver approves a request that has come before its kind is in the table. It
// is not parallel: the table of a cluster is kept by one controller.
func TestApproverMeetsNewKind(t *testing.T) {
	w := rig.NewWorld(t)
	cfg := w.Config()
	cfg.KeepKinds = true
	w.Run(t, cfg)
	group := w.Namespace + ".example.com"
	name := "approver-" + w.Namespace
	w.Create(t,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"cert-manager.io"}, Resources: []string{"signers"}, ResourceNames: []string{"oxen." + group + "/*"}, Verbs: []string{"approve"}},
		}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: rig.Controller}},
		})
	cr := &certmanagerv1.CertificateRequest{ObjectMeta: metav1.ObjectMeta{Name: "early"}, Spec: certmanagerv1.CertificateRequestSpec{
		IssuerRef: cmmeta.IssuerReference{Group: group, Kind: "Ox", Name: "x"},
		Request:   []byte("-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n"),
	}}
	w.Create(t, cr)
	rig.Eventually(t, "the API server refuses", func(ctx context.Context) string {
		events, said := &corev1.EventList{}, ""
		if err := w.Client.List(ctx, events, client.InNamespace(w.Namespace)); err != nil {
			return err.Error()
		}
		for _, e := range events.Items {
			if said += e.Reason + " "; e.Reason == "ApprovalForbidden" {
				return ""
			}
		}
		return said
	})
	createDefinition(t, w, definition(group, "Ox", "oxen", apiextensionsv1.ClusterScoped))
	rig.Eventually(t, "the request is approved", func(ctx context.Context) string {
		if err := w.Get(ctx, "early", cr); err != nil {
			return err.Error()
		}
		for _, c := range cr.Status.Conditions {
			if c.Type == certmanagerv1.CertificateRequestConditionApproved {
				return ""
			}
		}
		return "it is not"
	})
}

// TestTableOfACluster is about the table on an API server where nobody else keeps it. The cases run one after the
// other, each with a group of its own.
func TestTableOfACluster(t *testing.T) {
	t.Parallel()
	rc := rig.OwnCluster(t)
	t.Run("filled by an installation", func(t *testing.T) { installFillsTheTable(t, rig.NewWorldOn(t, rc)) })
	t.Run("comes back", func(t *testing.T) { tableComesBack(t, rig.NewWorldOn(t, rc)) })
	t.Run("starts again", func(t *testing.T) { startWritesNothing(t, rig.NewWorldOn(t, rc)) })
	t.Run("entry of another", func(t *testing.T) { entryOfAnotherStays(t, rig.NewWorldOn(t, rc)) })
}

// installFillsTheTable: what is served at the installation counts without a controller.
func installFillsTheTable(t *testing.T, w *rig.World) {
	t.Helper()
	const group = "installed.example.com"
	createDefinition(t, w, definition(group, "Ox", "oxen", apiextensionsv1.ClusterScoped))
	a := newApprover(t, w, "oxen."+group+"/x")
	a.approves(t, group, "Ox", "x", "referenced signer resource does not exist: {x Ox")
	said := ""
	if err := install.Install(t.Context(), w.Admin, func(what string) { said += what + "\n" }); err != nil {
		t.Fatal(err)
	}
	if before, _, found := strings.Cut(said, "applied ConfigMap "+api.ExternalIssuersName); !found || strings.Contains(before, "AdmissionPolicy") {
		t.Errorf("the policies, which refuse without the table, are there before the table:\n%s", said)
	}
	a.approves(t, group, "Ox", "x", "")
	a.approves(t, group, "Cow", "x", "referenced signer resource does not exist: {x Cow")
}

// tableComesBack: the table is there again when somebody has deleted it, and still belongs to the release of Helm
// that it belonged to: helm upgrade would refuse it otherwise.
func tableComesBack(t *testing.T, w *rig.World) {
	t.Helper()
	cfg := w.Config()
	cfg.KeepKinds = true
	table := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: api.ExternalIssuersNamespace, Name: api.ExternalIssuersName}}
	marked := acv1.ConfigMap(table.Name, table.Namespace).WithLabels(map[string]string{"app.kubernetes.io/managed-by": "Helm"}).
		WithAnnotations(map[string]string{"meta.helm.sh/release-name": "mine"})
	if err := w.Client.Apply(t.Context(), marked, client.FieldOwner("helm")); err != nil {
		t.Fatal(err)
	}
	w.Run(t, cfg)
	createDefinition(t, w, definition("back.example.com", "Ox", "oxen", apiextensionsv1.ClusterScoped))
	there := func(what string) {
		t.Helper()
		rig.Eventually(t, what, func(ctx context.Context) string {
			if err := w.Client.Get(ctx, client.ObjectKeyFromObject(table), table); err != nil || table.Data["Ox.back.example.com"] == "" {
				return fmt.Sprint(err, table.Data)
			}
			return ""
		})
	}
	there("the table is made")
	uid := table.UID
	if err := w.Client.Delete(t.Context(), table); err != nil {
		t.Fatal(err)
	}
	there("the table is made again")
	if table.UID == uid {
		t.Error("it was not deleted")
	}
	if table.Labels["app.kubernetes.io/managed-by"] != "Helm" || table.Annotations["meta.helm.sh/release-name"] != "mine" {
		t.Errorf("it belongs to nobody: %v, %v", table.Labels, table.Annotations)
	}
}

// startWritesNothing: a Keeper that starts on a table which is as it should be writes nothing, and reads no definition
// that is in the table, or that is Kubernetes' or ours. It still notes a definition that comes, and still knows whose
// the table is.
func startWritesNothing(t *testing.T, w *rig.World) {
	t.Helper()
	const group = "again.example.com"
	clients, err := kubernetes.NewForConfig(w.Admin)
	if err != nil {
		t.Fatal(err)
	}
	table := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: api.ExternalIssuersNamespace, Name: api.ExternalIssuersName}}
	settled := func(what string) {
		t.Helper()
		rig.Eventually(t, "the table has what is served, "+what, func(ctx context.Context) string {
			served, away, err := externalissuers.Discover(clients.Discovery())
			if err == nil {
				err = w.Client.Get(ctx, client.ObjectKeyFromObject(table), table)
			}
			if err != nil || len(away) > 0 || served[what+"."+group] == "" || !maps.Equal(served, table.Data) {
				return fmt.Sprint(err, away, served, table.Data)
			}
			return ""
		})
	}
	for i, kind := range []string{"Ox", "Cow"} {
		sent := &sent{discovered: make(chan struct{})}
		stop := keep(t, w, sent)
		<-sent.discovered // so that a write of the start is not one for the definition
		createDefinition(t, w, definition(group, kind, strings.ToLower(kind)+"s", apiextensionsv1.ClusterScoped))
		settled(kind)
		stop()
		if writes, reads := sent.writes.Load(), sent.reads.Load(); i > 0 && (writes != 1 || reads != 1) {
			t.Errorf("one definition has come since the start: %d writes, %d definitions read", writes, reads)
		}
	}
	if err := w.Client.Apply(t.Context(), acv1.ConfigMap(table.Name, table.Namespace).WithLabels(map[string]string{"of": "somebody"}), client.FieldOwner("somebody")); err != nil {
		t.Fatal(err)
	}
	last := &sent{discovered: make(chan struct{})}
	stop := keep(t, w, last)
	<-last.discovered
	if err := w.Client.Delete(t.Context(), table); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the table is there again", func(ctx context.Context) string {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(table), table); err != nil || table.Labels["of"] != "somebody" {
			return fmt.Sprint(err, table.Labels)
		}
		return ""
	})
	stop()
}

// sent counts the requests of a Keeper: those that write, and those that read one definition. Once the Keeper knows
// what is served, discovered is closed.
type sent struct {
	writes, reads atomic.Int64
	discovered    chan struct{}
	once          sync.Once
}

// keep runs a Keeper until stop.
func keep(t *testing.T, w *rig.World, sent *sent) (stop func()) {
	t.Helper()
	rc := rest.CopyConfig(w.Admin)
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			switch {
			case req.URL.Path == "/apis":
				defer sent.once.Do(func() { close(sent.discovered) })
			case req.Method != http.MethodGet:
				sent.writes.Add(1)
			case strings.Contains(req.URL.Path, "/customresourcedefinitions/"):
				sent.reads.Add(1)
			}
			return next.RoundTrip(req)
		})
	})
	reads, err := rest.HTTPClientFor(rc)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := client.New(rc, client.Options{HTTPClient: reads})
	if err != nil {
		t.Fatal(err)
	}
	k, err := externalissuers.New(externalissuers.Options{
		Config: rc, HTTP: reads, Reader: reader, Namespace: api.ExternalIssuersNamespace, Failed: toolscache.DefaultWatchErrorHandler, Log: logr.Discard(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- k.Start(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// entryOfAnotherStays: an entry that somebody else has set, as a tool that applies what is in a repository, is
// never written by the controller or by an installation, whatever the definition says; all other entries are kept.
func entryOfAnotherStays(t *testing.T, w *rig.World) {
	t.Helper()
	const group, kept, theirs = "theirs.example.com", "Ox.theirs.example.com", "Cow.theirs.example.com"
	fromRepository := func() error {
		table := acv1.ConfigMap(api.ExternalIssuersName, api.ExternalIssuersNamespace).WithData(map[string]string{theirs: "cattle Namespaced"})
		return w.Client.Apply(t.Context(), table, client.FieldOwner("repository"))
	}
	if err := fromRepository(); err != nil {
		t.Fatal(err)
	}
	cfg := w.Config()
	cfg.KeepKinds = true
	w.Run(t, cfg)
	createDefinition(t, w, definition(group, "Cow", "cattle", apiextensionsv1.ClusterScoped))
	createDefinition(t, w, definition(group, "Ox", "oxen", apiextensionsv1.ClusterScoped))
	found := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: api.ExternalIssuersNamespace, Name: api.ExternalIssuersName}}
	rig.Eventually(t, "the controller has written the other entry", func(ctx context.Context) string {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(found), found); err != nil || found.Data[kept] == "" {
			return fmt.Sprint(err, found.Data)
		}
		return ""
	})
	if err := install.Install(t.Context(), w.Admin, func(string) {}); err != nil {
		t.Fatal(err)
	}
	if err := fromRepository(); err != nil {
		t.Errorf("the repository is in the way of the controller: %v", err)
	}
	if err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(found), found); err != nil || found.Data[kept] != "oxen Cluster" || found.Data[theirs] != "cattle Namespaced" {
		t.Errorf("%v, %v", found.Data, err)
	}
}
