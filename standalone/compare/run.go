package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/api"
	"chancery.dev/internal/install"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/rig/pebble"
	"chancery.dev/internal/rig/port"
	"chancery.dev/standalone/child"
	"chancery.dev/standalone/controlplane"
)

// options say what is compared.
type options struct {
	// other and ours are programs; arguments are for the other one.
	other, ours string
	arguments   []string
	// certificates and ingresses are how many there are, which the seed chooses.
	certificates, ingresses int
	seed                    uint64
	// settle is how long a controller has to change nothing to be finished, settleChallenges while Challenges wait: a
	// controller may wait for a minute after a self check.
	settle, settleChallenges, limit time.Duration
	// looks is how long it may take until it has looked at all issuers.
	looks    time.Duration
	progress io.Writer
}

// side is a controller, and all that it works with.
type side struct {
	options

	name, path string
	arguments  []string
	dir        string
	rc         *rest.Config
	client     client.Client
	dns        *dnsserver.Server
	ca         *pebble.Server
	help       *child.Help
	process    *child.Process
	release    func()
	// notes are what the report says of the side beside its objects.
	notes []string
	took  time.Duration
	// refused are generated objects that the API server has not taken.
	refused int
}

func (s *side) say(format string, args ...any) {
	_, _ = fmt.Fprintf(s.progress, s.name+": "+format+"\n", args...)
}

// compare runs both controllers and compares the objects that they have made. If one of them has not worked, the report
// is nil, and their logs are kept.
func compare(ctx context.Context, o options) (*report, error) {
	sides := [2]*side{
		{options: o, name: "the other controller", path: o.other, arguments: o.arguments},
		{options: o, name: "Chancery", path: o.ours},
	}
	for _, s := range sides {
		if err := s.ask(); err != nil {
			return nil, err
		}
	}
	input, err := generate(o.seed, o.certificates, o.ingresses)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "chancery-compare-")
	if err != nil {
		return nil, err
	}
	sides[0].dir, sides[1].dir = filepath.Join(dir, "other"), filepath.Join(dir, "ours")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var found [2][]object
	var wrong [2]error
	var running sync.WaitGroup
	for i, s := range sides {
		running.Go(func() {
			if found[i], wrong[i] = s.run(ctx, input); wrong[i] != nil {
				cancel() // the other one need not go on
			}
		})
	}
	running.Wait()
	for i, err := range wrong {
		if errors.Is(err, context.Canceled) && wrong[1-i] != nil && !errors.Is(wrong[1-i], context.Canceled) {
			wrong[i] = nil // the cause is the other one's
		}
	}
	if err := errors.Join(wrong[:]...); err != nil {
		return nil, err
	}
	return newReport(sides, found), os.RemoveAll(dir)
}

// ask asks the program for its flags. Its error says what is wrong with the program.
func (s *side) ask() (err error) {
	if s.path == "" {
		return fmt.Errorf("%s: no program is named: give its path", s.name)
	}
	if s.help, err = child.HelpOf(s.path, "controller"); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}

// run lets the controller work on the input, and reads the objects that the controller has made.
func (s *side) run(ctx context.Context, input *input) (_ []object, err error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	s.say("starting an API server")
	if s.rc, s.release, err = rig.Own(ctx); err != nil {
		return nil, err
	}
	defer s.release()
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	if err := s.create(ctx, input.before(s.ca, s.dns.Addr())); err != nil {
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := s.work(ctx, input); err != nil {
		return nil, errors.Join(err, s.process.ByItself(), s.stop())
	}
	s.took = time.Since(began)
	found, err := read(ctx, s.client)
	if ended := s.process.ByItself(); ended != nil {
		return nil, ended
	}
	return found, errors.Join(err, s.stop())
}

// stop ends the controller. One that has to be killed is noted: its work is done.
func (s *side) stop() error {
	if err := s.process.Stop(); err != nil && s.process.ByItself() == nil {
		return err
	} else if err != nil {
		s.notes = append(s.notes, err.Error())
	}
	return nil
}

// prepare connects to the API server, installs the definitions, and starts the DNS server and the CA.
func (s *side) prepare(ctx context.Context) error {
	if err := install.Install(ctx, s.rc, func(string) {}); err != nil {
		return err
	}
	scheme, err := api.Scheme()
	if err != nil {
		return err
	}
	if s.client, err = client.New(s.rc, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if s.dns, err = dnsserver.Start(ctx, dnsserver.Config{Zones: []dnsserver.Zone{{Name: zone}}}); err != nil {
		return err
	}
	s.ca, err = pebble.Start(ctx, pebble.Options{DNSServer: s.dns.Addr()})
	return err
}

// create creates objects, and counts those that the API server does not take as invalid.
func (s *side) create(ctx context.Context, objects []client.Object) error {
	for _, o := range objects {
		switch err := s.client.Create(ctx, o); {
		case isInvalid(err):
			s.refused++
		case client.IgnoreAlreadyExists(err) != nil:
			return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
		}
	}
	return nil
}

// start starts the controller as an administrator. Both get the same flags, as far as they know them.
func (s *side) start(ctx context.Context) error {
	kubeconfig := filepath.Join(s.dir, "kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, s.rc); err != nil {
		return err
	}
	flags := []string{
		"--leader-elect=false", "--cluster-resource-namespace=" + clusterNamespace, "--dns01-recursive-nameservers=" + s.dns.Addr(),
		"--dns01-recursive-nameservers-only=true", "--issuer-egress-allow=127.0.0.0/8", "--waits-address=",
	}
	for _, flag := range []string{"--metrics-listen-address=", "--internal-healthz-listen-address="} {
		address, err := port.Free(ctx)
		if err != nil {
			return err
		}
		flags = append(flags, flag+address.String())
	}
	arguments := append(s.help.Arguments(flags...), "--kubeconfig="+kubeconfig)
	var err error
	s.process, err = child.Start(child.Program{
		Name: s.name, Path: s.path, Arguments: append(arguments, s.arguments...), Log: filepath.Join(s.dir, "log"),
	})
	return err
}

// work waits for the issuers, creates the input, and waits until the controller changes nothing any more.
func (s *side) work(ctx context.Context, input *input) error {
	if err := s.issuersSeen(ctx); err != nil {
		return err
	}
	s.say("working on %d objects", len(input.objects))
	if err := s.create(ctx, input.copies()); err != nil {
		return err
	}
	return s.quiet(ctx)
}

// issuersSeen waits until the controller has given all issuers a condition, or some and no more.
func (s *side) issuersSeen(ctx context.Context) error {
	seen, all := 0, 0
	for began := time.Now(); time.Since(began) < s.looks; {
		issuers, err := rig.Issuers(ctx, s.client)
		if err != nil {
			return err
		}
		seen, all = 0, len(issuers)
		for _, i := range issuers {
			seen += min(len(i.GetStatus().Conditions), 1)
		}
		if seen == all {
			return nil
		}
		if err := s.wait(ctx, time.Second); err != nil {
			return err
		}
	}
	if seen == 0 {
		return fmt.Errorf("%s is silent: %s after its start no issuer has a condition: check that its arguments have it work on this API server\n%w",
			s.name, s.looks, s.process.LastWords())
	}
	s.notes = append(s.notes, fmt.Sprintf("%d of %d issuers have no condition %s after the start", all-seen, all, s.looks))
	return nil
}

// wait waits, unless the process ends before.
func (s *side) wait(ctx context.Context, d time.Duration) error {
	select {
	case <-s.process.Ended():
		return s.process.ByItself()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// quiet waits until nothing has changed for a while.
func (s *side) quiet(ctx context.Context) error {
	last, since := "", time.Now()
	for began := time.Now(); time.Since(began) < s.limit; {
		now, pending, err := s.versions(ctx)
		if err != nil {
			return err
		}
		if now != last {
			last, since = now, time.Now()
		}
		need := s.settle
		if pending {
			need = s.settleChallenges
		}
		if time.Since(since) >= need {
			return nil
		}
		if err := s.wait(ctx, 2*time.Second); err != nil {
			return err
		}
	}
	s.notes = append(s.notes, fmt.Sprintf("it still changed objects after %s", s.limit))
	return nil
}

// versions tells states of all objects from each other, and whether Challenges wait.
func (s *side) versions(ctx context.Context) (versions string, pending bool, err error) {
	var all strings.Builder
	for _, kind := range kinds() {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.list())
		if err := s.client.List(ctx, list); err != nil {
			return "", false, err
		}
		for i := range list.Items {
			all.WriteString(list.Items[i].GetResourceVersion() + " ")
		}
		pending = pending || kind.Kind == "Challenge" && len(list.Items) > 0
	}
	return all.String(), pending, nil
}
