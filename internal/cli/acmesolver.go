package cli

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/spf13/cobra"

	"chancery.dev/internal/solver/http01"
)

// newACMESolverCommand answers one HTTP-01 challenge. Its flags are those of cert-manager's acmesolver.
func newACMESolverCommand() *cobra.Command {
	var answer http01.ACMESolver
	port := 8089
	cmd := &cobra.Command{
		Use:   "acmesolver",
		Short: "Answer one HTTP-01 challenge, as the pods of challenges do",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if answer.Domain == "" || answer.Token == "" || answer.Key == "" {
				return errors.New("--domain, --token and --key must be given")
			}
			listener, err := (&net.ListenConfig{}).Listen(cmd.Context(), "tcp", net.JoinHostPort("", strconv.Itoa(port)))
			if err != nil {
				return fmt.Errorf("listen for the HTTP-01 challenge: %w: choose another --listen-port", err)
			}
			return http01.Serve(cmd.Context(), listener, answer)
		},
	}
	f := cmd.Flags()
	f.IntVar(&port, "listen-port", port, "port to answer on")
	f.StringVar(&answer.Domain, "domain", "", "host that is asked for the answer")
	f.StringVar(&answer.Token, "token", "", "token of the challenge")
	f.StringVar(&answer.Key, "key", "", "answer: the key authorization")
	return cmd
}

// actAsACMESolver makes a command without a subcommand do what acmesolver does if it is given the flags of acmesolver:
// the pod of a challenge names arguments only, and the image says what runs.
func actAsACMESolver(root, solver *cobra.Command) {
	f := root.Flags()
	f.AddFlagSet(solver.Flags())
	root.Args = cobra.NoArgs
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if !f.Changed("domain") {
			return cmd.Help()
		}
		return solver.RunE(cmd, args)
	}
}
