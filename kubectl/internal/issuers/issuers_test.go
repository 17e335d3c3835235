package issuers

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"chancery.dev/api"
	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/clientside/explain"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/rig"
	"chancery.dev/kubectl/internal/plugin"
)

// objects are a ClusterIssuer of an ACME server with two Certificates and four Challenges, and an Issuer that lacks its
// Secret.
func objects(now time.Time) []metav1.Object {
	ready := certmanagerv1.IssuerCondition{Type: certmanagerv1.IssuerConditionReady, Status: cmmeta.ConditionTrue, Reason: certmanagerv1.IssuerReasonIsReady}
	acme := &certmanagerv1.ClusterIssuer{ObjectMeta: metav1.ObjectMeta{Name: "le", UID: "le"}}
	acme.Spec.ACME = &acmev1.ACMEIssuer{Server: "https://acme.example/directory"}
	acme.Status.ACME = &acmev1.ACMEIssuerStatus{URI: "https://acme.example/account/1"}
	acme.Status.Conditions = []certmanagerv1.IssuerCondition{ready}
	ca := &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "le", Namespace: "shop", UID: "ca"}}
	ca.Spec.CA = &certmanagerv1.CAIssuer{SecretName: "root"}
	ready.Status, ready.Reason, ready.Message = cmmeta.ConditionFalse, certmanagerv1.IssuerReasonErrGetKeyPair, "no Secret root"
	ca.Status.Conditions = []certmanagerv1.IssuerCondition{ready}
	out := []metav1.Object{acme, ca}
	ref := cmmeta.IssuerReference{Name: "le", Kind: cmmeta.ClusterIssuerKind}
	for name, days := range map[string]int{"late": 9, "soon": 3} {
		crt := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID(name)}}
		crt.Spec.IssuerRef = ref
		crt.Status.RenewalTime = &metav1.Time{Time: now.Add(time.Duration(days)*24*time.Hour + time.Hour)}
		out = append(out, crt)
	}
	for name, c := range map[string]acmev1.ChallengeStatus{
		"a": {Processing: true, State: acmev1.Pending}, "b": {State: acmev1.Pending}, "c": {Presented: true, State: acmev1.Pending}, "d": {State: acmev1.Valid},
	} {
		out = append(out, &acmev1.Challenge{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}, Spec: acmev1.ChallengeSpec{IssuerRef: ref}, Status: c})
	}
	external := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: "external", Namespace: "shop"}}
	external.Spec.IssuerRef = cmmeta.IssuerReference{Name: "le", Kind: cmmeta.ClusterIssuerKind, Group: "another.example"}
	return append(out, external)
}

// TestRows: what uses an issuer is counted with it, one of the same name and another kind or group is another one, and
// a park is shown with its cause.
func TestRows(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	rows := explain.IssuerRows(objects(now), now)
	park(rows, []engine.Wait{
		{Kind: "ClusterIssuer", Name: "le", For: engine.For{What: engine.WaitTime}, Until: now},
		{Kind: "ClusterIssuer", Name: "le", For: engine.For{What: engine.WaitPark, Detail: "429 too\nmany"}, Until: now.Add(time.Hour)},
	})
	var text, narrow, wide bytes.Buffer
	if err := commas(&text, rows); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		"ClusterIssuer,,le,ACME,https://acme.example/directory,ready,2026-01-02T04:04:05Z,1,1,1,2,2,2026-01-05T04:04:05Z,shop/soon," +
			"https://acme.example/account/1,,the CA wants no requests of this account: 429 too many,2026-01-02T04:04:05Z,",
		"Issuer,shop,le,CA,Secret root,not ready,,0,0,0,0,0,,,,,Issuer shop/le is not ready: no Secret root,",
	} {
		if got := strings.Split(text.String(), "\n")[i+1]; !strings.HasPrefix(got, want) {
			t.Errorf("csv:\n%s\nwant %s", got, want)
		}
	}
	if err := table(&narrow, rows, false, now); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"(cluster)", "2 (2 not ready)", "2026-01-05 (in 3d1h)", "2026-01-02T04:04:05Z", "Secret root"} {
		if !strings.Contains(narrow.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, &narrow)
		}
	}
	if err := table(&wide, rows, true, now); err != nil || !strings.Contains(wide.String(), "account/1") || !strings.Contains(wide.String(), "tls.crt") {
		t.Errorf("error %v, wide:\n%s", err, &wide)
	}
}

// TestCAExpires: a CA that expires is shown with its end. Close to the end, and after it, that is the cause; a CA that
// is renewed in time has none.
func TestCAExpires(t *testing.T) {
	t.Parallel()
	now, day := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), 24*time.Hour
	for name, c := range map[string]struct {
		left, life time.Duration
		cause      string
	}{
		"a year":                   {200 * day, 365 * day, ""},
		"a year, at its end":       {29 * day, 365 * day, "expires on 2026-01-31T03:04:05Z"},
		"90 days, renewed at 60":   {30*day - time.Hour, 90 * day, ""},
		"90 days, and not renewed": {22 * day, 90 * day, "expires on"},
		"expired":                  {-time.Hour, 365 * day, "expired on"},
	} {
		issuer := &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "ca", Namespace: "shop"}}
		issuer.Spec.CA = &certmanagerv1.CAIssuer{SecretName: "root"}
		issuer.Status.Conditions = []certmanagerv1.IssuerCondition{{Type: certmanagerv1.IssuerConditionReady, Status: cmmeta.ConditionTrue}}
		from, until := metav1.NewTime(now.Add(c.left-c.life)), metav1.NewTime(now.Add(c.left))
		issuer.Status.CA = &certmanagerv1.CAIssuerStatus{NotBefore: &from, NotAfter: &until}
		rows := explain.IssuerRows([]metav1.Object{issuer}, now)
		var text bytes.Buffer
		if err := table(&text, rows, true, now); err != nil {
			t.Fatal(err)
		}
		if (rows[0].Cause == "") != (c.cause == "") || !strings.Contains(rows[0].Cause, c.cause) {
			t.Errorf("%s: the cause is %q, want %q", name, rows[0].Cause, c.cause)
		}
		if !strings.Contains(text.String(), explain.Away(&until, now)) || c.cause != "" && !strings.Contains(text.String(), "kubectl chancery status secret/root") {
			t.Errorf("%s:\n%s", name, &text)
		}
	}
}

// TestUsedElsewhere: of one namespace, Issuers are shown with what uses them there, and ClusterIssuers with what uses
// them in all namespaces.
func TestUsedElsewhere(t *testing.T) {
	t.Parallel()
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	all := []client.Object{
		&certmanagerv1.ClusterIssuer{ObjectMeta: metav1.ObjectMeta{Name: "ca"}},
		&certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "ca"}},
		&certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Namespace: "mail", Name: "ca"}},
	}
	for i, where := range []struct{ namespace, kind string }{
		{"shop", "ClusterIssuer"}, {"mail", "ClusterIssuer"}, {"mail", "ClusterIssuer"}, {"shop", "Issuer"}, {"mail", "Issuer"},
	} {
		crt := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Namespace: where.namespace, Name: fmt.Sprint("web-", i)}}
		crt.Spec.IssuerRef = cmmeta.IssuerReference{Kind: where.kind, Name: "ca"}
		all = append(all, crt)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(all...).Build()
	rows, notes, err := (&options{}).read(t.Context(), c, "shop")
	var got []string
	for _, r := range rows {
		got = append(got, fmt.Sprint(r.Kind, " ", r.Namespace, " ", r.Certificates))
	}
	if want := []string{"ClusterIssuer  3", "Issuer shop 1"}; err != nil || len(notes) > 0 || !slices.Equal(got, want) {
		t.Errorf("%q, want %q; notes %q, error %v", got, want, notes, err)
	}
}

// TestIssuers: the role view of a namespace shows the Issuers there, and says what is left out.
func TestIssuers(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	acme := &acmev1.ACMEIssuer{Server: "https://127.0.0.1:1/directory", PrivateKey: cmmeta.SecretKeySelector{Name: "key"}}
	issuer := &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "acme"}, Spec: certmanagerv1.IssuerSpec{ACME: acme}}
	w.Create(t, issuer, &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "self"}, Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}},
		&certmanagerv1.ClusterIssuer{ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName("wide")}, Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "view"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "viewer"}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		})
	issuer.Status.ACME = &acmev1.ACMEIssuerStatus{URI: "https://127.0.0.1:1/account"}
	if err := w.Client.Status().Update(t.Context(), issuer); err != nil {
		t.Fatal(err)
	}
	path := rig.Kubeconfig(t, w.Admin, w.Namespace)
	run := func(ctx context.Context, args ...string) string {
		var out bytes.Buffer
		cmd := New(plugin.Streams{Out: &out, ErrOut: &out})
		cmd.SetArgs(append([]string{"--kubeconfig", path}, args...))
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		if err := cmd.ExecuteContext(ctx); err != nil {
			return err.Error()
		}
		return out.String()
	}
	rig.Eventually(t, "the role view is there", func(ctx context.Context) string { // the API server puts it together
		said := run(ctx, "--as", "viewer")
		for _, want := range []string{"acme", "self", "ClusterIssuers are left out: you need the right", "LIMITED UNTIL is left out", "list pods"} {
			if !strings.Contains(said, want) {
				return "it lacks " + want + ":\n" + said
			}
		}
		return ""
	})
	if said := run(t.Context(), "-o", "json", "-A", "--controller-namespace", w.Namespace); !strings.Contains(said, w.ClusterName("wide")) {
		t.Errorf("as an administrator:\n%s", said)
	}
	if said := run(t.Context(), "-o", "name", "--sort-by", ".type"); !strings.Contains("\n"+said, "\nissuer/acme\n") {
		t.Errorf("-o name:\n%s", said)
	}
	for args, want := range map[string]string{"-o xml": "--output is wide", "--sort-by age": "--sort-by: no row has the field"} {
		if said := run(t.Context(), strings.Fields(args)...); !strings.Contains(said, want) {
			t.Errorf("%s: %s", args, said)
		}
	}
	if said := run(t.Context(), "--as", "nobody"); !strings.Contains(said, "role view") {
		t.Errorf("without rights:\n%s", said)
	}
}
