package catalog

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// providers is the package of lego that knows all its providers.
const providers = "github.com/go-acme/lego/v5/providers/dns"

// source is a package outside of the standard library.
type source struct {
	ImportPath, Dir  string
	Standard         bool
	Imports, GoFiles []string
}

// opens matches code that may connect past http.DefaultTransport: a transport or dialer of its own, a pool of
// connections, gRPC, DNS, or another choice of the proxy, which is where redirects are judged.
var opens = regexp.MustCompile(`http\.Transport\{|new\(http\.Transport\)|net\.Dial|tls\.Dial|fasthttp|cleanhttp\.Default|` +
	`grpc\.(Dial|NewClient)|dns\.Client\{|new\(dns\.Client\)|dns\.Exchange|\.Proxy = `)

var comment = regexp.MustCompile(`(?m)^\s*//.*$`)

// sources returns the packages that lego's providers are made of, by their import paths.
func sources(t *testing.T) map[string]source {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Dir,Standard,Imports,GoFiles", providers)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, cmd.Stderr)
	}
	all := map[string]source{}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var s source
		if err := decoder.Decode(&s); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[s.ImportPath] = s
	}
}

// opener returns a file of a package, or of one that it is made of, that may connect by itself; empty if none does.
// What lego itself asks DNS is answered in this process, and the library for it is looked at where it is used.
func opener(t *testing.T, all map[string]source, path string, seen map[string]bool) string {
	t.Helper()
	s, known := all[path]
	if !known || s.Standard || seen[path] || strings.HasPrefix(path, "github.com/go-acme/lego/v5/challenge") || path == "github.com/miekg/dns" {
		return ""
	}
	seen[path] = true
	for _, name := range s.GoFiles {
		text, err := os.ReadFile(filepath.Join(s.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if opens.Match(comment.ReplaceAll(text, nil)) {
			return path + "/" + name
		}
	}
	for _, used := range s.Imports {
		if found := opener(t, all, used, seen); found != "" {
			return found
		}
	}
	return ""
}

// TestJudged: a provider is called judged exactly if no code that it is made of may connect past
// http.DefaultTransport. With another version of lego, this names what to add to Unjudged or to take out of it.
func TestJudged(t *testing.T) {
	t.Parallel()
	all := sources(t)
	text, err := os.ReadFile(filepath.Join(all[providers].Dir, "zz_gen_dns_providers.go"))
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string]string{} // by the names of the provider
	for _, match := range regexp.MustCompile(`case (.*):\n\s*return (\w+)\.NewDNSProvider`).FindAllStringSubmatch(string(text), -1) {
		for name := range strings.SplitSeq(match[1], ", ") {
			packages[strings.Trim(name, `"`)] = providers + "/" + match[2]
		}
	}
	entries, err := Entries()
	if err != nil {
		t.Fatal(err)
	}
	written := map[string]bool{} // those that chancery-dns writes by itself: TestForbiddenAddresses
	for _, e := range native() {
		written[e.Name] = true
	}
	judged := 0
	for _, e := range entries {
		if e.Judged() {
			judged++
		}
		if written[e.Name] {
			continue
		}
		path := packages[e.Name]
		if _, known := all[path]; !known {
			t.Errorf("%s: no package of lego is known by this name", e.Name)
			continue
		}
		if found := opener(t, all, path, map[string]bool{}); (found == "") != e.Judged() {
			t.Errorf("%s: judged %t, but what may connect by itself is %q", e.Name, e.Judged(), found)
		}
	}
	if len(Unjudged())+judged != len(entries) {
		t.Errorf("%d are judged and %d are not, of %d providers: a name in Unjudged is wrong", judged, len(Unjudged()), len(entries))
	}
}

// TestUnjudgedAreDocumented: the page that users read names the providers that need a NetworkPolicy.
func TestUnjudgedAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/dns-providers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "## Where a provider connects to")
	section, _, _ := strings.Cut(rest, "\n## ")
	_, list, _ := strings.Cut(section, "These are not judged:")
	var names []string
	for _, match := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(list, -1) {
		names = append(names, match[1])
	}
	if want := Unjudged(); !slices.Equal(names, want) {
		t.Errorf("the page names %q\nwant %q", names, want)
	}
}
