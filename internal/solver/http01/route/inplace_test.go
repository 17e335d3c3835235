package route_test

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/solver"
)

// TestLastRuleInPlace takes a path out of an Ingress that would be left without any
// rule, which the API server refuses.
func TestLastRuleInPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	site := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: "site"},
		Spec:       networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: "gone.example.test"}}},
	}
	w.Create(t, site)
	task := w.challenge(t, "c", "www.example.test", &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{Name: "site"}})
	w.present(t, task)
	if err := w.Get(t.Context(), "site", site); err != nil {
		t.Fatal(err)
	}
	site.Spec.Rules = site.Spec.Rules[1:] // its owner has no use for it any more
	if err := w.client.Update(t.Context(), site); err != nil {
		t.Fatal(err)
	}
	w.cleanUp(t, task)
	if err := w.Get(t.Context(), "site", site); err != nil {
		t.Fatal(err)
	}
	if len(site.Spec.Rules) != 1 || site.Spec.Rules[0].HTTP != nil {
		t.Errorf("%+v", site.Spec.Rules)
	}
}

// TestTemplateInPlace puts annotations on an Ingress for as long as a Challenge needs
// them, and changes none that its owner has set.
func TestTemplateInPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := map[string]string{"owner": "site"}
	site := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: "site", Annotations: before},
		Spec:       networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: "www.example.test"}}},
	}
	w.Create(t, site)
	template := &acmev1.SolverIngressTemplate{Metadata: acmev1.SolverObjectMeta{
		Annotations: map[string]string{"owner": "challenge", "redirect": "false"}, Labels: map[string]string{"solver": "yes"},
	}}
	http := &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{Name: "site", IngressTemplate: template}}
	first, second := w.challenge(t, "first", "www.example.test", http), w.challenge(t, "second", "www.example.test", http)
	expect := func(when string, annotations, labels map[string]string) {
		t.Helper()
		if err := w.Get(t.Context(), "site", site); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(site.Annotations, annotations) || !reflect.DeepEqual(site.Labels, labels) {
			t.Errorf("%s: annotations %v, labels %v", when, site.Annotations, site.Labels)
		}
	}
	during, labels := map[string]string{"owner": "site", "redirect": "false"}, map[string]string{"solver": "yes"}
	w.present(t, first)
	expect("one is presented", during, labels)
	w.present(t, second)
	w.cleanUp(t, first)
	expect("one is left", during, labels)
	w.cleanUp(t, second)
	expect("none is left", before, nil)
}

// TestPlacesMoveInPlace has the owner of an Ingress add and remove a rule before the others
// just when an edit is on its way, which has found them in other places.
func TestPlacesMoveInPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	prefix := networkingv1.PathTypePrefix
	rule := func(host string) networkingv1.IngressRule {
		return networkingv1.IngressRule{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
			Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: &prefix, Backend: networkingv1.IngressBackend{
				Service: &networkingv1.IngressServiceBackend{Name: "shop", Port: networkingv1.ServiceBackendPort{Number: 80}},
			}}},
		}}}
	}
	site := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: "site"},
		Spec:       networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{rule("www.example.test")}},
	}
	w.Create(t, site)
	task := w.challenge(t, "c", "www.example.test", &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{Name: "site"}})
	ahead := func(rules func([]networkingv1.IngressRule) []networkingv1.IngressRule) {
		w.requests.mu.Lock()
		defer w.requests.mu.Unlock()
		w.requests.ahead = func() {
			now := &networkingv1.Ingress{}
			if err := w.Get(t.Context(), "site", now); err != nil {
				t.Error(err)
			}
			now.Spec.Rules = rules(now.Spec.Rules)
			if err := w.client.Update(t.Context(), now); err != nil {
				t.Error(err)
			}
		}
	}
	expect := func(when string, paths map[string]int) {
		t.Helper()
		if err := w.Get(t.Context(), "site", site); err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		for _, r := range site.Spec.Rules {
			got[r.Host] = len(r.HTTP.Paths)
		}
		if !reflect.DeepEqual(got, paths) {
			t.Errorf("%s: paths by host %v, want %v", when, got, paths)
		}
	}
	ahead(func(rules []networkingv1.IngressRule) []networkingv1.IngressRule {
		return slices.Insert(rules, 0, rule("new.example.test"), rule("other.example.test"))
	})
	if err := w.router.Present(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	expect("after Present", map[string]int{"new.example.test": 1, "other.example.test": 1, "www.example.test": 2})
	ahead(func(rules []networkingv1.IngressRule) []networkingv1.IngressRule {
		return append(rules[1:], rule("last.example.test"))
	})
	if err := w.router.CleanUp(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	expect("after CleanUp", map[string]int{"other.example.test": 1, "www.example.test": 1, "last.example.test": 1})
}

// TestManyInPlace has many Challenges edit one Ingress at once: those that wait for the
// same Ingress are written together, and one that is refused fails alone.
func TestManyInPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	site := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: "site"},
		Spec:       networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: "www.example.test"}}},
	}
	w.Create(t, site)
	http := &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{Name: "site"}}
	const challenges = 40
	w.present(t, w.challenge(t, "first", "www.example.test", http)) // the Service is there
	tasks := make([]solver.Task, challenges)
	for n := range tasks {
		tasks[n] = w.challenge(t, fmt.Sprint("c", n), fmt.Sprintf("c%d.example.test", n%10), http)
	}
	w.requests.taken()
	inParallel := func(do func(solver.Task) error, tasks ...solver.Task) {
		var all sync.WaitGroup
		for _, task := range tasks {
			all.Go(func() {
				if err := do(task); err != nil {
					t.Errorf("%s: %v", task.Challenge.Spec.DNSName, err)
				}
			})
		}
		all.Wait()
	}
	expect := func(rules, paths int) {
		t.Helper()
		if err := w.Get(t.Context(), "site", site); err != nil {
			t.Fatal(err)
		}
		got := 0
		for _, rule := range site.Spec.Rules {
			got += len(rule.HTTP.Paths)
		}
		if len(site.Spec.Rules) != rules || got != paths {
			t.Errorf("%d rules with %d paths, want %d with %d", len(site.Spec.Rules), got, rules, paths)
		}
	}
	inParallel(func(task solver.Task) error { return w.router.Present(t.Context(), task) }, tasks...)
	expect(1+10, 1+challenges)
	if patches := w.requests.taken()["PATCH ingresses"]; patches > challenges/2 {
		t.Errorf("%d patches for %d Challenges at once", patches, challenges)
	}
	refused := w.challenge(t, "refused", "under_score.example.test", http)
	inParallel(func(task solver.Task) error {
		err := w.router.Present(t.Context(), task)
		if task.Challenge == refused.Challenge {
			if err == nil {
				t.Error("a host that no Ingress may have was taken")
			}
			return nil
		}
		return err
	}, append([]solver.Task{w.challenge(t, "beside", "beside.example.test", http), refused, w.challenge(t, "after", "after.example.test", http)}, tasks...)...)
	expect(1+10+2, 1+challenges+2)
	w.requests.taken()
	inParallel(func(task solver.Task) error { return w.router.CleanUp(t.Context(), task) }, tasks...)
	expect(1+2, 1+2)
	if patches := w.requests.taken()["PATCH ingresses"]; patches > challenges/2 {
		t.Errorf("%d patches to clean up after %d Challenges at once", patches, challenges)
	}
}
