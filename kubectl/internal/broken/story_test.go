// Package broken_test is the story of the broken set-ups of internal/stories/testdata/broken.md: each is made on a real
// API server, with a real CA and a real DNS server; what a person reads first is the cause, in every place; and the
// cure works.
package broken_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/dashboard"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/slow"
	"chancery.dev/kubectl/internal/change"
	"chancery.dev/kubectl/internal/list"
	"chancery.dev/kubectl/internal/plugin"
	"chancery.dev/kubectl/internal/status"
)

// row is a row of the table, as it is made and mended.
type row struct {
	// class is that of status.cause; empty where only an observer sees the cause.
	class cause.Class
	// says is a part of the cause, which the event has too, and cure is a part of what to do.
	says, cure string
	// alone gives the row a namespace of its own.
	alone bool
	// quick puts the row into each run; make test-slow-faults runs all of them.
	quick bool
	// make breaks things before the controllers run, and then does what needs them; may be nil.
	make, then func(s *scene)
	// mend applies the cure; nil where there is none.
	mend func(s *scene)
	// start is what status begins from, if not the Certificate.
	start string
}

// story is the label of the Certificates of a stage.
const story = "story.example.com/of"

// scene is a row on the stage.
type scene struct {
	*stage
	row

	t           *testing.T
	space, name string
}

// TestBrokenSetUps plays the rows of the table side by side: first all are broken, then the controllers run, and then
// each is read and mended.
func TestBrokenSetUps(t *testing.T) {
	t.Parallel()
	w := newStage(t)
	all, scenes := rows(), map[string]*scene{}
	for _, name := range table(t) {
		r, made := all[name]
		if !made {
			t.Errorf("%s is not made", name)
			continue
		}
		if r.quick || slow.Runs(slow.Faults) {
			if r.start == "" {
				r.start = name
			}
			scenes[name] = &scene{stage: w, row: r, t: t, space: w.Namespace, name: name}
		}
	}
	as := w.controllers(t)
	w.prepare(t, scenes)
	tell := w.follow(t)
	w.RunAs(t, w.cfg, as)
	for name, s := range scenes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.t = t
			if s.then != nil {
				s.then(s)
			}
			s.read(tell)
			if s.mend != nil {
				s.mend(s)
				s.ready()
			}
		})
	}
}

// table returns the names of the set-ups.
func table(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile("../../../internal/stories/testdata/broken.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 8 {
			continue
		}
		if _, err := strconv.Atoi(strings.TrimSpace(cells[1])); err == nil {
			names = append(names, strings.TrimSpace(cells[2]))
		}
	}
	return names
}

// prepare makes the namespaces and breaks everything.
func (w *stage) prepare(t *testing.T, scenes map[string]*scene) {
	t.Helper()
	spaces := []string{w.Namespace}
	for name, s := range scenes {
		if s.alone {
			s.space = w.Namespace + "-" + name
			w.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.space}})
			spaces = append(spaces, s.space)
		}
	}
	w.cfg.Scope.Namespaces = spaces
	for _, space := range spaces {
		if !strings.HasSuffix(space, "-secret-rights") {
			w.mayWrite(t, space)
		}
		s := &scene{stage: w, t: t, space: space, name: "good"}
		s.create(good(t, "good-ca"), &certmanagerv1.Issuer{ObjectMeta: named("good"), Spec: byCA("good-ca")},
			&corev1.Secret{ObjectMeta: named("tsig"), StringData: map[string]string{"key": tsigSecret}})
	}
	for _, s := range scenes {
		s.make(s)
	}
}

// follow notes each state of each Certificate, from now on.
func (w *stage) follow(t *testing.T) (tell func(space, name string) []*certmanagerv1.Certificate) {
	t.Helper()
	c, err := client.NewWithWatch(w.Admin, client.Options{Scheme: w.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	events, err := c.Watch(context.WithoutCancel(t.Context()), &certmanagerv1.CertificateList{}, client.MatchingLabels{story: w.Namespace})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(events.Stop)
	var mu sync.Mutex
	states := map[client.ObjectKey][]*certmanagerv1.Certificate{}
	go func() {
		for e := range events.ResultChan() {
			if crt, is := e.Object.(*certmanagerv1.Certificate); is {
				mu.Lock()
				key := client.ObjectKeyFromObject(crt)
				states[key] = append(states[key], crt)
				mu.Unlock()
			}
		}
	}()
	return func(space, name string) []*certmanagerv1.Certificate {
		mu.Lock()
		defer mu.Unlock()
		return append([]*certmanagerv1.Certificate{}, states[client.ObjectKey{Namespace: space, Name: name}]...)
	}
}

// read looks at the five places, as soon as the Certificate has a cause.
func (s *scene) read(tell func(space, name string) []*certmanagerv1.Certificate) {
	s.t.Helper()
	first := ""
	if s.class != "" {
		var told *certmanagerv1.Certificate
		rig.Eventually(s.t, s.name+" has a cause", func(ctx context.Context) string {
			states := tell(s.space, s.name)
			for _, crt := range states {
				told = crt
				if c := crt.Status.Cause; c != nil && (s.then == nil || c.Class == string(s.class)) {
					return "" // what was said before the second step is of the first
				}
			}
			return fmt.Sprintf("%+v", told)
		})
		first = s.condition(told)
		s.event()
	}
	if first == "" {
		first = s.says // only an observer sees it
	}
	s.status(first)
	s.list(first)
	s.page(first)
}

// condition holds the pass that has learned the cause to saying it in Ready, and returns the cause in words.
func (s *scene) condition(crt *certmanagerv1.Certificate) string {
	s.t.Helper()
	c := crt.Status.Cause
	said := cause.Sentence(c)
	ready := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady)
	if c.Class != string(s.class) || !strings.Contains(said, s.says) {
		s.t.Errorf("the cause is %s %q, and not %s %q", c.Class, said, s.class, s.says)
	}
	switch {
	case ready == nil:
		s.t.Error("there is a cause, and no Ready")
	case ready.Status == cmmeta.ConditionTrue && !strings.HasSuffix(ready.Message, "; "+said),
		ready.Status != cmmeta.ConditionTrue && !strings.HasPrefix(ready.Message, said):
		s.t.Errorf("Ready does not say the cause %q: %s", said, ready.Message)
	}
	return said
}

// event waits for the event that says the cause.
func (s *scene) event() {
	s.t.Helper()
	rig.Eventually(s.t, "an event says the cause", func(ctx context.Context) string {
		events := &corev1.EventList{}
		if err := s.Client.List(ctx, events, client.InNamespace(s.space)); err != nil {
			return err.Error()
		}
		var said []string
		for _, e := range events.Items {
			if e.InvolvedObject.Name == s.name && e.InvolvedObject.Kind == certmanagerv1.CertificateKind && e.Type == corev1.EventTypeWarning {
				if strings.Contains(e.Message, s.says) {
					return ""
				}
				said = append(said, e.Message)
			}
		}
		return strings.Join(said, "\n")
	})
}

// status holds the command to the cause on the first line, and to the cure on one of the next ones.
func (s *scene) status(first string) {
	s.t.Helper()
	said := s.run(status.New, s.start)
	line, rest, _ := strings.Cut(said, "\n")
	if !strings.Contains(line, first) || !strings.Contains(line, s.says) {
		s.t.Errorf("the first line of status does not say %q, %q:\n%s", first, s.says, said)
	}
	advice, _, _ := strings.Cut(rest, "\n\n")
	if !strings.Contains(advice, "what to do:") || !strings.Contains(advice, s.cure) || !strings.Contains(advice, "next try:") {
		s.t.Errorf("status does not say what to do (%s), and when the next try is:\n%s", s.cure, said)
	}
}

// cell is how much of a cause the list shows at least.
const cell = 30

// list holds the column of the list to the cause.
func (s *scene) list(first string) {
	s.t.Helper()
	if s.start != s.name {
		return // it is no Certificate's
	}
	said := s.run(list.New, "")
	for line := range strings.Lines(said) {
		if strings.HasPrefix(line, s.name+" ") && strings.Contains(line, string([]rune(first)[:min(cell, len([]rune(first)))])) {
			return
		}
	}
	s.t.Errorf("the list does not say %q:\n%s", first, said)
}

// shown is how much of a cause the page shows at least.
const shown = 100

// page holds the row of the page to the cause.
func (s *scene) page(first string) {
	s.t.Helper()
	if s.start != s.name {
		return
	}
	address := "/certificate/" + s.space + "/" + s.name + `"`
	get, begin := s.dashboard(), string([]rune(first)[:min(shown, len([]rune(first)))])
	rig.Eventually(s.t, "the page has the row", func(ctx context.Context) string { // it watches, and makes its words anew after a while
		said := "there is no row"
		for _, after := range strings.Split(get(ctx, "/"), address)[1:] { // the time line has the address, too
			row, _, _ := strings.Cut(after, "</tr>")
			said = html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(row, ""))
			if strings.Contains(said, begin) {
				return ""
			}
		}
		return "the row does not say " + begin + ": " + said
	})
	view := html.UnescapeString(get(s.t.Context(), strings.TrimSuffix(address, `"`)))
	if !strings.Contains(view, first) || !strings.Contains(view, s.cure) {
		s.t.Errorf("the page of the Certificate does not say %q and %q", first, s.cure)
	}
}

// dashboard serves the page of the namespace as the viewer, and returns what gets an address of it.
func (s *scene) dashboard() func(ctx context.Context, path string) string {
	s.t.Helper()
	flags := genericclioptions.NewConfigFlags(true)
	flags.KubeConfig, flags.Impersonate = &s.kubeconfig, &s.viewer
	c, err := plugin.Connect(flags)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(s.t.Context()))
	url, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		o := dashboard.Options{Client: c, Namespace: s.space, Address: "127.0.0.1:0"}
		ended <- dashboard.Serve(ctx, o, func(at string) { url <- at })
	}()
	s.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
	})
	var cookies []*http.Cookie
	get := func(ctx context.Context, url string) string {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err.Error()
		}
		for _, cookie := range cookies {
			request.AddCookie(cookie)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err.Error()
		}
		defer func() { _ = answer.Body.Close() }()
		if len(cookies) == 0 {
			cookies = answer.Cookies()
		}
		text, _ := io.ReadAll(answer.Body) // what is missing is missed
		return string(text)
	}
	var opened string
	select {
	case opened = <-url:
	case err := <-ended:
		ended <- nil
		s.t.Fatal(err)
	}
	get(ctx, opened)
	origin, _, _ := strings.Cut(opened, "/open/")
	return func(ctx context.Context, path string) string { return get(ctx, origin+path) }
}

// run runs a command as the viewer, or as the administrator where it changes something, and returns what it prints.
func (s *scene) run(command func(plugin.Streams) *cobra.Command, args ...string) string {
	s.t.Helper()
	return s.runAs(s.viewer, command, args...)
}

func (s *scene) runAs(user string, command func(plugin.Streams) *cobra.Command, args ...string) string {
	s.t.Helper()
	var out bytes.Buffer
	cmd := command(plugin.Streams{In: strings.NewReader(""), Out: &out, ErrOut: io.Discard})
	all := []string{"--kubeconfig", s.kubeconfig, "-n", s.space}
	if user != "" {
		all = append(all, "--as", user)
	}
	for _, arg := range args {
		if arg != "" {
			all = append(all, arg)
		}
	}
	cmd.SetArgs(all)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(s.t.Context())
	if exit := (plugin.ExitError{}); err != nil && (!errors.As(err, &exit) || exit.Err != nil) {
		s.t.Errorf("%v: %v\n%s", args, err, out.String())
	}
	return out.String()
}

// do runs a command that changes something: renew, approve, deny.
func (s *scene) do(command, name string) {
	s.t.Helper()
	s.runAs("", func(streams plugin.Streams) *cobra.Command {
		commands := change.New(streams)
		return commands[slices.IndexFunc(commands, func(c *cobra.Command) bool { return c.Name() == command })]
	}, name)
}

// renew gets the Certificate issued at once.
func (s *scene) renew() {
	s.t.Helper()
	s.do("renew", s.name)
}

// ready waits until the Certificate is good, and nothing is said to be in the way of it.
func (s *scene) ready() {
	s.t.Helper()
	crt := &certmanagerv1.Certificate{}
	rig.Eventually(s.t, s.name+" is ready after the cure", func(ctx context.Context) string {
		if err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.space, Name: s.name}, crt); err != nil {
			return err.Error()
		}
		ready := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady)
		if ready == nil || ready.Status != cmmeta.ConditionTrue || ready.ObservedGeneration != crt.Generation || crt.Status.Cause != nil {
			return fmt.Sprintf("%+v %+v %+v", crt.Status.Cause, crt.Status.NextTry, crt.Status.Conditions)
		}
		return ""
	})
}

// create makes objects in the namespace of the scene.
func (s *scene) create(objects ...client.Object) {
	s.t.Helper()
	for _, o := range objects {
		if namespaced, err := s.Client.IsObjectNamespaced(o); err == nil && namespaced {
			o.SetNamespace(s.space)
		}
	}
	s.Create(s.t, objects...)
}

// amend changes an object by its name.
func amend[O client.Object](s *scene, object O, name string, change func(O)) {
	s.t.Helper()
	key := client.ObjectKey{Name: name}
	if namespaced, err := s.Client.IsObjectNamespaced(object); err == nil && namespaced {
		key.Namespace = s.space
	}
	for {
		err := s.Client.Get(s.t.Context(), key, object)
		if err == nil {
			change(object)
			err = s.Client.Update(s.t.Context(), object)
		}
		if err == nil {
			return
		}
		if !apierrors.IsConflict(err) {
			s.t.Fatal(err)
		}
	}
}
