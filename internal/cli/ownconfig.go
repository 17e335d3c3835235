package cli

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// ownConfigVersion is the version of configuration files that have a field for each flag. Their kinds have the names of
// cert-manager's.
const ownConfigVersion = "config.chancery.dev/v1alpha1"

// environmentPrefix begins the names of the environment variables that stand for flags.
const environmentPrefix = "CHANCERY_"

// maxTypos is how many letters may differ between a variable and that of a flag which was meant.
const maxTypos = 2

// fromEnvironment sets each flag that is not on the command line from its environment variable, as CHANCERY_NAMESPACE
// for --namespace. Other variables that begin alike are not looked at: Kubernetes makes such for the Services of a
// namespace. Neither is CHANCERY_VERSION, which builders of images set for purposes of their own. One that is nearly
// the variable of a flag gets a warning.
func fromEnvironment(cmd *cobra.Command, _ []string) error {
	var errs []error
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		name := environmentPrefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		known = append(known, name)
		if value := os.Getenv(name); value != "" && !f.Changed && f.Name != "version" && f.Name != "help" {
			if err := cmd.Flags().Set(f.Name, value); err != nil {
				errs = append(errs, fmt.Errorf("the environment variable %s: %w", name, err))
			}
		}
	})
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, environmentPrefix) || slices.Contains(known, name) {
			continue
		}
		if near := nearest(name, known); distance(name, near) <= maxTypos {
			cmd.PrintErrf("warning: the environment variable %s sets no flag of %s: did you mean %s?\n", name, cmd.CommandPath(), near)
		}
	}
	return errors.Join(errs...)
}

// settings returns the flags of a command that a configuration file may set, each by its field.
func settings(cmd *cobra.Command) map[string]*pflag.Flag {
	out := map[string]*pflag.Flag{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !slices.Contains([]string{"config", "check", "help"}, f.Name) {
			out[fieldOf(f.Name)] = f
		}
	})
	return out
}

// fieldOf is the name of a flag as fields are written: acmeHttp01Mode for acme-http01-mode.
func fieldOf(flag string) string {
	words := strings.Split(flag, "-")
	for i, word := range words[1:] {
		words[i+1] = strings.ToUpper(word[:1]) + word[1:]
	}
	return strings.Join(words, "")
}

// printSettings writes the effective configuration as a file for --config. Defaults are comments in it: some flags, as
// those of the back-off, mean more than their default once they are set.
func printSettings(cmd *cobra.Command, kind string) error {
	out := &bytes.Buffer{}
	fmt.Fprintf(out, "apiVersion: %s\nkind: %s\n", ownConfigVersion, kind)
	flags := settings(cmd)
	for _, field := range slices.Sorted(maps.Keys(flags)) {
		f := flags[field]
		value := valueOf(f)
		if _, without := f.Value.(*accepted); !f.Changed && (without || value == "") {
			continue
		}
		text, err := yaml.Marshal(map[string]any{field: value})
		if err != nil {
			return err
		}
		for line := range bytes.Lines(text) {
			if !f.Changed {
				out.WriteString("# ")
			}
			out.Write(line)
		}
	}
	_, err := cmd.OutOrStdout().Write(out.Bytes())
	return err
}

// valueOf is the value of a flag as a file has it; "" for an empty list, too.
func valueOf(f *pflag.Flag) any {
	if list, is := f.Value.(pflag.SliceValue); is {
		if items := list.GetSlice(); len(items) > 0 {
			return items
		}
		return ""
	}
	text := f.Value.String()
	switch f.Value.Type() {
	case "bool":
		return text == "true"
	case "int", "int32", "int64":
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n
		}
	case "float32", "float64":
		if n, err := strconv.ParseFloat(text, 64); err == nil {
			return n
		}
	case "stringToString":
		return strings.Trim(text, "[]")
	}
	return text
}

// textValue is the value of a flag that is read by a function.
type textValue struct {
	set  func(string) error
	list bool // further values are added
	text string
	told bool
}

// String implements pflag.Value.
func (v *textValue) String() string { return v.text }

// Type implements pflag.Value.
func (v *textValue) Type() string { return "value" }

// Set implements pflag.Value.
func (v *textValue) Set(text string) error {
	if err := v.set(text); err != nil {
		return err
	}
	if v.list && v.told {
		text = v.text + "," + text
	}
	v.text, v.told = text, true
	return nil
}
