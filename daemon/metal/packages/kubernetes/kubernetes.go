// Package kubernetes makes the Debian packages of which a machine becomes a node: kubelet, kubeadm, kubectl and
// kubernetes-cni, as upstream names them, and containerd with its configuration. The programs are those in the image of
// nodes, and containerd the appliance's, on the stick's read-only root: a package is its own few bytes, and the places of
// those files in it.
package kubernetes

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	imagespec "github.com/opencontainers/image-spec/specs-go/v1"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/layer"
	"firstlight.dev/firstlight/assets/manifest"
	"firstlight.dev/firstlight/daemon/metal/packages"
)

// imagesDir is where the root of the stick has what packages are made of; a path from its top.
const imagesDir = "usr/share/firstlight/images"

// Build lays out the packages from the files of the stick's root. Equal roots give equal packages.
func Build(root fs.FS) ([]*packages.Built, error) {
	from, err := findLayer(root)
	if err != nil {
		return nil, fmt.Errorf("make packages of Kubernetes: %w", err)
	}

	if from.containerd, err = containerdVersion(root); err != nil {
		return nil, fmt.Errorf("make packages of Kubernetes: %w", err)
	}
	made, err := fs.Stat(root, from.path("usr/bin/kubernetes"))
	if err != nil {
		return nil, fmt.Errorf("make packages of Kubernetes: %w", err)
	}

	var all []*packages.Built
	for _, p := range list(from) {
		b, err := p.build(manifest.PackageVersion(from.digest), made.ModTime())
		if err != nil {
			return nil, fmt.Errorf("make packages of Kubernetes: %w", err)
		}

		built, err := b.Build(root)
		if err != nil {
			return nil, err
		}
		all = append(all, built)
	}

	return all, nil
}

// nodeLayer is the layer of the image of nodes, unpacked, and what is beside it.
type nodeLayer struct {
	digest     string
	containerd string // version of the package of that name
}

// path is where a file of the layer is.
func (l nodeLayer) path(name string) string {
	return path.Join(imagesDir, layer.Dir, l.digest, layer.Files, name)
}

// findLayer asks the image layout for the layer of the image of nodes.
func findLayer(root fs.FS) (nodeLayer, error) {
	var index imagespec.Index
	if err := readJSON(root, "index.json", &index); err != nil {
		return nodeLayer{}, err
	}

	name := assets.ImageDomain + "/node:v" + assets.Version
	for _, d := range index.Manifests {
		if d.Annotations[imagespec.AnnotationRefName] != name {
			continue
		}

		var m imagespec.Manifest
		if err := readJSON(root, path.Join("blobs/sha256", d.Digest.Encoded()), &m); err != nil {
			return nodeLayer{}, err
		}
		if len(m.Layers) != 1 {
			return nodeLayer{}, fmt.Errorf("image %s has %d layers, not one", name, len(m.Layers))
		}

		return nodeLayer{digest: m.Layers[0].Digest.Encoded()}, nil
	}

	return nodeLayer{}, fmt.Errorf("/%s has no image %s", imagesDir, name)
}

// containerdVersion is that of upstream, and what tells this program from another one of it. Of two packages of one version
// apt would take neither for the newer one.
func containerdVersion(root fs.FS) (string, error) {
	f, err := root.Open(containerdProgram)
	if err != nil {
		return "", err
	}
	defer f.Close()

	digest := sha256.New()
	if _, err := io.Copy(digest, f); err != nil {
		return "", fmt.Errorf("read %s: %w", containerdProgram, err)
	}

	return fmt.Sprintf("%s-0firstlight%s+%x",
		strings.TrimPrefix(assets.ContainerdVersion, "v"), assets.Version, digest.Sum(nil)[:6]), nil
}

func readJSON(root fs.FS, name string, to any) error {
	text, err := fs.ReadFile(root, path.Join(imagesDir, name))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("read /%s: %w", path.Join(imagesDir, name), err)
	}
	return nil
}
