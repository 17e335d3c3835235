package certificate

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/machine/facts"
)

// takes makes another manager own what it writes to the Secret, as an update does: what
// it changes is ours no more.
func (w *world) takes(manager string, change func(*corev1.Secret)) {
	w.t.Helper()
	before := w.secret.DeepCopy()
	change(w.secret)
	theirs := &corev1.Secret{Data: map[string][]byte{}}
	theirs.Labels, theirs.Annotations = changed(before.Labels, w.secret.Labels), changed(before.Annotations, w.secret.Annotations)
	for k, v := range w.secret.Data {
		if !bytes.Equal(before.Data[k], v) {
			theirs.Data[k] = v
		}
	}
	for i, entry := range w.secret.ManagedFields {
		if entry.Manager != facts.FieldManager {
			continue
		}
		ours := &corev1.Secret{Data: map[string][]byte{}}
		ours.Labels = except(before.Labels, theirs.Labels, fieldsOf(w.t, entry)["f:metadata"]["f:labels"], w.secret.Labels)
		ours.Annotations = except(before.Annotations, theirs.Annotations, fieldsOf(w.t, entry)["f:metadata"]["f:annotations"], w.secret.Annotations)
		ours.Data = except(before.Data, theirs.Data, fieldsOf(w.t, entry)["f:data"], w.secret.Data)
		ours.OwnerReferences = before.OwnerReferences
		w.secret.ManagedFields[i] = managed(w.t, facts.FieldManager, ours)
	}
	entry := managed(w.t, manager, theirs)
	entry.Operation, entry.Time = metav1.ManagedFieldsOperationUpdate, &metav1.Time{Time: w.now}
	w.secret.ManagedFields = append(w.secret.ManagedFields, entry)
	w.versions++
	w.secret.ResourceVersion = "taken-" + w.now.String() + strings.Repeat("x", w.versions)
}

func changed(before, after map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range after {
		if was, ok := before[k]; !ok || was != v {
			out[k] = v
		}
	}
	return out
}

// except returns what is ours still: what we had, that is there, and was not taken.
func except[V any](before, taken map[string]V, ours fieldSet, now map[string]V) map[string]V {
	out := map[string]V{}
	for k, v := range before {
		_, gone := taken[k]
		if _, there := now[k]; there && !gone && ours["f:"+k] != nil {
			out[k] = v
		}
	}
	return out
}

func formats(kinds ...certmanagerv1.CertificateOutputFormatType) func(*certmanagerv1.CertificateSpec) {
	return func(s *certmanagerv1.CertificateSpec) {
		s.AdditionalOutputFormats = nil
		for _, k := range kinds {
			s.AdditionalOutputFormats = append(s.AdditionalOutputFormats, certmanagerv1.CertificateAdditionalOutputFormat{Type: k})
		}
	}
}

func template(labels, annotations map[string]string) func(*certmanagerv1.CertificateSpec) {
	return func(s *certmanagerv1.CertificateSpec) {
		s.SecretTemplate = &certmanagerv1.CertificateSecretTemplate{Labels: labels, Annotations: annotations}
	}
}

func keystores(s *certmanagerv1.CertificateSpec) {
	s.Keystores = &certmanagerv1.CertificateKeystores{
		JKS:    &certmanagerv1.JKSKeystore{Create: true, Password: new("jks-password")},
		PKCS12: &certmanagerv1.PKCS12Keystore{Create: true, Password: new("p12-password")},
	}
}

// rich has a Certificate in order that wants everything there is.
func rich(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.amend(template(map[string]string{"team": "a"}, map[string]string{"note": "b", certmanagerv1.AllowDirectInjectionAnnotation: "true"}))
	w.amend(formats("DER", "CombinedPEM"))
	w.amend(keystores)
	w.passwords = facts.Passwords{JKS: "jks-password", PKCS12: "p12-password"}
	w.ownerReference = true
	w.settle()
	w.signWithCA(w.next())
	w.settle()
	if w.stores != 1 || w.repairs != 0 {
		t.Fatalf("stored %d times, repaired %d times", w.stores, w.repairs)
	}
	w.statusWrites, w.requestsMade, w.stores = 0, 0, 0
	w.now = w.now.Add(time.Hour)
	return w
}

// TestDriftIsRepairedOnce lets somebody, or the spec, change what a Secret is beside key
// and certificate: one write puts it right, nothing is issued, and whatever is not ours
// stays (spec §2.6).
func TestDriftIsRepairedOnce(t *testing.T) {
	for name, drift := range map[string]func(*world){
		"the label is taken": func(w *world) {
			w.takes("kubectl", func(s *corev1.Secret) { s.Labels[certmanagerv1.ManagedSecretLabel] = "no" })
		},
		"the label is removed": func(w *world) {
			w.takes("kubectl", func(s *corev1.Secret) { delete(s.Labels, certmanagerv1.ManagedSecretLabel) })
		},
		"a detail is changed": func(w *world) {
			w.takes("kubectl", func(s *corev1.Secret) { s.Annotations[certmanagerv1.AltNamesAnnotation] = "x" })
		},
		"a detail is removed": func(w *world) {
			w.takes("kubectl", func(s *corev1.Secret) { delete(s.Annotations, certmanagerv1.CommonNameAnnotation) })
		},
		"a template value is":      func(w *world) { w.takes("kubectl", func(s *corev1.Secret) { s.Annotations["note"] = "x" }) },
		"a template label is gone": func(w *world) { w.takes("kubectl", func(s *corev1.Secret) { delete(s.Labels, "team") }) },
		"the template grows":       spec(template(map[string]string{"team": "a"}, map[string]string{"note": "b", "more": "c", certmanagerv1.AllowDirectInjectionAnnotation: "true"})),
		"the template shrinks":     spec(template(nil, map[string]string{"note": "b"})),
		"the template goes":        spec(func(s *certmanagerv1.CertificateSpec) { s.SecretTemplate = nil }),
		"a format is changed":      func(w *world) { w.takes("kubectl", func(s *corev1.Secret) { s.Data["key.der"] = []byte("x") }) },
		"a format is removed":      func(w *world) { w.takes("kubectl", func(s *corev1.Secret) { delete(s.Data, "tls-combined.pem") }) },
		"a format is not wanted":   spec(formats("DER")),
		"no format is wanted":      spec(formats()),
		"a keystore is removed":    func(w *world) { w.takes("kubectl", func(s *corev1.Secret) { delete(s.Data, "keystore.jks") }) },
		"a truststore is removed":  func(w *world) { w.takes("kubectl", func(s *corev1.Secret) { delete(s.Data, "truststore.p12") }) },
		"a keystore is changed":    func(w *world) { w.takes("kubectl", func(s *corev1.Secret) { s.Data["keystore.p12"] = []byte("x") }) },
		"keystores are not wanted": spec(func(s *certmanagerv1.CertificateSpec) { s.Keystores = nil }),
		"one keystore is wanted":   spec(func(s *certmanagerv1.CertificateSpec) { s.Keystores.JKS = nil }),
		"another profile": spec(func(s *certmanagerv1.CertificateSpec) {
			s.Keystores.PKCS12.Profile = "Modern2023"
		}),
		"another alias":      spec(func(s *certmanagerv1.CertificateSpec) { s.Keystores.JKS.Alias = new("other") }),
		"another password":   func(w *world) { w.passwords.JKS = "another" },
		"no owner is wanted": func(w *world) { w.ownerReference = false },
	} {
		t.Run(name, func(t *testing.T) {
			w := rich(t)
			w.takes("bystander", func(s *corev1.Secret) {
				s.Labels["theirs"], s.Annotations["theirs"], s.Data["theirs"] = "1", "2", []byte("3")
			})
			if w.settle(); w.repairs != 0 {
				t.Fatal("what somebody else adds is repaired")
			}
			key, chain := bytes.Clone(w.secret.Data["tls.key"]), bytes.Clone(w.secret.Data["tls.crt"])
			drift(w)
			w.settle()
			w.settle()
			if w.repairs != 1 || w.requestsMade != 0 || w.stores != 0 || w.statusWrites > 1 {
				t.Errorf("repaired %d times, %d requests, %d stores, %d writes of the status", w.repairs, w.requestsMade, w.stores, w.statusWrites)
			}
			if !bytes.Equal(key, w.secret.Data["tls.key"]) || !bytes.Equal(chain, w.secret.Data["tls.crt"]) {
				t.Error("key or certificate was changed")
			}
			if w.secret.Labels["theirs"] != "1" || w.secret.Annotations["theirs"] != "2" || string(w.secret.Data["theirs"]) != "3" {
				t.Errorf("what is not ours was changed: %v %v", w.secret.Labels, w.secret.Annotations)
			}
			isAsWanted(t, w)
		})
	}
}

// isAsWanted compares a Secret with what would be stored for its Certificate now.
func isAsWanted(t *testing.T, w *world) {
	t.Helper()
	target := facts.RepairOf(w.crt, w.secret, w.olderRoots)
	target.Passwords, target.OwnerReference = w.passwords, w.ownerReference
	want, err := target.Secret()
	if err != nil {
		t.Fatal(err)
	}
	got := w.secret.DeepCopy()
	delete(got.Labels, "theirs")
	delete(got.Annotations, "theirs")
	delete(got.Data, "theirs")
	if !maps.Equal(got.Labels, want.Labels) || !maps.Equal(got.Annotations, want.Annotations) {
		t.Errorf("labels %v, annotations %v,\nwant %v and %v", got.Labels, got.Annotations, want.Labels, want.Annotations)
	}
	if !maps.EqualFunc(got.Data, want.Data, bytes.Equal) {
		t.Errorf("data %q, want %q", slices.Sorted(maps.Keys(got.Data)), slices.Sorted(maps.Keys(want.Data)))
	}
	if len(got.OwnerReferences) != len(want.OwnerReferences) {
		t.Errorf("owners %v, want %v", got.OwnerReferences, want.OwnerReferences)
	}
}

// What cert-manager has written is taken over without a write: it has no mark of ours,
// and its keystores other bytes than ours would.
func TestForeignKeystoresAreKept(t *testing.T) {
	w := rich(t)
	delete(w.secret.Annotations, facts.KeystoresAnnotation)
	entry := &w.secret.ManagedFields[0]
	fields := fieldsOf(t, *entry)
	delete(fields["f:metadata"]["f:annotations"], "f:"+facts.KeystoresAnnotation)
	for _, key := range []string{"keystore.jks", "keystore.p12", "truststore.jks", "truststore.p12"} {
		w.secret.Data[key] = []byte("made by somebody else")
	}
	w.secret.ResourceVersion = "foreign"
	w.settle()
	if w.repairs+w.stores+w.requestsMade+w.statusWrites != 0 {
		t.Errorf("%d repairs, %d stores, %d requests, %d writes of the status", w.repairs, w.stores, w.requestsMade, w.statusWrites)
	}
}

// A repair that mends nothing is not tried again, and one that is undone again and
// again has a pause.
func TestRepairsAreBounded(t *testing.T) {
	t.Run("in vain", func(t *testing.T) {
		w := rich(t)
		w.takes("kubectl", func(s *corev1.Secret) { delete(s.Labels, "team") })
		w.repaired = w.secret.ResourceVersion
		if w.settle(); w.repairs != 0 {
			t.Errorf("repaired %d times", w.repairs)
		}
	})
	t.Run("undone", func(t *testing.T) {
		w := rich(t)
		for second := range 60 {
			w.takes("rival", func(s *corev1.Secret) { s.Labels["team"] = "rivals" + strings.Repeat("!", second) })
			wake := w.settle()
			if wake.IsZero() || wake.Sub(w.now) > time.Minute && w.secret.Labels["team"] != "a" {
				t.Fatalf("looked at again at %s", wake)
			}
			w.now = w.now.Add(time.Second)
		}
		if w.repairs < 5 || w.repairs > 7 {
			t.Errorf("repaired %d times within a minute", w.repairs)
		}
	})
}

// A Secret that cannot be repaired says so in a condition, once, is tried again now and
// then, and takes it back when it is.
func TestRefusedRepairIsSaid(t *testing.T) {
	w := rich(t)
	w.statusWrites, w.events, w.refuses = 0, nil, "the Secret is immutable"
	w.amend(template(map[string]string{"team": "b"}, nil))
	for range 60 {
		wake := w.settle()
		if wake.IsZero() || wake.Sub(w.now) > refusedPause {
			t.Fatalf("looked at again at %s", wake)
		}
		w.now = w.now.Add(time.Minute)
	}
	c := w.condition(certmanagerv1.CertificateConditionIssuing)
	if c.Status != cmmeta.ConditionFalse || c.Reason != ReasonSecretNotRepaired || !strings.Contains(c.Message, w.refuses) || !strings.Contains(c.Message, `"web-tls"`) {
		t.Errorf("Issuing is %+v", c)
	}
	if w.repairs != 6 || w.statusWrites != 2 || // for the generation, and for what is wrong
		len(w.events) != 1 || w.events[0].Reason != ReasonSecretNotRepaired {
		t.Errorf("tried %d times within an hour, status written %d times, events %v", w.repairs, w.statusWrites, w.events)
	}
	if w.condition(certmanagerv1.CertificateConditionReady).Status != cmmeta.ConditionTrue {
		t.Error("not ready, though the certificate is good")
	}
	w.refuses = ""
	w.now = w.now.Add(refusedPause)
	if w.settle(); w.secret.Labels["team"] != "b" || w.condition(certmanagerv1.CertificateConditionIssuing).Type != "" {
		t.Errorf("labels %v, Issuing %+v", w.secret.Labels, w.condition(certmanagerv1.CertificateConditionIssuing))
	}
}

// A keystore without its password waits for it: nothing is stored without it, nothing
// that is stored is taken away, and it is said once.
func TestKeystorePasswordIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	w.amend(keystores)
	w.passwords.Error = errors.New(`Secret "p" does not exist`)
	w.settle()
	w.signWithCA(w.next())
	for range 3 {
		w.settle()
	}
	c := w.condition(certmanagerv1.CertificateConditionIssuing)
	if w.secret != nil || c.Status != "True" || !strings.Contains(c.Message, `Secret "p" does not exist`) {
		t.Errorf("Issuing is %+v", c)
	}
	if len(w.events) != 1 || w.events[0].Reason != "KeystorePasswordSecretNotFound" || !w.events[0].Warning {
		t.Errorf("events %v", w.events)
	}
	w.passwords = facts.Passwords{JKS: "j", PKCS12: "p"}
	w.settle()
	if w.stores != 1 || len(w.secret.Data["keystore.jks"]) == 0 || len(w.keys) != 0 {
		t.Errorf("stored %d times, %d keys are left", w.stores, len(w.keys))
	}
	before := w.secret.DeepCopy()
	w.passwords = facts.Passwords{Error: errors.New("gone again")}
	w.amend(template(map[string]string{"team": "a"}, nil))
	w.settle()
	if !maps.EqualFunc(before.Data, w.secret.Data, bytes.Equal) || w.condition(certmanagerv1.CertificateConditionReady).Status != "True" {
		t.Error("a password that goes takes something with it")
	}
	if last := w.events[len(w.events)-1]; last.Reason != "KeystorePasswordSecretNotFound" {
		t.Errorf("events %v", w.events)
	}
	said := len(w.events)
	if c := w.condition(certmanagerv1.CertificateConditionIssuing); c.Reason != ReasonSecretNotRepaired || !strings.Contains(c.Message, "gone again") {
		t.Errorf("Issuing is %+v", c)
	}
	if w.settle(); len(w.events) != said {
		t.Errorf("said again: %v", w.events)
	}
}

// Nobody learns a password from a Secret's metadata.
func TestKeystoreMarkTellsNothing(t *testing.T) {
	w := rich(t)
	one := facts.OfSecret(w.secret)
	mark := facts.KeystoreMark(one.Seal, one.Leaf.ID, &w.crt.Spec, w.passwords)
	if mark != one.KeystoreMark || mark == "" {
		t.Fatalf("mark %q, want %q", one.KeystoreMark, mark)
	}
	other := *w
	otherSecretKey(256)(&other)
	if two := facts.OfSecret(other.secret); two.Seal == one.Seal || facts.KeystoreMark(two.Seal, one.Leaf.ID, &w.crt.Spec, w.passwords) == mark {
		t.Error("the mark does not depend on the private key")
	}
}
