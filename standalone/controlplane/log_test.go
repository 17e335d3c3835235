package controlplane

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/klog/v2"
)

// What was abandoned at a stop still talks: it must not bring back a directory that has been removed, nor end the
// process.
func TestNothingComesAfterTheStop(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	l := openLog(filepath.Join(dir, "controlplane.log"))
	if _, err := l.Write([]byte("before\n")); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(l.path); err != nil || string(text) != "before\n" {
		t.Fatalf("the log says %q, %v", text, err)
	}
	l.stop()
	exited := make(chan struct{})
	go func() {
		klog.OsExit(255)
		close(exited)
	}()
	l.close()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if n, err := l.Write([]byte("after\n")); n != len("after\n") || err != nil {
		t.Errorf("%d %v", n, err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory is back: %v", err)
	}
	select {
	case <-exited:
		t.Error("klog.Fatal goes on after the exit that it has asked for")
	case <-time.After(50 * time.Millisecond):
	}
}
