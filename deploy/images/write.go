package main

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// named is an image with its whole name.
type named struct {
	reference string
	image     v1.Image
}

// annotations name an image in the index of a layout: for containerd by its whole name, for other programs by its tag.
func (r release) annotations(reference string) layout.Option {
	return layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          reference,
		"org.opencontainers.image.ref.name": r.version,
	})
}

// writeLayout writes the images of all architectures as one index of an OCI layout.
func (r release) writeLayout(dir string, rec recipe, images []v1.Image) error {
	index := mutate.Annotations(empty.Index, r.labels(rec)).(v1.ImageIndex) //nolint:forcetypeassert // the type that goes in comes out
	for _, image := range images {
		file, err := image.ConfigFile()
		if err != nil {
			return err
		}
		platform := &v1.Platform{OS: file.OS, Architecture: file.Architecture}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	return path.AppendIndex(index, r.annotations(r.reference(rec)))
}

// writeArchive writes images of one architecture into one tar file, as `docker save` does: an OCI layout for
// containerd, beside the older manifest.json that other programs read.
func (r release) writeArchive(file string, images []named) (err error) {
	dir, err := os.MkdirTemp("", "chancery-images-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	var manifest []map[string]any
	for _, n := range images {
		if err := path.AppendImage(n.image, r.annotations(n.reference)); err != nil {
			return err
		}
		content, err := n.image.Manifest()
		if err != nil {
			return err
		}
		var layers []string
		for _, l := range content.Layers {
			layers = append(layers, blob(l.Digest))
		}
		manifest = append(manifest, map[string]any{
			"Config": blob(content.Config.Digest), "RepoTags": []string{n.reference}, "Layers": layers,
		})
	}
	text, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	if err := path.WriteFile("manifest.json", text, 0o644); err != nil {
		return err
	}
	return r.pack(file, dir)
}

// blob is the path in a layout of what has this digest.
func blob(digest v1.Hash) string { return fmt.Sprintf("blobs/%s/%s", digest.Algorithm, digest.Hex) }

// pack writes the files of a directory, in the order of their names, into a tar file.
func (r release) pack(file, dir string) (err error) {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	w := tar.NewWriter(out)
	tree := os.DirFS(dir)
	err = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		header := &tar.Header{Name: filepath.ToSlash(name), Mode: 0o644, Size: info.Size(), ModTime: r.created, Format: tar.FormatPAX}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		in, err := tree.Open(name)
		if err != nil {
			return err
		}
		_, err = io.Copy(w, in)
		return errors.Join(err, in.Close())
	})
	return errors.Join(err, w.Close())
}
