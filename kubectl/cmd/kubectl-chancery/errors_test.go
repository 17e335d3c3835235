package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"chancery.dev/internal/rig"
	"chancery.dev/kubectl/internal/plugin"
)

// TestErrors: whatever goes wrong, the error says what is wrong, where, and what helps.
func TestErrors(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	good := rig.Kubeconfig(t, w.Admin, w.Namespace)
	stranger := *w.Admin
	stranger.CertData, stranger.KeyData, stranger.CertFile, stranger.KeyFile, stranger.BearerToken = nil, nil, "", "", "guessed"
	nobody, away, untrusted := stranger, *w.Admin, *w.Admin
	away.Host = "https://" + rig.FreeAddress(t).String()
	untrusted.CAData, untrusted.CAFile = nil, ""
	kubeconfigs := map[string]string{
		"": good, "stranger": rig.Kubeconfig(t, &nobody, w.Namespace), "away": rig.Kubeconfig(t, &away, w.Namespace),
		"untrusted": rig.Kubeconfig(t, &untrusted, w.Namespace), "bare": rig.Kubeconfig(t, rig.BareCluster(t), "default"),
		"absent": filepath.Join(t.TempDir(), "absent"), "empty": os.DevNull,
	}
	for _, c := range []struct{ command, cluster, want string }{
		{"renew none", "", `certificates "none" is not found in the namespace ` + w.Namespace + ": see which there are: kubectl get certificates -A"},
		{"renew none nothing", "", `certificates "nothing" is not found in the namespace`},
		{"approve none", "", `kubectl get certificaterequests -A`},
		{"rotate-account-key clusterissuer/none", "", `clusterissuers "none" is not found: see which there are: kubectl get clusterissuers -A`},
		{"status none", "", "see which there are: kubectl chancery list"},
		{"status gateway/none", "", "gateways"}, // other tests may install the Gateway API meanwhile, which changes the words
		{"status csr/none", "", `certificatesigningrequests "none" is not found: see`},
		{"list --as nobody", "", `User "nobody" cannot list resource "certificates" in API group "cert-manager.io" in the namespace "` +
			w.Namespace + `": ask an administrator for a role that allows it, or see what you may do: kubectl auth can-i --list`},
		{"renew web --as nobody", "", "kubectl auth can-i --list"},
		{"list", "stranger", "the cluster does not know you"},
		{"list", "away", "cannot connect to " + away.Host + ": dial tcp"},
		{"status web", "away", "kubectl cluster-info"},
		{"takeover check", "away", "kubectl cluster-info"},
		{"list", "untrusted", "its certificate is not trusted"},
		{"list", "bare", "does not have the resource certificates: is Chancery installed there? If not: chancery install"},
		{"renew web", "bare", "is Chancery installed there? If not: chancery install"},
		{"list", "absent", "kubectl config get-contexts"},
		{"list", "empty", "kubectl config get-contexts"},
		{"list --context none", "", `context was not found for specified context: none: name a cluster with --context or --kubeconfig; see which there are: kubectl config get-contexts`},
		{"support-bundle", "away", "cannot connect to " + away.Host},
		{"create request q --dns-names a.example.com --issuer ca -n none", "", `namespaces "none" not found: name another with -n; see which there are: kubectl get namespaces`},
		{"lsit", "", "Did you mean this?\n\tlist"},
		{"takeover chekc", "", "do you mean kubectl chancery takeover check?"},
		{"takeover now", "", `unknown command "now": see kubectl chancery takeover --help`},
		{"list --not-raedy", "", "unknown flag: --not-raedy: do you mean --not-ready?"},
		{"list --everything", "", "unknown flag: --everything: see kubectl chancery list --help"},
		{"list --expiring", "", "flag needs an argument: --expiring: see kubectl chancery list --help"},
		{"list web", "", "use it as in kubectl chancery list; see kubectl chancery list --help"},
		{"approve", "", "use it as in kubectl chancery approve CERTIFICATEREQUEST; see kubectl chancery approve --help"},
	} {
		var out bytes.Buffer
		cmd := root(plugin.Streams{In: strings.NewReader(""), Out: &out, ErrOut: &out})
		args := strings.Fields(c.command)
		cmd.SetArgs(slices.Insert(args, 1, "--kubeconfig", kubeconfigs[c.cluster]))
		err := cmd.ExecuteContext(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, cluster %q: %v\nwant: %s", c.command, c.cluster, err, c.want)
		}
	}
}
