package cli

import (
	"slices"
	"testing"
)

// TestSwitchesOf: each switch of a running cert-manager has its fate, and what chancery does not start with is named.
func TestSwitchesOf(t *testing.T) {
	t.Parallel()
	s := SwitchesOf(false, []string{
		"--v=2", "--kube-api-qps", "50", "--vmodule=a=3", "--feature-gates=ServerSideApply=true,NameConstraints=true", "--max-concurrent-chalenges=7", "nonsense", "-v", "3",
	}, []byte("apiVersion: controller.config.cert-manager.io/v1alpha1\nkind: ControllerConfiguration\nenableCertificateOwnerRef: true\n"))
	want := []Fate{
		{Switch: "--v=2"},
		{Switch: "--kube-api-qps=50", Why: "the API server protects itself, by API Priority and Fairness"},
		{Switch: "--vmodule=a=3", Unmet: true, Why: "--v is for all of the program"},
		{Switch: "--feature-gates=ServerSideApply=true,NameConstraints=true"},
		{Switch: "--max-concurrent-chalenges=7", Refused: true, Why: "unknown flag: --max-concurrent-chalenges: did you mean --max-concurrent-challenges?"},
		{Switch: "nonsense", Refused: true, Why: "it is no flag"},
		{Switch: "-v=3"},
		{Switch: "NameConstraints=true"},
		{Switch: "ServerSideApply=true", Unmet: true, Why: "statuses are written by patches"},
	}
	if !slices.Equal(s.Fates, want) {
		t.Errorf("got\n%+v\nwant\n%+v", s.Fates, want)
	}
	if !s.Sets("enable-certificate-owner-ref") || s.Sets("cluster-resource-namespace") {
		t.Error("the file is not read, or something is read that nobody has set")
	}
	if got := SwitchesOf(true, []string{"--enable-apiservices-injectable=false", "--feature-gates=AllAlpha=true"}, nil).Fates; len(got) != 3 || got[0].Refused || got[1].Refused {
		t.Errorf("cainjector: %+v", got)
	}
	if got := SwitchesOf(false, nil, []byte("kind: Other\n")).Fates; len(got) != 1 || !got[0].Refused {
		t.Errorf("a file of another kind: %+v", got)
	}
}
