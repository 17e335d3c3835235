package waits

import (
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
)

// TestSelector: the hints and the documentation find the Pods of the controller however they were installed.
func TestSelector(t *testing.T) {
	t.Parallel()
	chosen, err := labels.Parse(selector)
	if err != nil {
		t.Fatal(err)
	}
	for by, pod := range map[string]labels.Set{
		"chancery install": {nameLabel: "chancery-controller"},
		"the chart":        {nameLabel: "cert-manager", componentLabel: "controller"},
	} {
		if !chosen.Matches(pod) || !isController(pod, false) {
			t.Errorf("the Pods by %s are not chosen", by)
		}
	}
	for _, page := range []string{"alerts.md", "operations.md"} {
		text, err := os.ReadFile("../../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, " logs ") && strings.Contains(line, "kubectl ") && !strings.Contains(line, "-l '"+selector+"'") {
				t.Errorf("%s looks at the log of some controllers only: %s", page, line)
			}
		}
	}
}
