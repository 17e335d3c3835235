package cli

import (
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

	configFile, profilerAddress string
	profiling                   bool
}

func newProcess(of component) *process {
	return &process{of: of, cfg: app.DefaultConfig(), profilerAddress: "localhost:6060"}
}

func (p *process) addFlags(cmd *cobra.Command) {
	p.server.addFlags(cmd)
	f := cmd.Flags()
	f.BoolVar(&p.profiling, "enable-profiling", false, "serve Go's profiles under /debug/pprof/")
	f.StringVar(&p.profilerAddress, "profiler-address", p.profilerAddress, "host:port to serve them on")
	f.StringVar(&p.configFile, "config", "", "file with a "+p.of.kind+" of "+p.of.version+"; flags win over it")
}

// begin completes the configuration, sets up the log, and finds the API server.
func (p *process) begin(cmd *cobra.Command) (*rest.Config, logr.Logger, error) {
	if p.configFile != "" {
		if err := readConfigFile(cmd, p.of, p.configFile); err != nil {
			return nil, logr.Logger{}, err
		}
	}
	p.switches.resolve()
	if p.profiling {
		p.cfg.ProfilerAddress = p.profilerAddress
	}
	return p.server.begin(cmd)
}
