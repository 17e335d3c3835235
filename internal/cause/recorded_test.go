package cause

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRecordedRefusals: what API servers of other versions have answered is taken for what it is. make record-refusals
// adds a version.
func TestRecordedRefusals(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "refusals", "v*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no answers are recorded: %v", err)
	}
	want := map[string]Class{
		"a quota": Quota, "a policy": Admission, "a webhook that nobody is behind": Webhook, "a right that is missing": Rights,
		"a Namespace that is being deleted": NamespaceTerminating, "an immutable Secret": Immutable, "a type that stays": Immutable,
		"a label": Invalid, "a large Secret": TooLarge, "large annotations": TooLarge, "a large request": TooLarge,
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var answers map[string]metav1.Status
		if err := json.Unmarshal(text, &answers); err != nil || len(answers) != len(want) {
			t.Fatalf("%s has %d answers, not %d: %v", file, len(answers), len(want), err)
		}
		for name, class := range want {
			if got := OfWrite(&apierrors.StatusError{ErrStatus: answers[name]}, "Secret web"); got == nil || got.Class != string(class) {
				t.Errorf("%s: %s is %v, and not %s", file, name, got, class)
			}
		}
	}
}
