// Package builtin has the add-ons that the stick carries, as folders of YAML. A folder of the same name that was brought
// to the appliance takes its place.
package builtin

import (
	"bytes"
	"embed"
	"io/fs"
	"path"
	"text/template"

	"firstlight.dev/firstlight/assets/manifest"
)

//go:embed */*.yaml
var folders embed.FS

// Names lists them.
func Names() []string {
	entries, _ := fs.ReadDir(folders, ".") // it is in the program
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// Read returns the YAML documents of an add-on; false if the stick has none of that name.
func Read(name string) (text []byte, ok bool, err error) {
	files, err := folders.ReadDir(name)
	if err != nil || name == "." {
		return nil, false, nil
	}

	var b bytes.Buffer
	for _, f := range files {
		t, err := template.ParseFS(folders, path.Join(name, f.Name()))
		if err != nil {
			return nil, true, err
		}
		b.WriteString("\n---\n")
		images := struct{ NodeImage, MachinesImage, OVNImage string }{
			manifest.NodeImage, manifest.MachinesImage, manifest.OVNImage,
		}
		if err := t.Execute(&b, images); err != nil {
			return nil, true, err
		}
	}

	return b.Bytes(), true, nil
}
