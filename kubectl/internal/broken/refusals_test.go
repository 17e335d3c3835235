package broken_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/cause"
	"chancery.dev/internal/rig"
)

var record = flag.Bool("record", false, "write what the API server answers into a file for its version") //nolint:gochecknoglobals // a flag of go test

// recorded is where the answers of API servers are, in a file for each version.
const recorded = "../../../internal/cause/testdata/refusals"

// refusal is a write that an API server refuses.
type refusal struct {
	want cause.Class
	// prepare makes what refuses; may be nil.
	prepare func(s *scene)
	// change makes the Secret one that is refused; may be nil.
	change func(*corev1.Secret)
	// user is who writes; the administrator if it is empty.
	user string
}

func refusals() map[string]refusal {
	return map[string]refusal{
		"a quota":                         {want: cause.Quota, prepare: func(s *scene) { s.quota("count/secrets", 0) }},
		"a policy":                        {want: cause.Admission, prepare: func(s *scene) { s.policy("false", "exceeded quota: Secrets must specify a team, User \"x\" cannot") }},
		"a webhook that nobody is behind": {want: cause.Webhook, prepare: func(s *scene) { s.webhook() }},
		"a right that is missing":         {want: cause.Rights, user: "nobody"},
		"a Namespace that is being deleted": {want: cause.NamespaceTerminating, prepare: func(s *scene) {
			space := &corev1.Namespace{}
			amend(s, space, s.space, func(n *corev1.Namespace) { n.Finalizers = append(n.Finalizers, "story.example.com/stays") })
			if err := s.Client.Delete(s.t.Context(), space); err != nil {
				s.t.Fatal(err)
			}
			s.t.Cleanup(func() {
				space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.space}}
				_ = s.Client.Patch(context.Background(), space, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
			})
		}},
		"an immutable Secret": {
			want:    cause.Immutable,
			prepare: func(s *scene) { s.create(&corev1.Secret{ObjectMeta: named("web"), Immutable: new(true)}) },
			change:  func(secret *corev1.Secret) { secret.Data = map[string][]byte{"tls.crt": {1}} },
		},
		"a type that stays": {
			want:    cause.Immutable,
			prepare: func(s *scene) { s.create(&corev1.Secret{ObjectMeta: named("web")}) },
			change: func(secret *corev1.Secret) {
				secret.Type, secret.Data = corev1.SecretTypeTLS, map[string][]byte{"tls.crt": {}, "tls.key": {}}
			},
		},
		"a label": {want: cause.Invalid, change: func(secret *corev1.Secret) {
			secret.Labels = map[string]string{"team": "web & shop: field is immutable"}
		}},
		"a large Secret": {want: cause.TooLarge, change: func(secret *corev1.Secret) { secret.Data = map[string][]byte{"tls.crt": make([]byte, 1<<20+1)} }},
		"large annotations": {want: cause.TooLarge, change: func(secret *corev1.Secret) {
			secret.Annotations = map[string]string{"note": strings.Repeat("a", 1<<18)}
		}},
		"a large request": {want: cause.TooLarge, change: func(secret *corev1.Secret) { secret.Data = map[string][]byte{"tls.crt": make([]byte, 3<<20)} }},
	}
}

// TestRefusals: what this API server answers is taken for what it is. make record-refusals writes the answers into a
// file, which a test of internal/cause reads beside those of other versions.
func TestRefusals(t *testing.T) {
	t.Parallel()
	w := &stage{World: rig.NewWorld(t)}
	answers := map[string]metav1.Status{}
	for name, r := range refusals() {
		s := &scene{stage: w, t: t, name: strings.ReplaceAll(strings.ToLower(name), " ", "-")}
		s.space = w.Namespace + "-" + s.name
		w.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.space}})
		if r.prepare != nil {
			r.prepare(s)
		}
		err := s.write(r)
		if got := cause.OfWrite(err, "Secret web"); got == nil || got.Class != string(r.want) {
			t.Errorf("%s is %v, and not %s: %v", name, got, r.want, err)
		}
		answers[name] = s.lasting(err)
	}
	if *record {
		w.keep(t, answers)
	}
}

// lasting is the answer of an API server without the names of this run.
func (s *scene) lasting(err error) (answer metav1.Status) {
	s.t.Helper()
	said := apierrors.APIStatus(nil)
	if errors.As(err, &said) {
		answer = said.Status()
	}
	text, err := json.Marshal(answer)
	if err != nil {
		s.t.Fatal(err)
	}
	lasting := metav1.Status{}
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(text), s.space, "shop")), &lasting); err != nil {
		s.t.Fatal(err)
	}
	return lasting
}

// write writes a Secret that is refused.
func (s *scene) write(r refusal) error {
	s.t.Helper()
	c := s.Client
	if r.user != "" {
		var err error
		if c, err = client.New(rig.As(s.Admin, r.user), client.Options{Scheme: s.Client.Scheme()}); err != nil {
			s.t.Fatal(err)
		}
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.space, Name: "web"}}
	if r.change != nil {
		r.change(secret)
	}
	err := c.Create(s.t.Context(), secret)
	if apierrors.IsAlreadyExists(err) {
		err = c.Update(s.t.Context(), secret)
	}
	return err
}

// keep writes answers into the file of the API server's version.
func (w *stage) keep(t *testing.T, answers map[string]metav1.Status) {
	t.Helper()
	clients, err := kubernetes.NewForConfig(w.Admin)
	if err != nil {
		t.Fatal(err)
	}
	version, err := clients.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(answers, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("v%s.%s.json", version.Major, strings.TrimRight(cmp.Or(version.Minor, "0"), "+"))
	if err := os.MkdirAll(recorded, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(recorded, name), append(text, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d answers are in internal/cause/testdata/refusals/%s", len(answers), name)
}
