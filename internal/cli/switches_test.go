package cli

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"chancery.dev/internal/app"
	"chancery.dev/internal/machine/request"
)

// read has a controller's flags read, with a ControllerConfiguration if there is one, and returns what they mean.
func read(t *testing.T, file string, args ...string) (*app.Config, error) {
	t.Helper()
	cfg, cmd := app.DefaultConfig(), &cobra.Command{Use: "controller"}
	(&server{}).addFlags(cmd)
	AddConfigFlags(cmd, &cfg)
	s := addSwitches(cmd, &cfg, controllerComponent())
	err := cmd.ParseFlags(args)
	if err == nil && file != "" {
		err = applyConfig(cmd, controllerComponent(), []byte("apiVersion: "+configVersion+"\nkind: "+configKind+"\n"+file))
	}
	s.resolve()
	return &cfg, err
}

// TestKnownFlags: every flag of spec §9.3 is there, or other work brings it; docs/switches.md tells of those that have
// no effect, of all feature gates and of all controllers.
func TestKnownFlags(t *testing.T) {
	spec, err := os.ReadFile("../../docs/spec/09-operations.md")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../docs/switches.md")
	if err != nil {
		t.Fatal(err)
	}
	cmd, _, err := New().Find([]string{"controller"})
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(string(spec), "Webhook flags:")
	_, text, _ = strings.Cut(text, "## 9.3")
	flags := names(knownFlags())
	for line := range strings.Lines(text) {
		name, ok := strings.CutPrefix(strings.Fields(line + " .")[0], "--")
		if !ok {
			continue
		}
		if prefix, suffixes, several := strings.Cut(name, "{"); several {
			for suffix := range strings.SplitSeq(strings.Trim(suffixes, "}"), ",") {
				if !slices.Contains(flags, prefix+suffix) {
					t.Errorf("--%s is not in the table", prefix+suffix)
				}
			}
		} else if name != "config" && !slices.Contains(flags, name) {
			t.Errorf("--%s is not in the table", name)
		}
	}
	for _, k := range knownFlags() {
		if cmd.Flags().Lookup(k.name) == nil {
			t.Errorf("there is no --%s", k.name)
		}
		if k.accepts != nil && !strings.Contains(string(doc), "`--"+k.name+"`") {
			t.Errorf("docs/switches.md does not tell of --%s", k.name)
		}
	}
	_, said, _ := strings.Cut(string(spec), "## 9.5")
	said = strings.Join(strings.Fields(said), " ")
	for _, g := range gates() {
		maturity := map[int]string{alpha: " α off", beta: " β on", ga: " GA"}[g.stage]
		if g.name != "ValidateCAA" && !strings.Contains(said, g.name+maturity) {
			t.Errorf("spec §9.5 does not have %s%s", g.name, maturity)
		}
		if !strings.Contains(string(doc), "`"+g.name+"`") {
			t.Errorf("docs/switches.md does not tell of %s", g.name)
		}
	}
	for _, name := range controllerNames() {
		if begin, _, _ := strings.Cut(name, "issuer-"); !strings.Contains(string(doc), "`"+begin) {
			t.Errorf("docs/switches.md does not tell of %s", name)
		}
	}
}

// TestSwitches: what is asked for is done, or named.
func TestSwitches(t *testing.T) {
	csrs := app.SigningRequestControllerNames()
	for what, c := range map[string]struct {
		args []string
		want func(*app.Config) bool
		off  []string
		// unmet begins the words about what is not done.
		unmet []string
	}{
		"nothing":           {nil, nil, nil, nil},
		"what holds anyway": {[]string{"--feature-gates=ACMEUseARI=true,NameConstraints=true,ServerSideApply=false,ValidateCAA=true", "--kube-api-qps=3", "--max-private-key-size=13000", "--controllers=*"}, nil, nil, nil},
		"gates on and off": {
			[]string{"--feature-gates=ACMEUseARI=false", "--feature-gates=ACMEHTTP01IngressPathTypeExact=false,ListenerSets=false"},
			func(c *app.Config) bool { return c.ACME.NoARI && c.ACME.LoosePaths }, []string{app.ControllerListenerSet}, nil,
		},
		"gates that cannot be had":                       {[]string{"--feature-gates=OtherNames=false,ServerSideApply=true"}, nil, nil, []string{"OtherNames=false", "ServerSideApply=true"}},
		"CertificateSigningRequests":                     {[]string{"--feature-gates=" + csrGate + "=false"}, nil, csrs, nil},
		"CertificateSigningRequests by default as there": {[]string{"--csr-needs-feature-gate"}, approvedBy(request.ApproveExternal), csrs, nil},
		"CertificateSigningRequests by a gate":           {[]string{"--csr-needs-feature-gate", "--feature-gates=" + csrGate + "=true"}, approvedBy(request.ApproveExternal), nil, nil},
		"CertificateSigningRequests by all alpha":        {[]string{"--csr-needs-feature-gate", "--feature-gates=AllAlpha=true,ServerSideApply=false,UseCertificateRequestBasicConstraints=false"}, approvedBy(request.ApproveExternal), nil, nil},
		"CertificateSigningRequests but for all alpha":   {[]string{"--csr-needs-feature-gate", "--feature-gates=AllAlpha=true,ServerSideApply=false,UseCertificateRequestBasicConstraints=false," + csrGate + "=false"}, nil, csrs, nil},
		"CertificateSigningRequests by name":             {[]string{"--csr-needs-feature-gate", "--controllers=*," + csrs[0]}, approvedBy(request.ApproveExternal), csrs[1:], nil},
		"CertificateSigningRequests and who approves":    {[]string{"--csr-needs-feature-gate", "--csr-approval=authorized", "--feature-gates=" + csrGate + "=true"}, approvedBy(request.ApproveAuthorized), nil, nil},
		"all beta, but one":                              {[]string{"--feature-gates=AllBeta=false,NameConstraints=true,OtherNames=true,LiteralCertificateSubject=true,SecretsFilteredCaching=true"}, func(c *app.Config) bool { return c.ACME.LoosePaths }, []string{app.ControllerGatewayShim, app.ControllerListenerSet}, []string{"StableCertificateRequestName=false"}},
		"all alpha as there":                             {[]string{"--feature-gates=AllAlpha=false"}, nil, nil, nil},
		"all alpha":                                      {[]string{"--feature-gates=AllAlpha=true"}, nil, nil, []string{"ServerSideApply=true", "UseCertificateRequestBasicConstraints=true"}},
		"all but the approver":                           {[]string{"--controllers=*,-certificaterequests-approver"}, nil, []string{app.ControllerApprover}, nil},
		"a list":                                         {[]string{"--controllers=*", "--controllers=-orders,-challenges"}, nil, []string{app.ControllerOrders, app.ControllerChallenges}, nil},
		"a part of a controller":                         {[]string{"--controllers=*,-certificates-trigger,-certificates-readiness"}, nil, nil, []string{"--controllers=-certificates-trigger,-certificates-readiness"}},
		"flags without effect":                           {[]string{"--vmodule=x=9", "--max-private-key-size=1"}, nil, nil, []string{"--max-private-key-size", "--vmodule"}},
		"a flag set back":                                {[]string{"--vmodule=x=9", "--vmodule="}, nil, nil, nil},
		"a list without stars":                           {[]string{"--controllers=" + strings.Join(slices.DeleteFunc(app.ControllerNames(), func(n string) bool { return slices.Contains(csrs, n) }), ",")}, nil, csrs, nil},
		"a list to which a gate adds":                    {[]string{"--feature-gates=" + csrGate + "=true", "--controllers=" + strings.Join(slices.DeleteFunc(app.ControllerNames(), func(n string) bool { return slices.Contains(csrs, n) }), ",")}, nil, nil, nil},
	} {
		cfg, err := read(t, "", c.args...)
		if err != nil || c.want != nil && !c.want(cfg) || !slices.Equal(cfg.Off(), c.off) {
			t.Errorf("%s: error %v, %+v, off %q", what, err, cfg.ACME, cfg.Off())
		}
		if !slices.EqualFunc(cfg.Unmet, c.unmet, func(got, want string) bool { return strings.HasPrefix(got, want+" (") }) {
			t.Errorf("%s: unmet %q, want %q", what, cfg.Unmet, c.unmet)
		}
	}
}

// approvedBy checks who approves CertificateSigningRequests of the form that is approved automatically by default.
func approvedBy(want request.Approver) func(*app.Config) bool {
	return func(c *app.Config) bool { return c.CSRApprovers[request.FormCSR] == want }
}

// TestConfigFile: a file sets what flags set, flags win, and both are checked alike.
func TestConfigFile(t *testing.T) {
	cfg, err := read(t, `
logging: {verbosity: 2, format: json, flushFrequency: 5s}
leaderElectionConfig: {namespace: elsewhere, leaseDuration: 90s, enabled: false}
kubernetesAPIQPS: 9000
kubernetesAPIBurst: 9000000
numberOfConcurrentWorkers: 200
namespace: null
copiedAnnotationPrefixes: ["*", "-example.com/"]
featureGates: {ACMEUseARI: false}
controllers: ["*", "-orders"]
acmeDNS01Config: {recursiveNameservers: ["192.0.2.1:53", "192.0.2.2:53"], checkRetryPeriod: 20s}
acmeHTTP01Config: {solverNameservers: ["192.0.2.3:53"]}
gatewayAPI: {enabled: true, extraProtocols: [DTLS]}
pemSizeLimitsConfig: {maxBundleSize: 400000}
`, "--concurrent-workers=7", "--feature-gates=OtherNames=true")
	if err != nil {
		t.Fatal(err)
	}
	got := []any{cfg.LeaderElectionNamespace, cfg.LeaseDuration.String(), cfg.LeaderElect, cfg.Workers, cfg.ACME.NoARI, cfg.ACME.CheckRetryPeriod.String(), cfg.Shims.Gateways}
	if want := []any{"elsewhere", "1m30s", false, 7, false, "20s", true}; !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	lists := slices.Concat(cfg.CopiedAnnotationPrefixes, cfg.ACME.RecursiveNameservers, cfg.ACME.HTTP01Nameservers, cfg.Off(), cfg.Shims.Settings.ExtraProtocols)
	if want := []string{"*", "-example.com/", "192.0.2.1:53", "192.0.2.2:53", "192.0.2.3:53", "orders", "DTLS"}; !slices.Equal(lists, want) {
		t.Errorf("got %q\nwant %q", lists, want)
	}
	if len(cfg.Unmet) != 1 || !strings.HasPrefix(cfg.Unmet[0], "--max-certificate-bundle-size (") {
		t.Errorf("unmet %q", cfg.Unmet)
	}
}

// TestWrongSwitches: what is not known is refused, with the name that comes nearest.
func TestWrongSwitches(t *testing.T) {
	for _, c := range []struct {
		file string
		args []string
		want string
	}{
		{"", []string{"--feature-gates=ACMEUseAri=true"}, `there is no feature gate "ACMEUseAri": did you mean ACMEUseARI?`},
		{"", []string{"--feature-gates=ACMEUseARI"}, `must be NAME=true or NAME=false, not "ACMEUseARI"`},
		{"", []string{"--controllers=*,-certificaterequest-aprover"}, `there is no controller "certificaterequest-aprover": did you mean certificaterequests-approver?`},
		{"", []string{"--controllers=listenerset"}, `there is no controller "listenerset": did you mean `},
		{"", []string{"--kube-api-burst=many"}, "must be of the form 50"},
		{"numberOfConcurentWorkers: 5", nil, "there is no field numberOfConcurentWorkers: did you mean numberOfConcurrentWorkers?"},
		{"leaderElectionConfig: {leaseTime: 5s}", nil, "there is no field leaderElectionConfig.leaseTime: did you mean leaderElectionConfig."},
		{"leaderElectionConfig: 5", nil, "there is no field leaderElectionConfig: did you mean "},
		{"leaderElectionConfig: {leaseDuration: soon}", nil, "leaderElectionConfig.leaseDuration: time: invalid duration"},
		{"featureGates: {X: true}", nil, `featureGates: there is no feature gate "X"`},
		{"kind: Deployment", nil, `already set in map`},
		{"# the last ---\n---\nissuerEgressDeny: [10.0.0.0/8]", nil, "must be one document, not 2"},
	} {
		if _, err := read(t, c.file, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q %q: %v, want %q", c.file, c.args, err, c.want)
		}
	}
	root := New()
	root.SetArgs([]string{"controller", "--leader-electt"})
	if err := root.Execute(); err == nil || !strings.HasSuffix(err.Error(), "did you mean --leader-elect?") {
		t.Error(err)
	}
	root = New()
	root.SetArgs([]string{"controller", "--config=/does/not/exist"})
	if err := root.Execute(); err == nil || !strings.Contains(err.Error(), "--config: open /does/not/exist") {
		t.Error(err)
	}
}

// TestEmptyFields: an empty list or map in a file is a field that is not set.
func TestEmptyFields(t *testing.T) {
	cfg, err := read(t, `
controllers: []
featureGates: {}
copiedAnnotationPrefixes: []
ingressShimConfig: {defaultAutoCertificateAnnotations: []}
acmeHTTP01Config: {solverExtraLabels: {}, solverNameservers: []}
metricsTLSConfig: {}
`)
	if want := app.DefaultConfig(); err != nil || len(cfg.Off()) > 0 || !slices.Equal(cfg.CopiedAnnotationPrefixes, want.CopiedAnnotationPrefixes) ||
		!slices.Equal(cfg.Shims.Settings.AutoAnnotations, want.Shims.Settings.AutoAnnotations) {
		t.Errorf("%v: %+v", err, cfg)
	}
}
