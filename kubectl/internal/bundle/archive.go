package bundle

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"
)

// top is the directory of the archive.
const top = "chancery-support"

// archive is a compressed tar file in the making.
type archive struct {
	file *os.File
	gzip *gzip.Writer
	tar  *tar.Writer
	now  time.Time
	// has are the names of the files, and lacks what could not be read.
	has, lacks []string
}

// newArchive makes a file that only its owner may read. A file that is there stays.
func newArchive(name string, now time.Time) (*archive, error) {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("%s is there already: name another file with --output", name)
	}
	if err != nil {
		return nil, err
	}
	compressed := gzip.NewWriter(file)
	return &archive{file: file, gzip: compressed, tar: tar.NewWriter(compressed), now: now}, nil
}

// put adds a file; an empty one is left out.
func (a *archive) put(name string, content []byte) error {
	if len(content) == 0 {
		return nil
	}
	a.has = append(a.has, name)
	header := &tar.Header{Name: path.Join(top, name), Mode: 0o600, Size: int64(len(content)), ModTime: a.now, Typeflag: tar.TypeReg}
	if err := a.tar.WriteHeader(header); err != nil {
		return err
	}
	_, err := a.tar.Write(content)
	return err
}

// lack notes what could not be read, and why.
func (a *archive) lack(what string, err error) {
	a.lacks = append(a.lacks, what+": "+strings.Join(strings.Fields(err.Error()), " "))
}

func (a *archive) close() error { return errors.Join(a.tar.Close(), a.gzip.Close(), a.file.Close()) }

const about = `This archive was made by kubectl chancery support-bundle, for somebody who is to find out why certificates do not come.
Look through it before you send it.

Left out, or replaced by REDACTED:
- Secrets: their data is never asked for; secrets.yaml has their names, owners and cert-manager's own annotations
- texts in objects, but for those of fields that are known to be harmless; names of fields, numbers, true and false are there
- values of annotations, but for those of cert-manager.io and chancery.dev, and of environment variables, but for harmless ones
- the configuration (config) of webhooks and programs of solvers, also its numbers, and what probes and hooks of Pods execute
- private keys, tokens and passwords in the forms that are known, in all texts; long random words in logs and messages
- values of arguments that may be secrets, and scripts in arguments
- e-mail addresses
- host names: %s
Kept: names of objects and namespaces, certificates, requests, tokens and keys of Challenges. CAs and clients see them anyway.

`

// readme says what is in the archive.
func (a *archive) readme(out io.Writer, hosts bool) {
	said := "kept; --redact-names replaces them"
	if hosts {
		said = "replaced by pseudonyms, those below the domains of the certificates; names of objects that are made of them are kept"
	}
	fmt.Fprintf(out, about, said)
	fmt.Fprintf(out, "Files:\n  %s\n", strings.Join(a.has, "\n  "))
	if len(a.lacks) > 0 {
		fmt.Fprintf(out, "\nCould not be read:\n  %s\n", strings.Join(a.lacks, "\n  "))
	}
}
