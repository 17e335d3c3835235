package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"chancery.dev/internal/rig/slow"
)

// binaries are where `make test` says that it has built the programs.
var binaries = map[string]string{
	"chancery": "CHANCERY_BIN", "chancery-standalone": "CHANCERY_STANDALONE_BIN", "chancery-dns": "CHANCERY_DNS_BIN",
}

// made returns a directory with the images of these programs, and nothing but links to the programs beside them.
func made(t *testing.T, architectures string, program func(name string) string) string {
	t.Helper()
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	dir := t.TempDir()
	for name := range binaries {
		for architecture := range strings.SplitSeq(architectures, ",") {
			if err := os.Symlink(program(name), filepath.Join(dir, name+"-linux-"+architecture)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := run([]string{"-dir", dir, "-architectures", architectures, "-version", "v1.2.3", "-commit", "abc"}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// stub is a program of a few bytes, for tests that do not start it.
func stub(t *testing.T) func(string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(file, []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(string) string { return file }
}

// The same binaries make the same bytes.
func TestReproducible(t *testing.T) {
	program := stub(t)
	first, second := made(t, "amd64,arm64", program), made(t, "amd64,arm64", program)
	compared := 0
	err := filepath.WalkDir(first, func(file string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		a, errA := os.ReadFile(file)
		b, errB := os.ReadFile(filepath.Join(second, strings.TrimPrefix(file, first)))
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs", file)
		}
		compared++
		return errors.Join(errA, errB)
	})
	if err != nil || compared < 10 {
		t.Errorf("%d files compared, %v", compared, err)
	}
}

// A layout holds an index of the images of all architectures, each of which is whole, has a user that is not root, and
// starts the program whose arguments the manifests of pods name.
func TestLayouts(t *testing.T) {
	dir := made(t, "amd64,arm64", stub(t))
	for layoutName, program := range map[string]string{
		"controller": "/chancery", "dns": "/chancery-dns", "standalone": "/chancery-standalone",
	} {
		index, err := layout.ImageIndexFromPath(filepath.Join(dir, "images", layoutName))
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Index(index); err != nil {
			t.Error(err)
		}
		top, err := index.IndexManifest()
		if err != nil || len(top.Manifests) != 1 {
			t.Fatalf("%s: %v, %v", layoutName, top, err)
		}
		all, err := index.ImageIndex(top.Manifests[0].Digest)
		if err != nil {
			t.Fatal(err)
		}
		manifest, err := all.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		var architectures []string
		for _, m := range manifest.Manifests {
			architectures = append(architectures, m.Platform.String())
			image, err := all.Image(m.Digest)
			if err != nil {
				t.Fatal(err)
			}
			file, err := image.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			if file.Config.User != "65532:65532" || !slices.Equal(file.Config.Entrypoint, []string{program}) || file.Architecture != m.Platform.Architecture {
				t.Errorf("%s: %+v", layoutName, file)
			}
		}
		if !slices.Equal(architectures, []string{"linux/amd64", "linux/arm64"}) {
			t.Errorf("%s: %q", layoutName, architectures)
		}
	}
}

// The bundle has the certificate authorities of the web.
func TestRoots(t *testing.T) {
	if n := bytes.Count(roots(), []byte("BEGIN CERTIFICATE")); n < 100 {
		t.Errorf("%d roots", n)
	}
}

// The images run: in a root directory that holds nothing but what the image of the archive holds, as the user of the
// image, each program says its version, and the demo issues its certificates.
func TestImagesRun(t *testing.T) {
	slow.Test(t, slow.Builds)
	dir := made(t, runtime.GOARCH, func(name string) string {
		file := os.Getenv(binaries[name])
		if file == "" {
			t.Skip("SKIPPED: make test starts this test with the binaries that it has built")
		}
		return file
	})
	archive := filepath.Join(dir, "chancery-images-linux-"+runtime.GOARCH+".tar")
	for repository, commands := range map[string][][]string{
		"localhost/chancery":            {{"version"}, {"acmesolver", "--help"}},
		"localhost/chancery-dns":        {{"version"}, {"list"}},
		"localhost/chancery-standalone": {{"version"}, {"demo", "--data-dir", stateDir}},
	} {
		tag, err := name.NewTag(repository + ":v1.2.3")
		if err != nil {
			t.Fatal(err)
		}
		image, err := tarball.ImageFromPath(archive, &tag)
		if err != nil {
			t.Fatal(err)
		}
		root := unpack(t, image)
		for _, args := range commands {
			out, err := container(t, image, root, args).CombinedOutput()
			if err != nil {
				t.Errorf("%s %q: %v\n%s", repository, args, err, out)
			}
		}
	}
}

// container is a program started as a container runtime does: as the first process of a namespace, in the root
// directory with /proc, as the user, and with the environment and the entry point of its image.
func container(t *testing.T, image v1.Image, root string, args []string) *exec.Cmd {
	t.Helper()
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	isolated := []string{"--pid", "--fork", "--kill-child", "--mount", "--root=" + root, "--mount-proc", "--wd=/"}
	if os.Getuid() == 0 {
		isolated = append(isolated, "--setuid=65532", "--setgid=65532", "--")
	} else {
		isolated = append(isolated, "--user", "--map-user=65532", "--map-group=65532", "--")
	}
	cmd := exec.CommandContext(t.Context(), "unshare", slices.Concat(isolated, file.Config.Entrypoint, args)...)
	cmd.Env = file.Config.Env
	return cmd
}

// unpack returns a directory with the files of an image.
func unpack(t *testing.T, image v1.Image) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	if err := os.MkdirAll(filepath.Join(root, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	tree := mutate.Extract(image)
	defer func() { _ = tree.Close() }()
	for r := tar.NewReader(tree); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return root
		}
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(root, header.Name)
		if header.Typeflag == tar.TypeDir {
			err = os.Mkdir(file, 0o700)
		} else {
			var content []byte
			content, err = io.ReadAll(r)
			err = errors.Join(err, os.WriteFile(file, content, 0o600))
		}
		if os.Getuid() == 0 {
			err = errors.Join(err, os.Chown(file, header.Uid, header.Gid))
		}
		if err = errors.Join(err, os.Chmod(file, header.FileInfo().Mode())); err != nil {
			t.Fatal(err)
		}
	}
}
