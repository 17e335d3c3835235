package app_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/controller/trustbundles"
	"chancery.dev/internal/machine/trustbundle"
	"chancery.dev/internal/rig"
)

// bundleWorld is a world with a CA, whose issuers may have ClusterTrustBundles.
type bundleWorld struct {
	*rig.World

	root string
	stop func()
}

// run starts the controllers, which may write the bundles of some issuers.
func (w *bundleWorld) run(t *testing.T, of trustbundles.Issuers) {
	t.Helper()
	cfg := w.Config()
	cfg.TrustBundles = of
	w.stop = w.Run(t, cfg)
}

func newBundleWorld(t *testing.T, of trustbundles.Issuers) *bundleWorld {
	t.Helper()
	w := &bundleWorld{World: rig.NewWorld(t)}
	w.Allow(t, "bundles", rig.ToController(), bundleRights()...)
	w.run(t, of)
	smallCA(t, w.World)
	certificateReady(t, w.World, "web")
	w.Create(t, w.issuer())
	secret := &corev1.Secret{}
	if err := w.Get(t.Context(), "root", secret); err != nil {
		t.Fatal(err)
	}
	w.root = string(secret.Data[corev1.TLSCertKey])
	return w
}

func bundleRights() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"clustertrustbundles"}, Verbs: []string{"list", "watch", "create", "patch", "delete"}},
		{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"signers"}, Verbs: []string{"attest"}, ResourceNames: []string{
			"cert-manager.io/*", "clusterissuers.cert-manager.io/*", "issuers.cert-manager.io/*",
		}},
	}
}

// issuer is a ClusterIssuer that asks for bundles.
func (w *bundleWorld) issuer() *certmanagerv1.ClusterIssuer {
	return &certmanagerv1.ClusterIssuer{
		ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName("pods"), Annotations: map[string]string{certmanagerv1.TrustBundleAnnotation: "true"}},
		Spec:       certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "root"}},
	}
}

// awaits waits until the bundles of an issuer have this text; none if it is empty.
func (w *bundleWorld) awaits(t *testing.T, issuer metav1.Object, text string) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("the bundles of %s are %.30q…", issuer.GetName(), text), func(ctx context.Context) string {
		for _, name := range trustbundle.Names(issuer) {
			b := &certificatesv1.ClusterTrustBundle{}
			err := w.Client.Get(ctx, client.ObjectKey{Name: name}, b)
			if client.IgnoreNotFound(err) != nil || apierrors.IsNotFound(err) != (text == "") || b.Spec.TrustBundle != text {
				return fmt.Sprintf("%s: %v %q", name, err, b.Spec.TrustBundle)
			}
		}
		return ""
	})
}

func (w *bundleWorld) awaitEvent(t *testing.T, issuer client.Object, says ...string) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("an event says %q", says), func(ctx context.Context) string {
		events := &corev1.EventList{}
		if err := w.Client.List(ctx, events, client.MatchingFields{"involvedObject.uid": string(issuer.GetUID())}); err != nil {
			return err.Error()
		}
		var all []string
		for _, e := range events.Items {
			all = append(all, e.Reason+" "+e.Message)
		}
		said := func(e string) bool {
			return !slices.ContainsFunc(says, func(word string) bool { return !strings.Contains(e, word) })
		}
		if !slices.ContainsFunc(all, said) {
			return strings.Join(all, "; ")
		}
		return ""
	})
}

// changed changes an object as an administrator does.
func changed[T client.Object](t *testing.T, w *bundleWorld, o T, change func(T)) {
	t.Helper()
	if err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
	before := o.DeepCopyObject().(client.Object)
	change(o)
	if err := w.Client.Patch(t.Context(), o, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// TestTrustBundles: a CA issuer that asks for it has its root in a ClusterTrustBundle for each of its signer names.
// They are put right when somebody changes or deletes them, stay when the CA is gone for a while, and go with the
// annotation and with the issuer, also if that went while no controller was there.
func TestTrustBundles(t *testing.T) {
	t.Parallel()
	w := newBundleWorld(t, trustbundles.ClusterIssuers)
	issuer := w.issuer()
	w.awaits(t, issuer, w.root)
	b := &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: trustbundle.Names(issuer)[0]}}
	changed(t, w, b, func(b *certificatesv1.ClusterTrustBundle) { b.Spec.TrustBundle = w.root + "\n# mine\n" })
	w.awaits(t, issuer, w.root)
	if err := w.Client.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	w.awaits(t, issuer, w.root)

	changed(t, w, issuer, func(i *certmanagerv1.ClusterIssuer) { i.Spec.CA.SecretName = "away" })
	w.awaitEvent(t, issuer, "TrustBundleNotWritten", "Secret "+w.Namespace+"/away does not exist")
	w.awaits(t, issuer, w.root)
	changed(t, w, issuer, func(i *certmanagerv1.ClusterIssuer) { i.Annotations[certmanagerv1.TrustBundleAnnotation] = "false" })
	w.awaits(t, issuer, "")
	changed(t, w, issuer, func(i *certmanagerv1.ClusterIssuer) {
		i.Annotations[certmanagerv1.TrustBundleAnnotation], i.Spec.CA.SecretName = "true", "root"
	})
	w.awaits(t, issuer, w.root)
	w.stop()
	if err := w.Client.Delete(t.Context(), issuer); err != nil {
		t.Fatal(err)
	}
	w.run(t, trustbundles.ClusterIssuers)
	w.awaits(t, issuer, "")
	w.Create(t, w.issuer())
	w.awaits(t, issuer, w.root)
	if err := w.Client.Delete(t.Context(), w.issuer()); err != nil {
		t.Fatal(err)
	}
	w.awaits(t, issuer, "")
}

// TestTrustBundlesOfIssuers: Issuers have bundles only if the administrator says so, and lose them if he says so no
// more.
func TestTrustBundlesOfIssuers(t *testing.T) {
	t.Parallel()
	w := newBundleWorld(t, trustbundles.ClusterIssuers)
	issuer := &certmanagerv1.Issuer{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "pods", Annotations: map[string]string{certmanagerv1.TrustBundleAnnotation: "true"}},
		Spec:       certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "root"}},
	}
	w.Create(t, issuer)
	w.awaits(t, w.issuer(), w.root)
	w.awaitEvent(t, issuer, "TrustBundleNotWritten", "--trust-bundles=all")
	w.awaits(t, issuer, "")
	w.stop()
	w.run(t, trustbundles.All)
	w.awaits(t, issuer, w.root)
	w.stop()
	w.run(t, trustbundles.ClusterIssuers)
	w.awaits(t, issuer, "")
}

// TestTrustBundleOfSomebodyElse: a bundle that has the name of ours, and was made by somebody else, stays as it is, and
// an event says so.
func TestTrustBundleOfSomebodyElse(t *testing.T) {
	t.Parallel()
	w := newBundleWorld(t, trustbundles.None)
	issuer := w.issuer()
	name := trustbundle.Names(issuer)[1]
	theirs := &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: name}}
	theirs.Spec.SignerName, theirs.Spec.TrustBundle = "clusterissuers.cert-manager.io/"+issuer.Name, w.root+"\n"
	w.Create(t, theirs)
	w.stop()
	w.run(t, trustbundles.ClusterIssuers)
	if err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(issuer), issuer); err != nil {
		t.Fatal(err)
	}
	w.awaitEvent(t, issuer, "TrustBundleTaken", name)
	if err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs); err != nil || theirs.Spec.TrustBundle != w.root+"\n" {
		t.Errorf("it is %q: %v", theirs.Spec.TrustBundle, err)
	}
	changed(t, w, theirs, func(b *certificatesv1.ClusterTrustBundle) {
		b.Labels = map[string]string{certmanagerv1.TrustBundleLabel: "true"}
	})
	w.awaits(t, issuer, w.root)
}

// TestTrustBundlesWithoutRights: an event of the issuer says which command gives the rights.
func TestTrustBundlesWithoutRights(t *testing.T) {
	t.Parallel()
	w := &bundleWorld{World: rig.NewWorld(t)}
	w.Allow(t, "bundles", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "user-" + w.Namespace}, bundleRights()[:1]...)
	w.Allow(t, "all", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "user-" + w.Namespace}, controllerRules(t, w.World)...)
	cfg := w.Config()
	cfg.TrustBundles = trustbundles.ClusterIssuers
	w.RunAs(t, cfg, rig.As(w.Admin, "user-"+w.Namespace))
	smallCA(t, w.World)
	issuer := w.issuer()
	w.Create(t, issuer)
	w.awaitEvent(t, issuer, "TrustBundleNotWritten", "attest", "chancery install --trust-bundles")
}

// controllerRules are those of the role of the controller.
func controllerRules(t *testing.T, w *rig.World) []rbacv1.PolicyRule {
	t.Helper()
	role := &rbacv1.ClusterRole{}
	if err := w.Client.Get(t.Context(), client.ObjectKey{Name: "chancery-controller"}, role); err != nil {
		t.Fatal(err)
	}
	return role.Rules
}
