package kube

import (
	"fmt"
	"path/filepath"

	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
)

// FindLayer is the folder from which containerd has the files of an image that the stick holds, those of its last layer.
// The image is named without registry and tag.
func FindLayer(image string) (dir string, err error) {
	c := New(Defaults())
	images := c.config().Images
	var index imagespec.Index
	if err := readJSON(filepath.Join(images, "index.json"), &index); err != nil {
		return "", fmt.Errorf("read image bundle: %w", err)
	}

	for _, m := range index.Manifests {
		name := m.Annotations[imagespec.AnnotationRefName]
		if repository(name) != image {
			continue
		}
		found, err := readImage(images, c.layersPath(), name, m.Digest)
		if err != nil {
			return "", fmt.Errorf("read image %s: %w", name, err)
		}
		return found.snapshots[len(found.snapshots)-1].files, nil
	}
	return "", fmt.Errorf("no image of the stick is %s", image)
}
