package pebble

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// withEnvironment runs build while the variables are set, then restores them. Pebble takes some of
// its options from the environment only, which is the whole process's, and servers start side by
// side. So the lock is the process's too: a flock on its own executable. It writes nothing.
func withEnvironment(env map[string]string, build func()) (err error) {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("pebble: %w", err)
	}
	lock, err := os.Open(exe)
	if err != nil {
		return fmt.Errorf("pebble: the lock of the environment: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }() // closing unlocks
	for {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("pebble: the lock of the environment: %w", err)
	}
	for name, value := range env {
		old, was := os.LookupEnv(name)
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("pebble: %w", err)
		}
		defer func() {
			if was {
				err = errors.Join(err, os.Setenv(name, old))
			} else {
				err = errors.Join(err, os.Unsetenv(name))
			}
		}()
	}
	build()
	return nil
}
