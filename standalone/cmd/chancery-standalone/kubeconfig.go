package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"chancery.dev/standalone/controlplane"
)

// kubeconfigOptions are the flags of `kubeconfig`.
type kubeconfigOptions struct {
	dataDir        string
	out            string
	user           string
	groups         []string
	serviceAccount string
}

func newKubeconfigCommand() *cobra.Command {
	var o kubeconfigOptions
	cmd := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Write a kubeconfig for a user of the control plane",
		Long: `Write a kubeconfig with a client certificate for a user, signed by the control plane's CA.

The user has the rights that RBAC gives it. The control plane may be running or not; the address is that of its last start.`,
		Example: `  chancery-standalone kubeconfig --service-account cert-manager/cert-manager --out controller.kubeconfig
  chancery-standalone kubeconfig --user jane --group developers --out jane.kubeconfig`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return writeKubeconfig(o) },
	}
	f := cmd.Flags()
	addDataDirFlag(cmd, &o.dataDir)
	f.StringVar(&o.out, "out", "", "file to write, mode 0600 (required)")
	f.StringVar(&o.user, "user", "", "user name")
	f.StringArrayVar(&o.groups, "group", nil, "group of the user; may be repeated")
	f.StringVar(&o.serviceAccount, "service-account", "", "be known as this service account, NAMESPACE/NAME, instead of --user and --group")
	return cmd
}

func writeKubeconfig(o kubeconfigOptions) error {
	if o.out == "" {
		return errors.New("no file to write to: name one with --out")
	}
	user, groups, err := o.subject()
	if err != nil {
		return err
	}
	if err := defaultDataDir(&o.dataDir); err != nil {
		return err
	}
	config, err := controlplane.ClientFromDataDir(o.dataDir, user, groups...)
	if err != nil {
		return err
	}
	return controlplane.WriteKubeconfig(o.out, config)
}

// subject returns the user and the groups that the flags name.
func (o kubeconfigOptions) subject() (string, []string, error) {
	if o.serviceAccount == "" {
		if o.user == "" {
			return "", nil, errors.New("whose kubeconfig? name a user with --user, or a service account with --service-account")
		}
		return o.user, o.groups, nil
	}
	namespace, name, ok := strings.Cut(o.serviceAccount, "/")
	if !ok || namespace == "" || name == "" || o.user != "" || len(o.groups) != 0 {
		return "", nil, fmt.Errorf("--service-account %q must be NAMESPACE/NAME and stand without --user and --group", o.serviceAccount)
	}
	user, groups := controlplane.ServiceAccount(namespace, name)
	return user, groups, nil
}

func addDataDirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "data-dir", "", "directory for everything that survives a restart (default: chancery in $XDG_DATA_HOME or ~/.local/share)")
}

// defaultDataDir sets dir if the user did not, and makes it absolute: it is printed for use elsewhere.
func defaultDataDir(dir *string) error {
	if *dir == "" {
		home, _ := os.UserHomeDir() // "" is handled by DefaultDataDir
		d, err := controlplane.DefaultDataDir(os.Getenv("XDG_DATA_HOME"), home)
		if err != nil {
			return err
		}
		*dir = d
	}
	absolute, err := filepath.Abs(*dir)
	if err != nil {
		return fmt.Errorf("data directory %s: %w", *dir, err)
	}
	*dir = absolute
	return nil
}

// shellQuote returns s as one word of a POSIX shell.
func shellQuote(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("/._-+:@%abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", r)
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
