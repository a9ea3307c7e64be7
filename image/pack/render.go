package pack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"firstlight.dev/firstlight/image/objects"
)

// kustomizations are the names that kustomize looks for.
var kustomizations = []string{"kustomization.yaml", "kustomization.yml", "Kustomization"}

// render makes objects of a source, whichever of the three it is.
func render(o Options) (source, error) {
	info, err := os.Stat(o.Source)
	if err != nil {
		return source{}, err
	}

	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(o.Source, name))
		return err == nil
	}
	isArchive := !info.IsDir() && slices.Contains([]string{".tgz", ".gz"}, filepath.Ext(o.Source))
	if isArchive || has("Chart.yaml") {
		return renderChart(o)
	}
	if len(o.ValueFiles)+len(o.Values)+len(o.APIVersions) > 0 {
		return source{}, fmt.Errorf("%s is no Helm chart, and takes no values and no API versions", o.Source)
	}
	if o.Name == "" || o.Version == "" {
		return source{}, fmt.Errorf("%s is no Helm chart: say its --name and --version", o.Source)
	}

	s := source{}
	s.setDefaults(o)
	if slices.ContainsFunc(kustomizations, has) {
		text, err := objects.Render(o.Source, "")
		s.files = []file{{name: o.Source, text: []byte(text)}}
		return s, err
	}
	s.files, err = readFolder(o.Source)
	return s, err
}

// readFolder reads the manifests of a folder, or one file, in the order of their names.
func readFolder(dir string) (files []file, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if ext := filepath.Ext(path); ext != ".yaml" && ext != ".yml" && ext != ".json" {
			return nil
		}
		text, err := os.ReadFile(path)
		files = append(files, file{path, text})
		return err
	})
	if err == nil && len(files) == 0 {
		err = errors.New("it holds no .yaml, .yml or .json file, no chart and no kustomization")
	}
	if err != nil {
		return nil, fmt.Errorf("read manifests of %s: %w", dir, err)
	}
	return sortFiles(files), nil
}

// trimPrefixes names a template as its file is named: helm gives it the chart's name in front.
func templatePath(source, name string) string {
	_, rest, found := strings.Cut(name, "/")
	if !found {
		return name
	}
	return filepath.Join(source, rest)
}
