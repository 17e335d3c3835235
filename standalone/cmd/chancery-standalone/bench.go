package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"chancery.dev/standalone/bench"
)

func newBenchCommand() *cobra.Command {
	var o bench.Options
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what certificates cost: requests, time, CPU, memory",
		Long: `Issue certificates on a control plane of their own, in a temporary directory, and print what each one costs: requests to
the API server by verb and resource, latency, rate, and CPU and memory of the controller, which is a process of its own.
Beside them stand ceilings measured in the same run. From 200 certificates on, the first are compared with the last.

It needs Linux, and the binary chancery beside this one or in $CHANCERY_BIN.`,
		Example: `  chancery-standalone bench --certificates 1000 --scenario ca
  chancery-standalone bench --scenario rest --unrelated 30000
  chancery-standalone bench --certificates 1000 --scenario waiting
  chancery-standalone bench --scenario ca,acme-dns01 --controller /opt/cert-manager/controller
  chancery-standalone bench --certificates 1000 --scenario csr --concurrency 1000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := findBinaries(&o); err != nil {
				return err
			}
			o.Progress = cmd.ErrOrStderr()
			report, err := bench.Run(cmd.Context(), o)
			if err != nil && cmd.Context().Err() != nil {
				err = errInterrupted
			}
			if report == nil {
				return err
			}
			if asJSON {
				encoder := json.NewEncoder(cmd.OutOrStdout())
				encoder.SetIndent("", "  ")
				return errors.Join(err, encoder.Encode(report), report.Exceeded())
			}
			return errors.Join(err, report.WriteText(cmd.OutOrStdout()), report.Exceeded())
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Certificates, "certificates", 100, "how many certificates to issue in each scenario")
	f.StringSliceVar(&o.Scenarios, "scenario", bench.DefaultScenarios(), "what to measure: "+strings.Join(bench.Scenarios(), ", "))
	f.IntVar(&o.Concurrency, "concurrency", 10, "how many certificates are under way at once")
	f.BoolVar(&o.Routes, "routes", false, "have the scenario acme-http01 make an Ingress for each Challenge, as on a cluster")
	f.IntVar(&o.AtRest, "at-rest", 10_000, "up to how many certificates the scenario rest fills the namespace, without issuing them")
	f.IntVar(&o.Unrelated, "unrelated", 0, "how many Secrets of 10 kB that are none of ours the scenario rest adds")
	f.IntVar(&o.Hanging, "hanging", 1000, "how many issuers whose servers never answer the scenario hanging has in another namespace")
	f.IntVar(&o.Definitions, "definitions", 2000, "how many definitions with a conversion webhook the scenario injection makes")
	f.DurationVar(&o.Window, "window", time.Minute, "how long the scenarios waiting and postponed look at challenges whose records never appear, and shims and injection at what is at rest")
	f.StringVar(&o.Other, "controller", "", "program of another controller, which does each scenario after ours: cert-manager's, or another build")
	f.StringArrayVar(&o.OtherArguments, "controller-arg", nil, "argument for it, such as --v=2, beside the flags that its help names; may be repeated")
	f.BoolVar(&asJSON, "json", false, "print the report as JSON")
	return cmd
}

// findBinaries finds this program's own file, for the control plane, and the controller's.
func findBinaries(o *bench.Options) error {
	var err error
	if o.Standalone, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program's own file: %w", err)
	}
	if o.Controller = os.Getenv("CHANCERY_BIN"); o.Controller == "" {
		o.Controller = filepath.Join(filepath.Dir(o.Standalone), "chancery")
	}
	if o.Other != "" {
		if _, err := os.Stat(o.Other); err != nil {
			return fmt.Errorf("--controller: the program is not there: %w", err)
		}
	}
	if _, err := os.Stat(o.Controller); err != nil {
		return fmt.Errorf("the controller's binary is not there: build it with `make build-chancery`, or name it in CHANCERY_BIN: %w", err)
	}
	return nil
}
