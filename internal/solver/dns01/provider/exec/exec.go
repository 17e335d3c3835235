// Package exec writes challenge records through programs that speak the provider protocol (internal/solver/dns01/wire).
// The package starts a program when it is needed, or connects to a program that listens on a Unix socket.
//
// The package uses only programs that the operator lists. It starts one process for each combination of provider,
// settings and credential. It sends credentials as data: nothing from an Issuer or a Secret reaches a command line or
// an environment. The package does not know the settings of a DNS provider: internal/solver/dns01/provider and the
// programs know these settings.
package exec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"chancery.dev/internal/fairshare"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/dns01/provider/limit"
	"chancery.dev/internal/solver/dns01/wire"
)

// AnyProvider is the name of the program that serves every provider without a program of its own.
const AnyProvider = "*"

// socketPrefix marks a program that is reached over a Unix socket.
const socketPrefix = "unix:"

// The reasons of this package's faults.
const (
	// ReasonNoProgram: the operator lists no program for the provider.
	ReasonNoProgram = "ProviderNotInstalled"
	// ReasonCredential: the DNS provider does not accept the credential.
	ReasonCredential = "CredentialRefused"
	// ReasonThrottled: the DNS provider wants fewer requests.
	ReasonThrottled = "ProviderThrottled"
	// ReasonProgram: the program does not run or does not speak the protocol.
	ReasonProgram = "ProgramFailed"
)

// Options bound what a Pool does.
type Options struct {
	// Programs are the executables to run, by the name of the provider: an absolute
	// path, or unix: and the path of a socket. AnyProvider serves all others.
	Programs map[string]string
	// Environ is the controller's own environment, in the form of os.Environ.
	Environ []string
	// Timeout bounds one request; 0 means 60 s.
	Timeout time.Duration
	// Idle is how long a process without work is kept; 0 means 30 s.
	Idle time.Duration
	// MaxProcesses bounds the processes at once; 0 means 16. The namespaces share them.
	MaxProcesses int
	// Limits bound what is asked with each credential; nil means limit.New without a rate.
	Limits *limit.Limits
	// Log takes what programs write to standard error.
	Log logr.Logger
}

// Config is one DNS provider with its credential.
type Config struct {
	wire.Configuration
	// TTL of records, in seconds; 0 takes that of the record.
	TTL int
	// Identity distinguishes credentials that are not in the Configuration because Late fetches them.
	Identity string
	// Tenant is the namespace on whose behalf the provider is used.
	Tenant string
	// Late fetches further secrets when a process is configured; may be nil. They MUST be valid for ten minutes.
	Late func(ctx context.Context) (map[string]string, error)
}

// Pool runs programs. Use New; it ends with its context.
type Pool struct {
	o   Options
	ctx context.Context //nolint:containedctx // the life of the processes, which outlives any caller's context
	// places are those of processes.
	places *fairshare.Places

	mu      sync.Mutex
	workers map[string]*worker
}

// New makes a Pool whose processes end with ctx. It checks that the files of Programs exist.
func New(ctx context.Context, o Options) (*Pool, error) {
	for _, name := range slices.Sorted(maps.Keys(o.Programs)) {
		if err := checkProgram(name, o.Programs[name]); err != nil {
			return nil, err
		}
	}
	o.Timeout, o.Idle, o.MaxProcesses = cmp.Or(o.Timeout, time.Minute), cmp.Or(o.Idle, 30*time.Second), cmp.Or(o.MaxProcesses, 16)
	if o.Limits == nil {
		o.Limits = limit.New(limit.Options{})
	}
	p := &Pool{o: o, ctx: ctx, places: fairshare.New(o.MaxProcesses), workers: map[string]*worker{}}
	context.AfterFunc(ctx, p.close)
	return p, nil
}

// ParsePrograms reads entries of the form NAME=PATH.
func ParsePrograms(entries []string) (map[string]string, error) {
	out := map[string]string{}
	for _, e := range entries {
		name, path, ok := strings.Cut(e, "=")
		if !ok || name == "" || path == "" {
			return nil, fmt.Errorf("%q is not NAME=PATH, as in *=/usr/local/bin/chancery-dns or corp=unix:/run/corp.sock", e)
		}
		if _, twice := out[name]; twice {
			return nil, fmt.Errorf("%q is given twice", name)
		}
		out[name] = path
	}
	return out, nil
}

func checkProgram(name, path string) error {
	if socket, ok := strings.CutPrefix(path, socketPrefix); ok {
		if !filepath.IsAbs(socket) {
			return fmt.Errorf("the socket %q for %q is not an absolute path", socket, name)
		}
		return nil // its server may start later
	}
	if !filepath.IsAbs(path) {
		return fmt.Errorf("the program %q for %q is not an absolute path", path, name)
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("the program for %q: %w", name, err)
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("the program %q for %q is not an executable file", path, name)
	}
	return nil
}

// program returns what to run for a provider. A nil Pool has none.
func (p *Pool) program(provider string) (string, error) {
	if p == nil {
		p = &Pool{}
	}
	if path, ok := p.o.Programs[provider]; ok && provider != AnyProvider {
		return path, nil
	}
	if path, ok := p.o.Programs[AnyProvider]; ok {
		return path, nil
	}
	return "", fault.Failed(fault.ClassConfiguration, ReasonNoProgram, "the DNS provider %q needs a program that this controller is not told of: "+
		"start it with --dns01-provider-programs=%s=PATH, where PATH is chancery-dns, or another that speaks the provider protocol", provider, AnyProvider)
}

// Provider returns the DNS provider of a configuration. It starts nothing yet.
func (p *Pool) Provider(c Config) (*Provider, error) {
	path, err := p.program(c.Provider)
	if err != nil {
		return nil, err
	}
	size := 0
	for name, value := range c.Secrets {
		size += len(name) + len(value)
	}
	if size > limits.Credentials {
		return nil, fault.After(dns01.MendPeriod, dns01.ReasonSecret, "%s: its credentials have %d bytes, and at most %d are taken: "+
			"take what it does not need out of the Secret", c.Provider, size, limits.Credentials)
	}
	return &Provider{pool: p, path: path, config: c}, nil
}

// Provider implements dns01.Provider.
type Provider struct {
	pool   *Pool
	path   string
	config Config
}

var _ dns01.Provider = (*Provider)(nil)

// Present adds the record.
func (p *Provider) Present(ctx context.Context, r dns01.Record) error {
	return p.do(ctx, wire.OpPresent, r)
}

// CleanUp removes the record.
func (p *Provider) CleanUp(ctx context.Context, r dns01.Record) error {
	return p.do(ctx, wire.OpCleanUp, r)
}

func (p *Provider) do(ctx context.Context, op wire.Op, r dns01.Record) error {
	if p.config.TTL > 0 {
		r.TTL = p.config.TTL
	}
	w, err := p.pool.acquire(p.path, p.config)
	if err != nil {
		return err
	}
	defer p.pool.release(w)
	return w.do(ctx, p.config.Tenant, wire.Request{Op: op, Record: r})
}

// acquire returns the worker for a configuration. The worker stays until release is called and nothing is left.
func (p *Pool) acquire(path string, c Config) (*worker, error) {
	key, err := limit.KeyOf("exec", path, c.Configuration, c.Identity)
	if err != nil {
		return nil, err
	}
	anywhere := c.Configuration // a credential is one, whoever uses it
	anywhere.Egress = nil
	credential, err := limit.KeyOf("exec", path, anywhere, c.Identity)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return nil, errors.New("the controller is ending")
	}
	w, ok := p.workers[key]
	if !ok {
		p.sweep()
		w = &worker{pool: p, key: key, credential: credential, path: path, config: c, turn: fairshare.New(1), open: map[string]struct{}{}}
		p.workers[key] = w
	}
	w.refs++
	return w, nil
}

// maxRemembered bounds the workers that are kept without a process: any tenant can cause more.
const maxRemembered = 1_000

// sweep makes room for another credential. The caller holds the mutex.
func (p *Pool) sweep() {
	if len(p.workers) < maxRemembered {
		return
	}
	for key, w := range p.workers {
		if w.refs > 0 || !w.turn.Try("") { // it works, or is about to end its process
			continue
		}
		if w.session == nil {
			delete(p.workers, key)
		}
		w.turn.Free("")
	}
}

func (p *Pool) release(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.refs--
}

// forget drops a worker that has no process and no caller.
func (p *Pool) forget(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.refs == 0 {
		delete(p.workers, w.key)
	}
}

// makeRoom ends idle processes, the one that has been idle longest first, until nobody who waits would gain by it, or
// those of the tenant itself. A process that remembers what to clean up is not ended.
func (p *Pool) makeRoom(tenant string) {
	p.mu.Lock()
	all := slices.Collect(maps.Values(p.workers))
	p.mu.Unlock()
	var idle []*worker
	for _, w := range all {
		if !w.turn.Try("") {
			continue // it works
		}
		defer w.turn.Free("")
		if w.session != nil && !w.bound() {
			idle = append(idle, w)
		}
	}
	slices.SortFunc(idle, func(a, b *worker) int { return a.used.Compare(b.used) })
	for _, w := range idle {
		if p.places.Wanted(w.holder) || w.holder == tenant && p.places.Waits(tenant) {
			w.end()
		}
	}
}

// close ends all processes.
func (p *Pool) close() {
	p.mu.Lock()
	all := slices.Collect(maps.Values(p.workers))
	p.mu.Unlock()
	for _, w := range all {
		_ = w.turn.Take(context.Background(), "", nil) // which does not end
		w.end()
		w.turn.Free("")
	}
}
