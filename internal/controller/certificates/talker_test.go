package certificates_test

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"chancery.dev/internal/pki"
)

// talkerEnv tells a process of this test binary that it is a talker, and which one.
const talkerEnv = "CHANCERY_TEST_TALKER"

// pause is the time between two handshakes of a client.
const pause = 50 * time.Millisecond

// A talker is a process that does mutual TLS with the files of a Secret. A client writes a line about each handshake:
// what went wrong, or nothing.
type talker struct {
	Dir    string // where the Secret is mounted
	Reads  string // when it reads the files: once, changed, random
	Server string // whom a client connects to; empty for a server, which writes its address
	Name   string // the name that the server proves

	config *tls.Config
	read   string // the version of the files that was read
}

// talk is what the process does until its standard input ends.
func (k *talker) talk() error {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	if k.Server == "" {
		return k.serve()
	}
	for range time.Tick(pause) {
		said := ""
		if err := k.connect(); err != nil {
			said = strings.ReplaceAll(err.Error(), "\n", " ")
		}
		if _, err := fmt.Fprintln(os.Stdout, said); err != nil {
			return err
		}
	}
	return nil
}

func (k *talker) serve() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if _, err = fmt.Fprintln(os.Stdout, listener.Addr()); err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		config, err := k.files()
		if err != nil {
			return err
		}
		server := tls.Server(conn, config)
		if server.Handshake() == nil {
			_, _ = server.Write([]byte{1}) // by TLS 1.3, a client learns only then that it is accepted
		}
		_ = server.Close()
	}
}

func (k *talker) connect() error {
	config, err := k.files()
	if err != nil {
		return err
	}
	config.ServerName = k.Name
	conn, err := tls.Dial("tcp", k.Server, config)
	if err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return errors.Join(err, conn.Close())
}

// files returns what the process goes by now.
func (k *talker) files() (*tls.Config, error) {
	version, err := os.Readlink(filepath.Join(k.Dir, "..data"))
	if err != nil {
		return nil, err
	}
	if k.config == nil || k.Reads == "changed" && version != k.read || k.Reads == "random" && rand.IntN(20) == 0 {
		config, err := k.load(filepath.Join(k.Dir, version))
		if errors.Is(err, os.ErrNotExist) {
			return k.files() // another version has come meanwhile
		}
		if err != nil {
			return nil, err
		}
		k.config, k.read = config, version
	}
	return k.config, nil
}

func (k *talker) load(dir string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := pki.TrustPool(ca)
	return &tls.Config{
		Certificates: []tls.Certificate{pair}, RootCAs: roots, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	}, nil
}

// start starts the process, and returns what it writes. It ends with the test.
func (k *talker) start(t *testing.T) *bufio.Scanner {
	t.Helper()
	text, err := json.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), talkerEnv+"="+string(text)), os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(stdin.Close(), cmd.Wait()) })
	return bufio.NewScanner(stdout)
}

// mount writes the data of a Secret as kubelet does: into a directory of its own, to which a link leads then.
func mount(dir string, data map[string][]byte) error {
	version, err := os.MkdirTemp(dir, "..")
	if err != nil {
		return err
	}
	for key, value := range data {
		if err := os.WriteFile(filepath.Join(version, key), value, 0o600); err != nil {
			return err
		}
	}
	link, fresh := filepath.Join(dir, "..data"), filepath.Join(dir, "..data_tmp")
	before, found := os.Readlink(link)
	if err := os.Symlink(filepath.Base(version), fresh); err != nil {
		return err
	}
	if err := os.Rename(fresh, link); err != nil || found != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(dir, before))
}
