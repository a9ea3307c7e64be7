package vault

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Object is a Secret of the API, without what is in it.
type Object struct {
	Namespace, Name string
	Created         time.Time
}

// Held is a secret as an appliance has it now.
type Held struct {
	Name    string    `json:"name"`
	Owner   string    `json:"owner"`
	Count   int       `json:"count"`          // files and Secrets; 0: this appliance has none
	Since   time.Time `json:"since,omitzero"` // the oldest of them was written then
	Used    string    `json:"used"`
	Rotated string    `json:"rotated"`
	Away    bool      `json:"awayCopy"` // an away copy has it
	Places  []string  `json:"places,omitempty"`
}

// Hold lists the secrets that an appliance has, in the order of Secrets: those of its files below root, and those of the
// API. No file is read.
func Hold(root string, objects []Object) []Held {
	all := Secrets()
	held := make([]Held, len(all))
	at := map[string]*Held{}
	for i, s := range all {
		held[i] = Held{Name: s.Name, Owner: s.Owner, Used: s.Used, Rotated: s.Rotated, Away: s.Away}
		at[s.Name] = &held[i]
	}

	for _, s := range all {
		for _, pattern := range s.Files {
			for _, file := range expand(root, pattern) {
				if of, ok := OfFile(file.name); ok && of.Name == s.Name {
					at[s.Name].add(file.name, file.written)
				}
			}
		}
	}

	for _, o := range objects {
		if of, ok := OfObject(o.Namespace + "/" + o.Name); ok && isOwn(o) {
			at[of.Name].add("Secret "+o.Namespace+"/"+o.Name, o.Created)
		}
	}

	for i := range held {
		slices.Sort(held[i].Places)
	}
	return held
}

// isOwn reports whether a Secret is the appliance's, and not one that a tenant has named like one.
func isOwn(o Object) bool {
	return slices.Contains(Namespaces(), o.Namespace) || !strings.HasSuffix(o.Name, "-bmc-secret")
}

func (h *Held) add(place string, written time.Time) {
	if slices.Contains(h.Places, place) {
		return
	}
	h.Count++
	h.Places = append(h.Places, place)
	if h.Since.IsZero() || written.Before(h.Since) {
		h.Since = written
	}
}

type heldFile struct {
	name    string // below the root
	written time.Time
}

// expand are the files that a pattern fits. Of what is below a folder that ends with / the folder itself stands for all:
// etcd has many files.
func expand(root, pattern string) (all []heldFile) {
	found, _ := filepath.Glob(filepath.Join("/", root, pattern))
	for _, path := range found {
		info, err := os.Stat(path)
		if err != nil || info.IsDir() != strings.HasSuffix(pattern, "/") {
			continue
		}
		if info.IsDir() && isEmpty(path) {
			continue
		}

		name := "/" + strings.TrimPrefix(strings.TrimPrefix(path, filepath.Join("/", root)), "/")
		if info.IsDir() {
			name += "/"
		}
		all = append(all, heldFile{name, info.ModTime()})
	}
	return all
}

func isEmpty(dir string) bool {
	empty := true
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error { // what cannot be read is not there
		if err == nil && d.Type().IsRegular() {
			empty = false
			return fs.SkipAll
		}
		return nil
	})
	return empty
}
