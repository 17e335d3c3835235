// Package dashboard serves a read-only page about certificates on a loopback address, for the browser of the user who
// started the page. The package reads with the rights of this user. Watches keep the data current. So a page that is
// opened sends no request to the API server, however many certificates there are.
package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/api"
	"chancery.dev/internal/clientside/inventory"
)

// Options say what to serve, and where.
type Options struct {
	// Client reads as the user.
	Client client.WithWatch
	// Cluster is what the user calls the cluster: the context of the kubeconfig.
	Cluster string
	// Namespace to show; empty for all.
	Namespace string
	// Address is a loopback address with a port; port 0 takes a free one.
	Address string
}

// Connect returns a client for the cluster and the user of a configuration.
func Connect(config *rest.Config) (client.WithWatch, error) {
	scheme, err := api.Scheme()
	if err != nil {
		return nil, err
	}
	return client.NewWithWatch(config, client.Options{Scheme: scheme})
}

// CheckAddress returns an error if the page cannot be served at an address, otherwise nil.
func CheckAddress(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !at.Addr().IsLoopback() {
		return fmt.Errorf("the dashboard is served on a loopback address with a port, such as 127.0.0.1:8080 or [::1]:0, not at %q", address)
	}
	return nil
}

// Serve serves the page until ctx ends. It calls opened once, with the address to open: the address works once.
func Serve(ctx context.Context, o Options, opened func(url string)) error {
	if err := CheckAddress(o.Address); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	b, err := follow(ctx, o)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Address)
	if err != nil {
		return fmt.Errorf("serve the dashboard: %w", err)
	}
	door := newGuard(listener.Addr().String(), newSite(b))
	server := &http.Server{Handler: door, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	opened(door.url())
	select {
	case <-ctx.Done():
		err = server.Close()
	case err = <-ended:
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// follow reads, and keeps a board up to date until ctx ends. A failure of the first read is returned; later ones are
// shown on the page.
func follow(ctx context.Context, o Options) (*board, error) {
	b := &board{cluster: o.Cluster, namespace: o.Namespace}
	first, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		known := false
		show := func(i *inventory.Inventory, changed bool) error {
			b.put(i, changed)
			if !known {
				close(first)
			}
			known = true
			return nil
		}
		ended <- inventory.Follow(ctx, o.Client, inventory.Scope{Namespace: o.Namespace, PodRequests: true}, show, func(err error) error {
			if !known {
				return err
			}
			b.fail(err, time.Now())
			return nil
		})
	}()
	select {
	case <-first:
		return b, nil
	case err := <-ended:
		return nil, errors.Join(err, ctx.Err())
	}
}
