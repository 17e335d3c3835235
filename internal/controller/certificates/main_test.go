package certificates_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"chancery.dev/internal/rig"
)

// TestMain lets the tests overlap: they mostly wait for controllers. With talkerEnv the process is a talker.
func TestMain(m *testing.M) {
	if text := os.Getenv(talkerEnv); text != "" {
		k := &talker{}
		err := json.Unmarshal([]byte(text), k)
		if err == nil {
			err = k.talk()
		}
		fmt.Fprintln(os.Stderr, "talker:", err)
		os.Exit(1)
	}
	rig.Overlap()
	os.Exit(m.Run())
}
