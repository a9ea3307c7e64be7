package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"firstlight.dev/firstlight/daemon/clusters/kpa/plan"
	"firstlight.dev/firstlight/daemon/clusters/kpa/v1alpha1"
)

// maxSource bounds what is read of a folder, in bytes.
const maxSource = 16 << 20

// Content is what a source holds.
type Content struct {
	Revision string // digest of it, short; of a bundle with its version
	Objects  []*unstructured.Unstructured
	Bundle   *Bundle // nil of another source

	hooks []hook
}

// copy shares no object with its original: installing changes them.
func (c Content) copy() (objects []*unstructured.Unstructured, hooks []hook) {
	for _, o := range c.Objects {
		objects = append(objects, o.DeepCopy())
	}
	for _, h := range c.hooks {
		h.object = h.object.DeepCopy()
		hooks = append(hooks, h)
	}
	return objects, hooks
}

// NewContent reads YAML documents.
func NewContent(text []byte) (Content, error) {
	all, err := ReadObjects(text)
	if err != nil {
		return Content{}, err
	}
	objects, hooks, err := splitHooks(all)
	if err != nil {
		return Content{}, err
	}
	return Content{Revision: Digest(text), Objects: objects, hooks: hooks}, nil
}

// Digest is a short sha256 of texts.
func Digest(texts ...[]byte) string {
	h := sha256.New()
	for _, t := range texts {
		h.Write(t)
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}

// ReadFolder reads the YAML files of a folder below root, in the order of their names. Nothing outside of root is read,
// whatever links are in it.
func ReadFolder(root, name string) (Content, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return Content{}, explainFolder(name, err)
	}
	defer r.Close()

	var names []string
	err = fs.WalkDir(r.FS(), name, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !d.IsDir() && (path.Ext(p) == ".yaml" || path.Ext(p) == ".yml"):
			names = append(names, p)
		}
		return nil
	})
	if err != nil {
		return Content{}, explainFolder(name, err)
	}

	slices.Sort(names)
	var all strings.Builder
	for _, p := range names {
		text, err := r.ReadFile(p)
		if err != nil {
			return Content{}, explainFolder(name, err)
		}
		if all.Len()+len(text) > maxSource {
			return Content{}, newFault(
				v1alpha1.PhaseRefused, plan.ReasonSourceRefused, "folder %s has more than %d MiB of YAML", name, maxSource>>20,
			)
		}
		all.WriteString("\n---\n")
		all.Write(text)
	}

	return NewContent([]byte(all.String()))
}

// HasFolder reports whether there is a folder, or something else of its name, below root.
func HasFolder(root, name string) bool {
	r, err := os.OpenRoot(root)
	if err != nil {
		return false
	}
	defer r.Close()

	_, err = r.Stat(name)
	return err == nil
}

func explainFolder(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return newFault(
			v1alpha1.PhaseWaiting, plan.ReasonSourceMissing,
			"folder %s is not among the folders of components on the appliance; bring it, or pack it with firstlight pack and "+
				"name the bundle in spec.source", name,
		)
	}
	return newFault(v1alpha1.PhaseWaiting, plan.ReasonSourceMissing, "folder %s cannot be read: %v", name, err)
}
