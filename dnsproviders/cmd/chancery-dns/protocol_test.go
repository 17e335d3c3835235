package main

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"chancery.dev/dnsproviders/internal/catalog"
	"chancery.dev/internal/cli/version"
	"chancery.dev/internal/rig/slow"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/dns01/provider/exec"
	"chancery.dev/internal/solver/dns01/wire"
)

// talk runs chancery-dns with these requests and returns its responses.
func talk(t *testing.T, environ []string, requests ...wire.Request) (responses []wire.Response) {
	t.Helper()
	var in, out bytes.Buffer
	for i, q := range requests {
		q.ID = int64(i)
		if err := json.NewEncoder(&in).Encode(q); err != nil {
			t.Fatal(err)
		}
	}
	cmd := osexec.CommandContext(t.Context(), program(t))
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = environ, &in, &out, os.Stderr
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(out.Bytes()) {
		var a wire.Response
		if err := json.Unmarshal(line, &a); err != nil {
			t.Fatal(err)
		}
		responses = append(responses, a)
	}
	if len(responses) != len(requests) {
		t.Fatalf("%d responses to %d requests", len(responses), len(requests))
	}
	return responses
}

func configure(name string, config, secrets map[string]string) wire.Request {
	return wire.Request{Op: wire.OpConfigure, Configuration: wire.Configuration{Provider: name, Config: config, Secrets: secrets}}
}

// What a tenant's Secret must not do: change the process, name files, run programs, call
// addresses, use the machine's identity.
func TestHostileSecrets(t *testing.T) {
	t.Parallel()
	touched := filepath.Join(t.TempDir(), "touched")
	external := `{"type": "external_account", "credential_source": {"executable": {"command": "touch ` + touched + `"}}, "token_url": "http://169.254.169.254/"}`
	elsewhere := `{"type": "service_account", "client_email": "x", "private_key": "y", "token_uri": "http://169.254.169.254/"}`
	for _, c := range []struct {
		name, says string
		secrets    map[string]string
	}{
		{"exec", "refused", map[string]string{"EXEC_PATH": "/bin/touch"}},
		{"manual", "refused", nil},
		{"httpreq", "refused", map[string]string{"HTTPREQ_ENDPOINT": "http://169.254.169.254/"}},
		{"hetzner", "not one of its variables", map[string]string{"HETZNER_API_TOKEN": "x", "LD_PRELOAD": "/tmp/evil.so"}},
		{"hetzner", "not one of its variables", map[string]string{"HETZNER_API_TOKEN": "x", "HTTPS_PROXY": "http://evil.test"}},
		{"hetzner", "not one of its variables", map[string]string{"HETZNER_API_TOKEN": "x", "SSL_CERT_DIR": "/tmp"}},
		{"hetzner", "not one of its variables", map[string]string{"HETZNER_API_TOKEN": "x", "LEGO_DISABLE_CNAME_SUPPORT": "true"}},
		{"hetzner", "names a file", map[string]string{"HETZNER_API_TOKEN_FILE": "/var/run/secrets/kubernetes.io/serviceaccount/token"}},
		{"hetzner", "NUL", map[string]string{"HETZNER_API_TOKEN": "x\x00PATH=/tmp"}},
		{"hetzner", "not one of its variables", map[string]string{"HETZNER_API_TOKEN=x\nPATH": "/tmp"}},
		{"hyperone", "names a file", map[string]string{"HYPERONE_PASSPORT_LOCATION": "/etc/shadow"}},
		{"infoblox", "names a file", map[string]string{"INFOBLOX_CA_CERTIFICATE": "/etc/shadow"}},
		{"transip", "names a file", map[string]string{"TRANSIP_ACCOUNT_NAME": "x", "TRANSIP_PRIVATE_KEY_PATH": "/etc/shadow"}},
		{"oraclecloud", "names a file", map[string]string{"OCI_CONFIG_FILE": "/etc/shadow"}},
		{"oraclecloud", "credentials of the machine", map[string]string{"OCI_AUTH_TYPE": "instance_principal", "OCI_COMPARTMENT_OCID": "x"}},
		{"alidns", "credentials of the machine", map[string]string{"ALICLOUD_RAM_ROLE": "x"}},
		{"route53", "may not use those of the machine", nil},
		{"route53", "names a file", map[string]string{"AWS_WEB_IDENTITY_TOKEN_FILE": "/etc/shadow", "AWS_ROLE_ARN": "x"}},
		{"route53", "names a file", map[string]string{"AWS_PROFILE": "x"}},
		{"route53", "not one of its variables", map[string]string{"AWS_ENDPOINT_URL": "http://evil.test"}},
		{"lightsail", "may not use credentials of the machine", nil},
		{"azure", "may not use those of the machine", map[string]string{"AZURE_CLIENT_ID": "x", "AZURE_SUBSCRIPTION_ID": "x", "AZURE_RESOURCE_GROUP": "y"}},
		{"azuredns", "may not use those of the machine", map[string]string{"AZURE_SUBSCRIPTION_ID": "x", "AZURE_RESOURCE_GROUP": "y"}},
		{"gcloud", "may not use credentials of the machine", map[string]string{"GCE_PROJECT": "x"}},
		{"gcloud", "JSON key of a service account", map[string]string{"GCE_SERVICE_ACCOUNT": external}},
		{"gcloud", "token_uri", map[string]string{"GCE_SERVICE_ACCOUNT": elsewhere}},
		{"gcloud", "cannot be read", map[string]string{"GCE_SERVICE_ACCOUNT": `{"type": "service_account", "client_email": []}`}},
		{"cloudflare", "line break", map[string]string{"CLOUDFLARE_DNS_API_TOKEN": "s3cret\nX-Evil: 1"}},
		{"edgedns", "is missing", map[string]string{"AKAMAI_HOST": "x"}},
	} {
		t.Run(c.name+" "+c.says, func(t *testing.T) {
			a := talk(t, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, configure(c.name, nil, c.secrets))[0]
			if a.OK || a.Class != wire.ClassConfig || !strings.Contains(a.Error, c.says) {
				t.Errorf("got %+v, want a refusal that says %q", a, c.says)
			}
			for _, v := range c.secrets {
				if len(v) > 4 && strings.Contains(a.Error, v) {
					t.Errorf("%q quotes a value", a.Error)
				}
			}
		})
	}
	if _, err := os.Stat(touched); err == nil {
		t.Error("a Secret has run a program")
	}
}

// Of no provider may a variable name a file, and none but its own may be set.
func TestCatalog(t *testing.T) {
	t.Parallel()
	all, err := catalog.Entries()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 185 {
		t.Errorf("%d providers, want lego's 190 or so", len(all))
	}
	fileLike := regexp.MustCompile(`_(FILE|PATH|EDGERC|PROFILE|PASSPORT_LOCATION)(_|$)|_CA_CERTIFICATE$`)
	for _, e := range all {
		for _, v := range slices.Concat(slices.Collect(maps.Keys(e.Credentials)), slices.Collect(maps.Keys(e.Settings))) {
			if fileLike.MatchString(v) {
				t.Errorf("%s may be told %s", e.Name, v)
			}
			if e.Check(map[string]string{v + "_FILE": "x"}) == nil {
				t.Errorf("%s may be told %s_FILE", e.Name, v)
			}
			if err := e.Check(map[string]string{v: "x"}); err != nil {
				t.Error(err)
			}
		}
		for _, v := range []string{"PATH", "HOME", "LD_PRELOAD", "HTTPS_PROXY", "GODEBUG", "SSL_CERT_FILE", "AWS_SHARED_CREDENTIALS_FILE"} {
			if e.Check(map[string]string{v: "x"}) == nil {
				t.Errorf("%s may be told %s", e.Name, v)
			}
		}
	}
	for _, name := range []string{"exec", "manual", "httpreq", "nonesuch"} {
		if _, err := catalog.Find(name); err == nil {
			t.Errorf("%s was found", name)
		}
	}
}

// lego's providers are known by their names, and say what they lack. All of them are the slow part builds: each is a
// process.
func TestEveryProviderStarts(t *testing.T) {
	t.Parallel()
	all, err := catalog.Entries()
	if err != nil {
		t.Fatal(err)
	}
	a := talk(t, nil, wire.Request{Op: wire.OpCapabilities})[0]
	if !a.OK || a.Protocol != wire.Version || len(a.Providers) != len(all) {
		t.Fatalf("capabilities: %+v", a)
	}
	for i, e := range all {
		if !slow.Runs(slow.Builds) && i%12 != 0 {
			continue
		}
		a := talk(t, []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}, configure(e.Name, nil, nil))[0]
		if strings.Contains(a.Error, "unrecognized DNS provider") || strings.Contains(a.Error, "there is no provider") {
			t.Errorf("%s: %s", e.Name, a.Error)
		}
	}
}

// lego writes the record where Chancery has found that it belongs: at the end of a CNAME,
// in that zone.
func TestLegoFollowsWhatItIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := solvers(t, w)["akamai"]
	r := record(0)
	labelled := r // of DNS-ACCOUNT-01
	labelled.FQDN = "_ujmmovf2vn55tgye." + r.FQDN
	r.Domain = "alias.elsewhere.invalid"
	p, err := w.factory(t, s.good, "")(t.Context(), dns01.Use{Config: &s.config, Namespace: "ns"})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Present(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if got := w.Values(r.FQDN); !slices.Equal(got, []string{r.Value}) {
		t.Errorf("%s holds %q", r.FQDN, got)
	}
	if err := p.Present(t.Context(), labelled); err != nil {
		t.Fatal(err)
	}
	if got := w.Values(labelled.FQDN); !slices.Equal(got, []string{r.Value}) {
		t.Errorf("%s holds %q", labelled.FQDN, got)
	}
	r.KeyAuthorization = ""
	if err := p.Present(t.Context(), r); err == nil || !strings.Contains(err.Error(), "thumbprint") {
		t.Errorf("without the key authorization: %v", err)
	}
	r.KeyAuthorization = "of.another"
	if err := p.Present(t.Context(), r); err == nil || !strings.Contains(err.Error(), "account's key has changed") {
		t.Errorf("with another key authorization: %v", err)
	}
}

// The protocol over a socket: a process of its own for each connection.
func TestServe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	socket := startServe(t, w)
	pool, err := exec.New(t.Context(), exec.Options{Programs: map[string]string{"*": "unix:" + socket}, Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	for n, secret := range []string{token, "wrong"} {
		p, err := pool.Provider(exec.Config{Configuration: wire.Configuration{Provider: "digitalocean", Secrets: map[string]string{"DO_AUTH_TOKEN": secret}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Present(t.Context(), record(n)); (err == nil) != (n == 0) {
			t.Errorf("with %q: %v", secret, err)
		}
	}
	if got := w.Values(record(0).FQDN); len(got) != 1 {
		t.Errorf("the stand-in holds %q", got)
	}
}

// A sidecar's own variables are credentials of the machine: they reach a provider only
// where those may be used.
func TestEnvironmentIsAmbient(t *testing.T) {
	t.Parallel()
	environ := []string{"PATH=" + os.Getenv("PATH"), "HETZNER_API_TOKEN=of-the-machine", "AKAMAI_ACCOUNT_SWITCH_KEY=of-the-machine", "HTTPS_PROXY=http://127.0.0.1:1"}
	for _, ambient := range []bool{false, true} {
		q := configure("hetzner", nil, nil)
		q.Ambient = ambient
		if a := talk(t, environ, q)[0]; a.OK != ambient {
			t.Errorf("ambient %t: %+v", ambient, a)
		}
	}
}

// A process that has ended is noticed at the other end of the socket, although that has
// not closed it.
func TestServeHangsUp(t *testing.T) {
	t.Parallel()
	conn, err := net.Dial("unix", startServe(t, newWorld(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte("no request\n")); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // io.EOF is not wrapped
		t.Errorf("read %d octets, %v, want the end", n, err)
	}
}

// startServe runs chancery-dns serve and returns its socket.
func startServe(t *testing.T, w *world) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	server := osexec.CommandContext(t.Context(), program(t), "serve", socket)
	// Its children are this binary too, and have to be told so.
	server.Env = append(slices.Clone(w.environ), "CHANCERY_DNS_TEST_CHILD=1")
	server.Stderr = os.Stderr
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(2 * time.Minute) // as rig.Patience
	for {                                       // the file is there a moment before anybody listens
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_ = conn.Close()
			return socket
		}
		if time.Now().After(deadline) {
			t.Fatalf("it does not listen: %v", err)
		}
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // a process, not our clock
	}
}

func TestListAndDescribe(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := list(&out); err != nil || !strings.Contains(out.String(), "hetzner ") || strings.Contains(out.String(), "httpreq") {
		t.Errorf("list: %v\n%s", err, out.String())
	}
	out.Reset()
	if err := describe(&out, "hetzner"); err != nil || !strings.Contains(out.String(), "HETZNER_API_TOKEN ") || !strings.Contains(out.String(), "name: hetzner") {
		t.Errorf("describe: %v\n%s", err, out.String())
	}
	if err := describe(&out, "exec"); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("describe exec: %v", err)
	}
	for says, args := range map[string][]string{
		"unknown command": {"nonsense"}, "accepts 1 arg": {"describe"}, "must be text or json": {"--logging-format=xml"},
	} {
		cmd := newCommand()
		cmd.SetArgs(args)
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want an error that says %q", args, err, says)
		}
	}
	for _, args := range [][]string{{"version"}, {"--version"}} {
		cmd := newCommand()
		out.Reset()
		cmd.SetOut(&out)
		cmd.SetArgs(args)
		if err := cmd.ExecuteContext(t.Context()); err != nil || !strings.HasPrefix(out.String(), "chancery-dns version "+version.Number()+", commit ") {
			t.Errorf("%q: %v, %q", args, err, out.String())
		}
	}
}
