package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"io"
	"os"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is who the programs run as: not root, and no user of a machine either.
const user = 65532

// stateDir is the directory of the image of chancery-standalone that keeps what has to outlive a container.
const stateDir = "/var/lib/chancery"

// release is what all images of a release have in common.
type release struct {
	repository, version, commit string
	created                     time.Time
}

// recipe is what one image holds.
type recipe struct {
	name    string // of the OCI layout
	suffix  string // of the repository
	program string // the binary, in the root directory
	title   string
	command []string // the arguments where nobody names others
	state   bool     // whether there is a directory for data
}

// recipes are all images. The first one is that of the controller, the responder, the webhook, the CA injector and the
// pods of HTTP-01 solvers: these pods name arguments alone, so the entry point has to be chancery (see docs/http01.md).
func recipes() []recipe {
	return []recipe{
		{name: "controller", program: "chancery", title: "Chancery"},
		{name: "dns", suffix: "-dns", program: "chancery-dns", title: "DNS providers for Chancery"},
		{
			name: "standalone", suffix: "-standalone", program: "chancery-standalone",
			title: "Chancery with its own Kubernetes API server", command: []string{"up"}, state: true,
		},
	}
}

// reference is the whole name of an image.
func (r release) reference(rec recipe) string { return r.repository + rec.suffix + ":" + r.version }

// labels say which release it is, in the words of the OCI image specification.
func (r release) labels(rec recipe) map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":    rec.title,
		"org.opencontainers.image.version":  r.version,
		"org.opencontainers.image.revision": r.commit,
		"org.opencontainers.image.created":  r.created.Format(time.RFC3339),
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
}

// image makes the image of a binary for one architecture of Linux.
func (r release) image(rec recipe, architecture, binary string, base v1.Layer) (v1.Image, error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	files := []tar.Header{{Name: rec.program, Mode: 0o755, Size: int64(len(program))}}
	if rec.state {
		files = append(files, directories(user, 0o700, "var", "var/lib", strings.TrimPrefix(stateDir, "/"))...)
	}
	top, err := layer(r.created, files, map[string][]byte{rec.program: program})
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	created := v1.Time{Time: r.created}
	history := v1.History{Created: created, CreatedBy: "make release"}
	image, err = mutate.Append(image, mutate.Addendum{Layer: base, History: history}, mutate.Addendum{Layer: top, History: history})
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created = "linux", architecture, created
	file.Config = v1.Config{
		User: "65532:65532", Entrypoint: []string{"/" + rec.program}, Cmd: rec.command, Env: []string{"PATH=/"}, Labels: r.labels(rec),
	}
	if rec.state {
		file.Config.Env = append(file.Config.Env, "XDG_DATA_HOME=/var/lib") // of which chancery-standalone takes the directory chancery
		file.Config.Volumes = map[string]struct{}{stateDir: {}}
	}
	return mutate.ConfigFile(image, file)
}

// baseLayer is what programs expect of a system: names of users, a directory for temporary files, and the certificate
// authorities that are trusted.
func baseLayer(created time.Time) (v1.Layer, error) {
	contents := map[string][]byte{
		"etc/passwd":                        []byte("root:x:0:0:root:/:/sbin/nologin\nchancery:x:65532:65532:chancery:/nonexistent:/sbin/nologin\n"),
		"etc/group":                         []byte("root:x:0:\nchancery:x:65532:\n"),
		"etc/ssl/certs/ca-certificates.crt": roots(),
	}
	files := append(directories(0, 0o755, "etc", "etc/ssl", "etc/ssl/certs"), directories(0, 0o1777, "tmp")...)
	for _, name := range []string{"etc/passwd", "etc/group", "etc/ssl/certs/ca-certificates.crt"} {
		files = append(files, tar.Header{Name: name, Mode: 0o644, Size: int64(len(contents[name]))})
	}
	return layer(created, files, contents)
}

// directories are headers of directories whose last one has the mode and the owner; the ones above belong to root.
func directories(owner int, mode int64, names ...string) []tar.Header {
	headers := make([]tar.Header, 0, len(names))
	for i, name := range names {
		h := tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755}
		if i == len(names)-1 {
			h.Mode, h.Uid, h.Gid = mode, owner, owner
		}
		headers = append(headers, h)
	}
	return headers
}

// roots is the bundle of Mozilla's root certificates in PEM. A root that Mozilla trusts only for certificates from
// before some day is left out: a file of certificates cannot say the day.
func roots() []byte {
	var file bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			file.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return file.Bytes()
}

// layer is the layer of an image with these files, all of the same time.
func layer(created time.Time, files []tar.Header, contents map[string][]byte) (v1.Layer, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for _, header := range files {
		header.ModTime, header.Format = created, tar.FormatPAX
		if err := w.WriteHeader(&header); err != nil {
			return nil, err
		}
		if _, err := w.Write(contents[header.Name]); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buffer.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.DefaultCompression),
		tarball.WithCompressedCaching)
}
