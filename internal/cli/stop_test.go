package cli

import (
	"syscall"
	"testing"
	"time"
)

// TestSignalsThatComeTogether: timeout(1) signals a process and then its group. The second of two
// signals at once is no impatience: it would end the process in the middle of a clean stop, as it would end this test.
func TestSignalsThatComeTogether(t *testing.T) {
	ctx := UntilStopped()
	signal := func() {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	signal()
	<-ctx.Done()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for n := 0; n < 20 && time.Since(began) < impatience/4; n++ { // later they would be impatient
		signal()
		<-tick.C
	}
}
