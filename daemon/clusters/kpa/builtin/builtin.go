// Package builtin has the add-ons that the stick carries, as folders of YAML. A folder of the same name that was brought
// to the appliance takes its place.
package builtin

import (
	"bytes"
	"embed"
	"io/fs"
	"maps"
	"path"

	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/manifest"
)

//go:embed */*.yaml *.yaml
var folders embed.FS

// images are what the templates call them by.
var images = map[string]string{
	"NodeImage":      manifest.NodeImage,
	"MachinesImage":  manifest.MachinesImage,
	"OVNImage":       manifest.OVNImage,
	"MetricsImage":   manifest.MetricsImage,
	"LocalPathImage": manifest.LocalPathImage,
	"InstallerImage": assets.InstallerImage, // it has a shell
}

// shared are files that more than one add-on has.
var shared = map[string]string{
	"service-chain":         "service-chain.yaml",
	"service-chain-ovn4nfv": "service-chain.yaml",
}

// Names lists them.
func Names() []string {
	entries, _ := fs.ReadDir(folders, ".") // it is in the program
	var all []string
	for _, e := range entries {
		if e.IsDir() {
			all = append(all, e.Name())
		}
	}
	return all
}

// Read returns the YAML documents of an add-on; false if the stick has none of that name.
func Read(name string) (text []byte, ok bool, err error) {
	files, err := folders.ReadDir(name)
	if err != nil || name == "." {
		return nil, false, nil
	}

	var paths []string
	if file, ok := shared[name]; ok {
		paths = append(paths, file)
	}
	for _, f := range files {
		paths = append(paths, path.Join(name, f.Name()))
	}

	var b bytes.Buffer
	for _, p := range paths {
		document, err := fill(p, name)
		if err != nil {
			return nil, true, err
		}
		b.WriteString("\n---\n")
		b.Write(document)
	}

	return b.Bytes(), true, nil
}

// ReadSelfTest returns the spec of a Job by which an add-on shows that it does what it is for, as JSON; nil if its objects
// show that by themselves.
func ReadSelfTest(name string) ([]byte, error) {
	file := name + ".job.yaml"
	if _, err := fs.Stat(folders, file); err != nil {
		return nil, nil
	}

	text, err := fill(file, name)
	if err != nil {
		return nil, err
	}
	return yaml.YAMLToJSON(text)
}

// fill puts images, and the name of the add-on, into a template.
func fill(file, addOn string) ([]byte, error) {
	values := maps.Clone(images)
	values["AddOn"] = addOn
	return manifest.Fill(folders, file, values)
}
