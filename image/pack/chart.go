package pack

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	commonutil "helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	"helm.sh/helm/v4/pkg/strvals"
	"os"

	"firstlight.dev/firstlight/assets"
)

// renderChart renders a Helm chart as `helm template --include-crds` does, for the appliance's Kubernetes. It is
// rendered twice: a chart that makes up a password or a certificate gives another one each time, which would be in the
// archive for everyone to read, and change with every packing.
func renderChart(o Options) (source, error) {
	fail := func(err error) (source, error) { return source{}, fmt.Errorf("render chart %s: %w", o.Source, err) }
	values, err := readValues(o)
	if err != nil {
		return fail(err)
	}

	first, err := renderOnce(o, values)
	if err != nil {
		return fail(err)
	}
	second, err := renderOnce(o, values)
	if err != nil {
		return fail(err)
	}

	for i, f := range first.files {
		if !bytes.Equal(f.text, second.files[i].text) {
			return fail(fmt.Errorf(
				"%s gives something else each time, such as a password or a time; find the value that replaces it (helm show "+
					"values) and set it, or name a Secret of yours", f.name,
			))
		}
	}
	return first, nil
}

func renderOnce(o Options, values map[string]any) (source, error) {
	c, err := loader.Load(o.Source)
	if err != nil {
		return source{}, err
	}
	if err := checkChart(c); err != nil {
		return source{}, err
	}
	s := source{name: c.Name(), version: c.Metadata.Version}
	s.setDefaults(o)

	if err := chartutil.ProcessDependencies(c, values); err != nil {
		return source{}, err
	}
	capabilities, err := newCapabilities(o.APIVersions)
	if err != nil {
		return source{}, err
	}
	if r := c.Metadata.KubeVersion; r != "" && !chartutil.IsCompatibleRange(r, capabilities.KubeVersion.String()) {
		return source{}, fmt.Errorf("it needs Kubernetes %s; the stick's is %s", r, capabilities.KubeVersion.String())
	}
	release := common.ReleaseOptions{Name: s.name, Namespace: s.namespace, Revision: 1, IsInstall: true}
	top, err := commonutil.ToRenderValues(c, values, release, capabilities)
	if err != nil {
		return source{}, err
	}
	rendered, err := engine.Engine{}.Render(c, top)
	if err != nil {
		return source{}, err
	}

	for name, text := range rendered {
		if base := path.Base(name); base != "NOTES.txt" && !strings.HasPrefix(base, "_") {
			s.files = append(s.files, file{templatePath(o.Source, name), []byte(text)})
		}
	}
	s.files = sortFiles(s.files)
	kinds, err := kindFiles(c, o.Source)
	s.files = append(kinds, s.files...)
	return s, err
}

// checkChart says what keeps a chart from being rendered whole.
func checkChart(c *chart.Chart) error {
	if c.Metadata.Type == "library" {
		return fmt.Errorf("it is a library, which installs nothing")
	}
	for _, d := range c.Metadata.Dependencies {
		has := func(sub *chart.Chart) bool { return sub.Name() == d.Name }
		if !slices.ContainsFunc(c.Dependencies(), has) {
			return fmt.Errorf("it depends on chart %s, which is not in its folder charts; run: helm dependency update", d.Name)
		}
	}
	return nil
}

// kindFiles are the folders crds of a chart and of those in it. As with helm, what they define stays when the chart
// goes.
func kindFiles(c *chart.Chart, from string) (files []file, err error) {
	for _, k := range c.CRDObjects() {
		text, err := keepOnRemoval(k.File.Data)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", k.Filename, err)
		}
		files = append(files, file{templatePath(from, k.Filename), text})
	}
	return sortFiles(files), nil
}

func newCapabilities(apis []string) (*common.Capabilities, error) {
	c := common.DefaultCapabilities.Copy()
	v, err := common.ParseKubeVersion(assets.KubernetesVersion)
	if err != nil {
		return nil, err
	}
	c.KubeVersion = *v
	c.APIVersions = slices.Concat(c.APIVersions, apis)
	return c, nil
}

// readValues merges files and settings, the last one wins.
func readValues(o Options) (map[string]any, error) {
	values := map[string]any{}
	for _, name := range o.ValueFiles {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		more, err := loader.LoadValues(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("read values %s: %w", name, err)
		}
		values = loader.MergeMaps(values, more)
	}
	for _, text := range o.Values {
		if err := strvals.ParseInto(text, values); err != nil {
			return nil, fmt.Errorf("value %q is not KEY=VALUE: %w", text, err)
		}
	}
	return values, nil
}
