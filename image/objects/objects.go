// Package objects takes objects out of Kubernetes manifests.
package objects

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Select keeps the documents of a Kubernetes manifest whose Kind or Kind/name is
// wanted, each as it stands. A wish that nothing answers is an error.
func Select(manifest string, only []string) (string, error) {
	var out []string
	found := map[string]bool{}
	for document := range strings.SplitSeq(manifest, "\n---\n") {
		var object struct {
			Kind     string `yaml:"kind"`
			Metadata struct {
				Name string `yaml:"name"`
			} `yaml:"metadata"`
		}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			return "", fmt.Errorf("read manifest: %w", err)
		}
		for _, wish := range []string{object.Kind, object.Kind + "/" + object.Metadata.Name} {
			if slices.Contains(only, wish) {
				found[wish] = true
				out = append(out, strings.TrimSuffix(document, "\n"))
				break
			}
		}
	}

	for _, wish := range only {
		if !found[wish] {
			return "", fmt.Errorf("only: the manifest has no %s", wish)
		}
	}

	return strings.Join(out, "\n---\n") + "\n", nil
}
