package controlplane

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// dataDir is the locked directory of one control plane.
type dataDir struct {
	root string
	lock *os.File
}

// openDataDir creates the directory if needed and locks it. The lock belongs to the open file, so the kernel frees it
// however the process dies.
func openDataDir(root string) (*dataDir, error) {
	if root == "" {
		return nil, errors.New("no data directory given: name one with --data-dir")
	}
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", root, err)
	}
	for _, sub := range []string{"", "etcd", "pki", "logs", "run"} {
		if err := os.MkdirAll(filepath.Join(root, sub), 0o700); err != nil {
			return nil, unusable(root, err)
		}
	}
	name := filepath.Join(root, "lock")
	lock, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, unusable(root, err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer func() { _ = lock.Close() }()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, inUse(root, lock)
		}
		return nil, unusable(root, fmt.Errorf("lock %s: %w", name, err))
	}
	d := &dataDir{root: root, lock: lock}
	// The process id only helps the reader of the error above; the lock itself is what counts.
	if err := errors.Join(lock.Truncate(0), writeAt(lock, strconv.Itoa(os.Getpid()))); err != nil {
		return nil, errors.Join(unusable(root, err), d.close())
	}
	// An older version, an umask or a copy may have left the directory open to others: keys are in it.
	if err := os.Chmod(root, 0o700); err != nil { //nolint:gosec // a directory needs the right to search
		return nil, errors.Join(unusable(root, err), d.close())
	}
	return d, nil
}

// inUse is the error for a directory that another process has locked.
func inUse(root string, lock *os.File) error {
	owner := "another process"
	buf := make([]byte, 32)
	if n, _ := lock.ReadAt(buf, 0); n > 0 {
		owner = "process " + strings.TrimSpace(string(buf[:n]))
	}
	return fmt.Errorf("data directory %s is in use by %s: use that control plane (its kubeconfig is there), stop it, "+
		"or choose another directory with --data-dir", root, owner)
}

// unusable is the error for a directory that cannot be created, entered or written.
func unusable(root string, err error) error {
	advice := "choose another directory with --data-dir"
	switch {
	case errors.Is(err, fs.ErrPermission):
		advice = "give this user read, write and search permission on it, or " + advice
	case errors.Is(err, syscall.ENOTDIR):
		advice = "a part of the path is a file, not a directory; " + advice
	case errors.Is(err, syscall.ENOSPC):
		advice = "the disk is full: free some space, or " + advice
	case errors.Is(err, syscall.EROFS):
		advice = "the file system is read-only; " + advice
	}
	return fmt.Errorf("data directory %s cannot be used: %w: %s", root, err, advice)
}

func (d *dataDir) path(elements ...string) string {
	return filepath.Join(append([]string{d.root}, elements...)...)
}

func (d *dataDir) close() error { return d.lock.Close() }

// listen opens the API server's listener before anything else starts, so that a port in use is the first thing that
// the user hears of. The port is remembered: a kubeconfig stays valid over restarts.
func (d *dataDir) listen(address string, port int) (*listener, error) {
	if address == "" {
		address = "127.0.0.1"
	}
	ip := net.ParseIP(address)
	if ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("bind address %q is not a loopback IP address: the embedded control plane is reachable from this "+
			"machine only; use 127.0.0.1 or ::1", address)
	}
	if port < 0 || port > 65535 {
		return nil, fmt.Errorf("secure port %d is not a TCP port: use 1 to 65535, or 0 for any free port", port)
	}
	memory := d.path("address")
	if port == 0 {
		if last, err := readAddress(memory); err == nil && last.IP.Equal(ip) {
			if l, err := net.ListenTCP("tcp", last); err == nil {
				return &listener{TCPListener: l, address: last}, nil
			}
		}
	}
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: ip, Port: port})
	if err != nil {
		return nil, cannotListen(ip, port, err)
	}
	if err := writeFileAtomic(memory, []byte(l.Addr().String()+"\n")); err != nil {
		return nil, errors.Join(unusable(d.root, err), l.Close())
	}
	chosen, err := parseAddress(l.Addr().String())
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &listener{TCPListener: l, address: chosen}, nil
}

// listener is the API server's listener and its address, with the real port.
type listener struct {
	*net.TCPListener
	address *net.TCPAddr
}

func cannotListen(ip net.IP, port int, err error) error {
	at := net.JoinHostPort(ip.String(), strconv.Itoa(port))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("port in use: another process listens on %s: stop it, or choose another port with --secure-port "+
			"(0 takes any free one)", at)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("this user may not listen on %s: choose a port above 1023 with --secure-port (0 takes any free one)", at)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("this machine has no address %s: use --bind-address 127.0.0.1: %w", ip, err)
	}
	return fmt.Errorf("listen on %s: %w", at, err)
}

// readAddress returns the address that the API server listened on last.
func readAddress(name string) (*net.TCPAddr, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	address, err := parseAddress(strings.TrimSpace(string(data)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return address, nil
}

func parseAddress(s string) (*net.TCPAddr, error) {
	address, err := netip.ParseAddrPort(s)
	if err != nil {
		return nil, err
	}
	return net.TCPAddrFromAddrPort(address), nil
}

func writeAt(f *os.File, s string) error {
	_, err := f.WriteAt([]byte(s), 0)
	return err
}

// writeFileAtomic replaces name by a file of mode 0600 with the content data: a reader sees the old content or the
// new one, never a part, also after a crash.
func writeFileAtomic(name string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
