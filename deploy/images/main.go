// Command images makes the container images of a release from its binaries. It needs no Docker, no base image and no
// network, and makes the same bytes whenever it is given the same binaries.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

// run reads the binaries PROGRAM-linux-ARCHITECTURE of a directory. It writes there one OCI layout for each image, with
// all architectures, and one archive for each architecture, with all images.
func run(args []string) error {
	var (
		r         release
		dir, arch string
	)
	f := flag.NewFlagSet("images", flag.ContinueOnError)
	f.StringVar(&dir, "dir", "dist", "directory of the binaries; the images go there, too")
	f.StringVar(&arch, "architectures", "amd64,arm64", "architectures that there are binaries for")
	f.StringVar(&r.repository, "repository", "localhost/chancery", "name of the image of the controller; the names of the others begin with this one")
	f.StringVar(&r.version, "version", "", "version of the release: the tag of the images")
	f.StringVar(&r.commit, "commit", "", "commit that the binaries were built from")
	if err := f.Parse(args); err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH must be the time of the commit in seconds since 1970: %w", err)
	}
	r.created = time.Unix(seconds, 0).UTC()
	base, err := baseLayer(r.created)
	if err != nil {
		return err
	}
	architectures := strings.Split(arch, ",")
	archives := map[string][]named{}
	for _, rec := range recipes() {
		images := make([]v1.Image, 0, len(architectures))
		for _, architecture := range architectures {
			image, err := r.image(rec, architecture, filepath.Join(dir, rec.program+"-linux-"+architecture), base)
			if err != nil {
				return fmt.Errorf("image %s for %s: %w", rec.name, architecture, err)
			}
			images = append(images, image)
			archives[architecture] = append(archives[architecture], named{r.reference(rec), image})
		}
		if err := r.writeLayout(filepath.Join(dir, "images", rec.name), rec, images); err != nil {
			return err
		}
	}
	for architecture, images := range archives {
		if err := r.writeArchive(filepath.Join(dir, "chancery-images-linux-"+architecture+".tar"), images); err != nil {
			return err
		}
	}
	return nil
}
