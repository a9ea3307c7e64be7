package objects

import (
	"fmt"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// Render is the objects that the kustomization in dir describes, as `kustomize build` prints them, with image as the
// image of the containers of its Deployments; "" leaves them theirs. Nothing that it names is fetched from elsewhere:
// files are of dir or of directories that it names, and plugins stay off.
func Render(dir, image string) (string, error) {
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return "", fmt.Errorf("render kustomization: %w", err)
	}

	for _, object := range rendered.Resources() {
		if image == "" || object.GetKind() != "Deployment" {
			continue
		}
		if err := object.PipeE(
			yaml.Lookup("spec", "template", "spec", "containers"), yaml.FilterFunc(func(list *yaml.RNode) (*yaml.RNode, error) {
				return nil, list.VisitElements(func(container *yaml.RNode) error {
					return container.PipeE(yaml.SetField("image", yaml.NewStringRNode(image)))
				})
			}),
		); err != nil {
			return "", fmt.Errorf("name the image of Deployment %s of kustomization %s: %w", object.GetName(), dir, err)
		}
	}

	text, err := rendered.AsYaml()
	if err != nil {
		return "", fmt.Errorf("write objects of kustomization %s: %w", dir, err)
	}

	return string(text), nil
}
