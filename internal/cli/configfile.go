package cli

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// The types of files for --config.
const (
	configVersion         = "controller.config.cert-manager.io/v1alpha1"
	configKind            = "ControllerConfiguration"
	injectorConfigVersion = "cainjector.config.cert-manager.io/v1alpha1"
	injectorConfigKind    = "CAInjectorConfiguration"
)

// readConfigFile sets the flags that the configuration file of a component names, unless they are on the command line
// too.
func readConfigFile(cmd *cobra.Command, of component, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	if err := applyConfig(cmd, of, data); err != nil {
		return fmt.Errorf("--config: %s: %w", path, err)
	}
	return nil
}

func applyConfig(cmd *cobra.Command, of component, data []byte) error {
	content := map[string]any{}
	if err := yaml.UnmarshalStrict(data, &content); err != nil {
		return err
	}
	if err := oneDocument(data); err != nil {
		return err
	}
	version, own := content["apiVersion"], content["apiVersion"] == ownConfigVersion
	if !own && version != of.version || content["kind"] != of.kind {
		return fmt.Errorf("must be a %s of %s or %s, not a %v of %v", of.kind, ownConfigVersion, of.version, content["kind"], version)
	}
	delete(content, "apiVersion")
	delete(content, "kind")
	flags := map[string]string{}
	if own {
		for field, f := range settings(cmd) {
			flags[field] = f.Name
		}
		return applyFields(cmd, flags, "", content)
	}
	for _, k := range of.flags {
		flags[k.field] = k.name
	}
	return applyFields(cmd, flags, "", content)
}

// oneDocument returns an error for a file with more documents than one: the fields of the others would have no effect.
func oneDocument(data []byte) error {
	documents := 0
	for text := range bytes.SplitSeq(append([]byte("\n"), data...), []byte("\n---")) {
		var content any
		if err := yaml.Unmarshal(text, &content); err != nil || content != nil {
			documents++
		}
	}
	if documents > 1 {
		return fmt.Errorf("must be one document, not %d", documents)
	}
	return nil
}

// applyFields sets the flags of the fields below a field; flags has the flag of each field that is not a struct.
func applyFields(cmd *cobra.Command, flags map[string]string, below string, content map[string]any) error {
	for _, key := range slices.Sorted(maps.Keys(content)) {
		field, value := below+key, content[key]
		flag := cmd.Flags().Lookup(flags[field])
		nested, isStruct := value.(map[string]any)
		var err error
		switch {
		case value == nil, flag != nil && isEmpty(value): // not set
		case flag != nil && flag.Changed: // the command line wins
		case flag != nil:
			err = flag.Value.Set(flagText(value))
			flag.Changed = true
		case isStruct && slices.ContainsFunc(slices.Collect(maps.Keys(flags)), func(f string) bool { return strings.HasPrefix(f, field+".") }):
			err = applyFields(cmd, flags, field+".", nested)
		default:
			return fmt.Errorf("there is no field %s: did you mean %s?", field, nearest(field, slices.Sorted(maps.Keys(flags))))
		}
		if err != nil && flag != nil {
			return fmt.Errorf("%s: %w", field, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// isEmpty reports whether a value is a list or a map without entries.
func isEmpty(value any) bool {
	list, isList := value.([]any)
	fields, isMap := value.(map[string]any)
	return isList && len(list) == 0 || isMap && len(fields) == 0
}

// flagText writes a value as it is written on a command line.
func flagText(value any) string {
	var parts []string
	switch value := value.(type) {
	case float64:
		return strconv.FormatFloat(value, 'f', -1, 64)
	case []any:
		for _, item := range value {
			parts = append(parts, flagText(item))
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			parts = append(parts, key+"="+flagText(value[key]))
		}
	default:
		return fmt.Sprint(value)
	}
	return strings.Join(parts, ",")
}
