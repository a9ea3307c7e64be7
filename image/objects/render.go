package objects

import (
	"fmt"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// Render is the objects that the kustomization in dir describes, as `kustomize build` prints them. Nothing that it
// names is fetched from elsewhere: files are of dir or of directories that it names, and plugins stay off.
func Render(dir string) (string, error) {
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return "", fmt.Errorf("render kustomization: %w", err)
	}

	text, err := rendered.AsYaml()
	if err != nil {
		return "", fmt.Errorf("write objects of kustomization %s: %w", dir, err)
	}

	return string(text), nil
}
