package cli

import (
	"errors"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"chancery.dev/internal/app"
)

// process is a command that runs controllers, with one of cert-manager's components as its model: its flags, its
// configuration file and its feature gates.
type process struct {
	server

	of       component
	cfg      app.Config
	switches *switches
	// validate checks what the command takes of cfg, and what it has beside cfg.
	validate func() error

	configFile, profilerAddress string
	profiling, check            bool
}

func newProcess(of component) *process {
	p := &process{of: of, cfg: app.DefaultConfig(), profilerAddress: "localhost:6060"}
	p.validate = p.cfg.Validate
	return p
}

func (p *process) addFlags(cmd *cobra.Command) {
	p.server.addFlags(cmd)
	f := cmd.Flags()
	f.BoolVar(&p.profiling, "enable-profiling", false, "serve Go's profiles under /debug/pprof/")
	f.StringVar(&p.profilerAddress, "profiler-address", p.profilerAddress, "host:port to serve them on")
	f.StringVar(&p.configFile, "config", "", "file with a "+p.of.kind+" of "+ownConfigVersion+" or "+p.of.version+"; flags and environment variables win over it")
	f.BoolVar(&p.check, "check", false, "check the configuration, print it as a file for --config, and end")
}

// run completes the configuration, and either prints the configuration or sets up the log, finds the API server, and
// does work.
func (p *process) run(cmd *cobra.Command, work func(*rest.Config, logr.Logger) error) error {
	if p.configFile != "" {
		if err := readConfigFile(cmd, p.of, p.configFile); err != nil {
			return err
		}
	}
	p.switches.resolve()
	if p.profiling {
		p.cfg.ProfilerAddress = p.profilerAddress
	}
	if p.check {
		return errors.Join(p.validate(), printSettings(cmd, p.of.kind))
	}
	rc, log, err := p.begin(cmd)
	if err != nil {
		return err
	}
	return work(rc, log)
}
