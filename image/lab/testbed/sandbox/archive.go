package sandbox

import (
	"bytes"
	"fmt"
	"io"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// WriteImage writes a container image for this machine's architecture to file, as `docker save`
// does: its one layer is a tar.
func WriteImage(file, ref string, layer []byte, config v1.Config) error {
	fail := func(err error) error { return fmt.Errorf("write image %s: %w", ref, err) }
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer)), nil })
	if err != nil {
		return fail(err)
	}

	image, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		return fail(err)
	}

	c, err := image.ConfigFile()
	if err != nil {
		return fail(err)
	}

	c = c.DeepCopy()
	c.OS, c.Architecture, c.Config = "linux", runtime.GOARCH, config
	if image, err = mutate.ConfigFile(image, c); err != nil {
		return fail(err)
	}

	tag, err := name.NewTag(ref)
	if err != nil {
		return fail(err)
	}

	return tarball.WriteToFile(file, tag, image)
}
