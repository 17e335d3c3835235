package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"chancery.dev/internal/engine"
	"chancery.dev/internal/findings"
)

// Bounds of the server of waits. Whoever reaches it may read the list; the bounds are against mistakes.
const (
	waitsAtOnce      = 2
	waitsTimeout     = 30 * time.Second
	waitsHeaderBytes = 8 << 10
)

// waits serves the list of waits, at a loopback address or a Unix socket. In a cluster, the API server's port
// forwarding leads there, so the API server says who may read the list (docs/decisions/0013-who-reads-the-waits.md).
type waits struct {
	address string
	list    func() []engine.Wait
	leads   func() bool
	places  chan struct{}
	log     *slog.Logger
}

func newWaits(address string, list func() []engine.Wait, leads func() bool, log logr.Logger) *waits {
	return &waits{
		address: address, list: list, leads: leads, places: make(chan struct{}, waitsAtOnce), log: slog.New(logr.ToSlogHandler(log)),
	}
}

// waitsListener reads --waits-address.
func waitsListener(address string) (network, where string, err error) {
	if path, is := strings.CutPrefix(address, "unix:"); is {
		if path == "" {
			return "", "", errors.New("must name a path after unix:")
		}
		return "unix", path, nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil || !findings.IsAddress(address) || !isLoopback(host) {
		return "", "", fmt.Errorf("must be a port of a loopback address, as in 127.0.0.1:9412, or unix:PATH, not %q: other machines must not reach it", address)
	}
	return "tcp", address, nil
}

func isLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: a process that does not lead says so.
func (*waits) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable. Certificates do not depend on the list: where it cannot be served, the log says
// so, and the process goes on.
func (s *waits) Start(ctx context.Context) error {
	if err := s.serve(ctx); err != nil {
		s.log.Error("the list of waits is not served: choose another --waits-address, or end what listens there", "address", s.address, "error", err.Error())
	}
	return nil
}

// serve serves until ctx ends.
func (s *waits) serve(ctx context.Context) error {
	listener, closed, err := s.listen(ctx)
	if err != nil {
		return err
	}
	defer closed()
	server := &http.Server{
		Handler: s, ReadTimeout: waitsTimeout, WriteTimeout: waitsTimeout, MaxHeaderBytes: waitsHeaderBytes, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	server.SetKeepAlivesEnabled(false)
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// listen listens. closed gives back what that took.
func (s *waits) listen(ctx context.Context) (listener net.Listener, closed func(), err error) {
	network, where, err := waitsListener(s.address)
	if err != nil {
		return nil, nil, err
	}
	if network == "tcp" {
		listener, err = (&net.ListenConfig{}).Listen(ctx, network, where)
		return listener, func() { _ = listener.Close() }, err
	}
	return listenPrivately(ctx, where)
}

// listenPrivately listens at a Unix socket that the user of this process alone may open: the socket is made in a
// directory that is closed to others, and takes its place when its mode is set. A socket that another process has left
// there is replaced, any other file is not.
func listenPrivately(ctx context.Context, path string) (listener net.Listener, closed func(), err error) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != os.ModeSocket {
		return nil, nil, fmt.Errorf("%s is there already, and is no socket", path)
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".waits")
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	made := filepath.Join(dir, "s")
	if listener, err = (&net.ListenConfig{}).Listen(ctx, "unix", made); err != nil {
		return nil, nil, err
	}
	if unix, is := listener.(*net.UnixListener); is {
		unix.SetUnlinkOnClose(false) // the socket is at path then
	}
	if err := errors.Join(os.Chmod(made, 0o600), os.Rename(made, path)); err != nil {
		_ = listener.Close()
		return nil, nil, err
	}
	return listener, func() { _ = errors.Join(listener.Close(), os.Remove(path)) }, nil
}

// ServeHTTP answers GET /waits.
func (s *waits) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	host := req.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	switch {
	case host != "localhost" && !isLoopback(strings.Trim(host, "[]")):
		// A page in a browser on this machine has another host's name lead here (DNS rebinding).
		http.Error(w, "the host of the request must be localhost", http.StatusForbidden)
		return
	case req.URL.Path != "/waits":
		http.NotFound(w, req)
		return
	case req.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "only GET is answered", http.StatusMethodNotAllowed)
		return
	}
	if !s.leads() {
		http.Error(w, "this process does not lead: ask the one that does", http.StatusMisdirectedRequest)
		return
	}
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
	default:
		http.Error(w, "others are reading the list: ask again", http.StatusTooManyRequests)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	items := s.list()
	if items == nil {
		items = []engine.Wait{}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"items": items}) // a reader who has gone needs no answer
}
