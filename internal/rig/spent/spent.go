// Package spent records the time that tests do not spend on their own work, but on the start of servers and controllers
// and on waits for a clock. At the end of a run, the command in internal/rig/outcome adds up these times. The package
// does not change what a test does, and does not measure Chancery itself.
package spent

import (
	"fmt"
	"os"
	"time"
)

// Variable names the file that the notes are appended to, a line each: seconds, a tab, and what they were spent on.
// Without it nothing is noted.
const Variable = "CHANCERY_TEST_TIMES"

// On notes that the time since began was spent on something: "control planes", say. A note that cannot be written is
// left out: no test is to fail because of it.
func On(what string, began time.Time) {
	path := os.Getenv(Variable)
	if path == "" {
		return
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	// One write: notes of processes that run side by side do not mix.
	_, _ = fmt.Fprintf(file, "%.3f\t%s\n", time.Since(began).Seconds(), what)
	_ = file.Close()
}
