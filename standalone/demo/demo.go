// Package demo shows a user how real certificates are issued. It applies manifests as an administrator would, shows the
// progress of every Certificate, Order, Challenge and Pod, and verifies each chain at the end.
//
// The demo uses a real ACME server and a real DNS server on loopback (Peers), and of a node the code that gets
// certificates for Pods. The caller runs the control plane and the
// controllers. The demo is not a test of every feature, and sees only what a user of the API can see.
package demo

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/api"
	"chancery.dev/internal/clientside/explain"
)

// Options say what to issue, where, and how to tell of it.
type Options struct {
	// Config is an administrator's client.
	Config *rest.Config
	// Manifests are YAML files, applied in the order of their names. Their placeholders are those of package examples.
	Manifests fs.FS
	// Peers are what the manifests' issuers speak to.
	Peers *Peers
	// ClusterResourceNamespace is where the Secrets of ClusterIssuers are.
	ClusterResourceNamespace string
	// Timeout bounds the wait for all certificates.
	Timeout time.Duration
	// Out takes the report.
	Out io.Writer
	// Size returns the width and height of the terminal that Out is; nil if it is none. Then the progress is plain
	// lines.
	Size func() (width, height int)
}

// FailedError says that something was not issued, or is not what was asked for. The reasons have been reported.
type FailedError struct {
	// Failed of All that were asked for.
	Failed, All int
}

func (e *FailedError) Error() string {
	return fmt.Sprintf("%d of %d certificates failed: the reasons are above", e.Failed, e.All)
}

// Run applies the manifests, shows the progress until everything is issued, has failed or the time is over, and
// verifies the chains. The error is a *FailedError if the trouble has been reported.
func Run(ctx context.Context, o Options) error {
	scheme, err := api.Scheme()
	if err != nil {
		return err
	}
	config := rest.CopyConfig(o.Config)
	config.QPS = -1 // the API server protects itself: API Priority and Fairness
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	request, err := newSigningRequest()
	if err != nil {
		return err
	}
	objects, err := read(o.Manifests, o.Peers.values(request.pem))
	if err != nil {
		return err
	}
	if err := clearEarlier(ctx, c, objects); err != nil {
		return err
	}
	var n *node
	if slices.ContainsFunc(objects, manifest.isPod) {
		if n, err = startNode(ctx, config, c); err != nil { // it refreshes certificates after Run, too
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b := newBoard(targetsOf(objects), time.Now)
	show := newDisplay(o, b)
	if err := watch(ctx, config, scheme, b); err != nil {
		return err
	}
	show.apply(len(objects))
	b.start()
	applied := make(chan error, 1)
	go func() { applied <- apply(ctx, c, b, n, objects) }()
	if err := show.until(ctx, o.Timeout, applied); err != nil {
		return err
	}
	v := verifier{client: c, peers: o.Peers, request: request, node: n, namespace: o.ClusterResourceNamespace, now: time.Now}
	return report(ctx, o.Out, b, v)
}

// report verifies what was issued, tells the reasons of what was not, and sums up.
func report(ctx context.Context, out io.Writer, b *board, v verifier) error {
	failed := 0
	for _, t := range b.targets {
		_, _ = fmt.Fprintln(out)
		if b.standing(t).outcome != explain.Issued {
			failed++
			_, _ = fmt.Fprintf(out, "%s %s: not issued\n", markFailed, t)
			for _, line := range b.reasons(t) {
				_, _ = fmt.Fprintf(out, "    %s\n", line)
			}
			continue
		}
		found, err := v.verify(ctx, t)
		if err != nil {
			failed++
			_, _ = fmt.Fprintf(out, "%s %s: issued, but %v\n", markFailed, t, err)
			continue
		}
		_, _ = fmt.Fprintf(out, "%s %s: chain verified\n%s", markDone, t, found)
	}
	_, _ = fmt.Fprintln(out)
	if failed > 0 {
		return &FailedError{Failed: failed, All: len(b.targets)}
	}
	_, _ = fmt.Fprintf(out, "All %d certificates were issued within %s, and every chain is verified.\n", len(b.targets), tenths(b.lastSettled()))
	return nil
}

// tenths writes a time for people.
func tenths(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
