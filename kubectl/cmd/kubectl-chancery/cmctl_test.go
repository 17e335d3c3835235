package main

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"chancery.dev/kubectl/internal/plugin"
)

// cmctl has the commands of cmctl with their flags, but for those of kubectl; a shorthand comes after a comma.
var cmctl = map[string]string{
	"approve cr": "reason message", "deny cr": "reason message",
	"renew crt":                    "all all-namespaces,A selector,l",
	"check api":                    "wait interval",
	"create certificaterequest cr": "fetch-certificate from-certificate-file output-certificate-file output-key-file timeout",
	"create cr cr":                 "fetch-certificate",
	"experimental create certificatesigningrequest csr": "fetch-certificate,w from-certificate-file,f output-certificate-file,c output-key-file,k timeout",
	"x create csr csr":            "timeout",
	"inspect secret secret":       "",
	"status certificate crt":      "",
	"version":                     "client output,o short",
	"completion bash":             "",
	"completion fish":             "",
	"completion powershell":       "",
	"completion zsh":              "",
	"convert":                     "allow-missing-template-keys filename,f kustomize,k output,o output-version recursive,R show-managed-fields template",
	"upgrade migrate-api-version": "burst qps skip-stored-version-check",
	"experimental install":        "dry-run registry-config repository-cache repository-config set values,f version",
	"experimental uninstall":      "dry-run no-hooks registry-config release-name repository-cache repository-config",
}

// ofKubectl are the flags that commands of cmctl have which ask a cluster.
const ofKubectl = "as as-group as-uid as-user-extra cache-dir certificate-authority client-certificate client-key cluster context " +
	"disable-compression insecure-skip-tls-verify kubeconfig namespace,n request-timeout server,s tls-server-name token user"

// TestCmctl: a command of cmctl works here with its flags, or docs/kubectl.md says why not.
func TestCmctl(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/kubectl.md")
	if err != nil {
		t.Fatal(err)
	}
	for line, flags := range cmctl {
		words := strings.Fields(line)
		cmd, args, err := root(plugin.Streams{}).Find(words)
		if err == nil {
			err = cmd.ValidateArgs(args)
		}
		if err != nil || cmd.HasSubCommands() {
			if !strings.Contains(string(text), "\n| `"+line+"` | ") {
				t.Errorf("cmctl %s is not taken (%v), and docs/kubectl.md does not say why", line, err)
			}
			continue
		}
		if words[0] != "completion" {
			flags += " " + ofKubectl
		}
		for _, flag := range strings.Fields(flags) {
			if !takes(cmd, flag) {
				t.Errorf("cmctl %s has the flag --%s, which is not taken", line, flag)
			}
		}
	}
}

func takes(cmd *cobra.Command, flag string) bool {
	name, shorthand, _ := strings.Cut(flag, ",")
	f := cmd.Flags().Lookup(name)
	return f != nil && (shorthand == "" || f.Shorthand == shorthand)
}
