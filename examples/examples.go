// Package examples embeds the manifests of this directory, which `make demo` applies. Those in the directory demo need
// what the demo brings, or have placeholders for values that only a running system knows. The others work as they are:
// kubectl apply -f examples/.
//
// The manifests are, first of all, for people to read and copy. This package does not know Kubernetes or the kinds in
// the manifests: it returns text.
package examples

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

//go:embed *.yaml demo/*.yaml
var files embed.FS

// placeholder is ${NAME}, as the shell and envsubst write it.
var placeholder = regexp.MustCompile(`\$\{([A-Z][A-Z0-9_]*)\}`)

// Files are the manifests: one or more YAML documents each, to be applied in the order of their names. The names of
// directories do not count.
func Files() fs.FS { return files }

// Names returns the paths of the manifests in a directory, and in the directories right below it, in the order in which
// they are to be applied.
func Names(dir fs.FS) ([]string, error) {
	names, err := fs.Glob(dir, "*.yaml")
	if err != nil {
		return nil, err
	}
	below, err := fs.Glob(dir, "*/*.yaml")
	names = append(names, below...)
	slices.SortStableFunc(names, func(a, b string) int { return strings.Compare(path.Base(a), path.Base(b)) })
	return names, err
}

// Expand replaces every ${NAME} in a manifest by its value. Lines that are comments stay as they are. A name without a
// value is an error that says which names there are.
func Expand(manifest string, values map[string]string) (string, error) {
	var missing []string
	var out strings.Builder
	for line := range strings.Lines(manifest) {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			out.WriteString(line)
			continue
		}
		out.WriteString(placeholder.ReplaceAllStringFunc(line, func(match string) string {
			name := placeholder.FindStringSubmatch(match)[1]
			value, ok := values[name]
			if !ok {
				missing = append(missing, match)
			}
			return value
		}))
	}
	if len(missing) != 0 {
		return "", fmt.Errorf("no value for %s: the placeholders are %s",
			strings.Join(missing, ", "), strings.Join(slices.Sorted(maps.Keys(values)), ", "))
	}
	return out.String(), nil
}
