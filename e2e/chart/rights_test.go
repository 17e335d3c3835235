package chart_test

import (
	"fmt"
	"strings"
	"testing"

	"chancery.dev/e2e/beside"
	"chancery.dev/internal/rig"
)

// argsOf are the arguments of the controller.
func argsOf(t *testing.T, set string) string {
	t.Helper()
	for _, object := range beside.Objects(t, template(t, "--set", set)) {
		if object.GetKind() == "Deployment" && object.GetName() == release {
			containers := get(object.Object, []string{"spec", "template", "spec", "containers"}).([]any)
			return fmt.Sprint(containers[0].(map[string]any)["args"])
		}
	}
	t.Fatal("there is no controller")
	return ""
}

// TestSigningRequests: values of cert-manager's chart mean what they mean there, so CertificateSigningRequests are not
// signed, or approved, because a release is upgraded. A value switches them on, and NOTES name it.
func TestSigningRequests(t *testing.T) {
	const gate, off, switched = "ExperimentalCertificateSigningRequestControllers", "--csr-needs-feature-gate", "--csr-approval="
	for set, want := range map[string]string{
		"": off, "featureGates=" + gate + "=true": off, "chancery.namespaces={team}": off,
		"chancery.certificateSigningRequests=authorized": switched + "authorized",
		"chancery.certificateSigningRequests=auto":       switched + "auto",
		"chancery.certificateSigningRequests=external":   switched + "external",
	} {
		if args := argsOf(t, set); !strings.Contains(args, " "+want) || strings.Contains(args, off) && strings.Contains(args, switched) {
			t.Errorf("%q: %s, want %s", set, args, want)
		}
	}
	const value = "chancery.certificateSigningRequests"
	for _, set := range []string{value + "=sometimes", value + "=auto,featureGates=" + gate + "=false", value + "=auto,chancery.namespaces={team}"} {
		if _, errors := beside.Helm(t, "", "template", release, chartDir, "--set", set); !strings.Contains(errors, "certificateSigningRequests") {
			t.Errorf("%s: %q", set, errors)
		}
	}
	for set, want := range map[string]string{"": "set\nchancery.certificateSigningRequests: authorized", value + "=auto": "nobody is asked", value + "=external": ""} {
		if notes := notesOf(t, set); !strings.Contains(notes, want) || want == "" && strings.Contains(notes, "CertificateSigningRequest") {
			t.Errorf("%q: %s", set, notes)
		}
	}
}

// notesOf is what NOTES say.
func notesOf(t *testing.T, set string) string {
	t.Helper()
	kubeconfig := beside.Kubeconfig(t, t.TempDir(), rig.Cluster(t))
	out, errors := beside.Helm(t, kubeconfig, "install", release, chartDir, "--namespace", release, "--dry-run=client", "--take-ownership", "--set", set)
	if errors != "" {
		t.Fatal(errors)
	}
	_, notes, _ := strings.Cut(out, "\nNOTES:\n")
	return notes
}

// TestPodRights: the controller may read and sign requests of Pods on demand only, and does then.
func TestPodRights(t *testing.T) {
	for set, want := range map[string]string{"": "", "chancery.podCertificates=true": "ClusterRole [get list watch] ClusterRole [patch] Deployment"} {
		var found []string
		for _, object := range beside.Objects(t, template(t, "--set", set)) {
			rules, _ := object.Object["rules"].([]any)
			for _, rule := range rules {
				if text := fmt.Sprint(rule); strings.Contains(text, "podcertificaterequests") {
					found = append(found, object.GetKind()+" "+text[strings.LastIndex(text, "["):strings.LastIndex(text, "]")])
				}
			}
			if strings.Contains(fmt.Sprint(object.Object), " --pod-certificates") {
				found = append(found, object.GetKind())
			}
		}
		if got := strings.Join(found, " "); got != want {
			t.Errorf("%q: %q, want %q", set, got, want)
		}
	}
}

// TestTrustBundleRights: the controller may write ClusterTrustBundles on demand only, those of Issuers if these are
// meant, and does then.
func TestTrustBundleRights(t *testing.T) {
	for set, want := range map[string]string{
		"":                                      "",
		"chancery.trustBundles=cluster-issuers": "[list watch create patch delete] [cert-manager.io/* clusterissuers.cert-manager.io/*] cluster-issuers",
		"chancery.trustBundles=all":             "[list watch create patch delete] [cert-manager.io/* clusterissuers.cert-manager.io/* issuers.cert-manager.io/*] all",
	} {
		var found []string
		for _, object := range beside.Objects(t, template(t, "--set", set)) {
			rules, _ := object.Object["rules"].([]any)
			for _, rule := range rules {
				switch r, _ := rule.(map[string]any); {
				case strings.Contains(fmt.Sprint(r["resources"]), "clustertrustbundles"):
					found = append(found, fmt.Sprint(r["verbs"]))
				case strings.Contains(fmt.Sprint(r["verbs"]), "attest"):
					found = append(found, fmt.Sprint(r["resourceNames"]))
				}
			}
			if _, flag, runs := strings.Cut(fmt.Sprint(object.Object), " --trust-bundles="); runs {
				found = append(found, flag[:strings.IndexAny(flag, " ]")])
			}
		}
		if got := strings.Join(found, " "); got != want {
			t.Errorf("%q: %q, want %q", set, got, want)
		}
	}
}

// TestOwnTokens: the right to tokens of the controller's own ServiceAccount is there on demand only, unlike with
// cert-manager's chart, and NOTES say so.
func TestOwnTokens(t *testing.T) {
	for set, want := range map[string]bool{"": false, "chancery.ownServiceAccountTokens=true,serviceAccount.name=mine": true} {
		var found []string
		for _, object := range beside.Objects(t, template(t, "--set", set)) {
			if rules := fmt.Sprint(object.Object["rules"]); strings.Contains(rules, "serviceaccounts/token") {
				found = append(found, object.GetKind()+" "+rules)
			}
		}
		if len(found) > 0 != want || want && (len(found) != 1 || !strings.HasPrefix(found[0], "Role ") || !strings.Contains(found[0], "resourceNames:[mine] resources:[serviceaccounts/token]")) {
			t.Errorf("%q: %q", set, found)
		}
		if notes := notesOf(t, set); strings.Contains(notes, "chancery.ownServiceAccountTokens=true") == want {
			t.Errorf("%q: %s", set, notes)
		}
	}
}
