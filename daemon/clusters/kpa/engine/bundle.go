package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"firstlight.dev/firstlight/assets/bundle"
	"firstlight.dev/firstlight/daemon/clusters/kpa/plan"
	"firstlight.dev/firstlight/daemon/clusters/kpa/v1alpha1"
)

// Bundle is what is known of a bundle besides its objects.
type Bundle struct {
	bundle.Bundle
	Owner string
}

// ReadBundle reads a bundle of an owner, below root: OWNER/NAME/VERSION.
func ReadBundle(root, owner string, s v1alpha1.BundleSource) (Content, error) {
	asked := bundle.Bundle{Name: s.Name, Version: s.Version}
	found, text, err := readFiles(filepath.Join(root, owner), asked)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Content{}, newFault(
			v1alpha1.PhaseWaiting, plan.ReasonBundleMissing,
			"bundle %s is not on the appliance%s; bring the archive that firstlight pack wrote: firstlight artifact push "+
				"ARCHIVE container/NAME --owner %s --cluster CLUSTER", asked.Title(), listVersions(filepath.Join(root, owner, s.Name)), owner,
		)
	case err != nil:
		return Content{}, newFault(
			v1alpha1.PhaseWaiting, plan.ReasonBundleMissing, "bundle %s cannot be read: %v", asked.Title(), err,
		)
	}

	c, err := NewContent(text)
	c.Bundle = &Bundle{found, owner}
	c.Revision = s.Version + "-" + Digest(text)
	return c, err
}

// readFiles reads a bundle of an owner's folder. Nothing outside of it is read, whatever links are in it.
func readFiles(dir string, asked bundle.Bundle) (found bundle.Bundle, objects []byte, err error) {
	r, err := os.OpenRoot(dir)
	if err != nil {
		return found, nil, err
	}
	defer r.Close()

	text, err := r.ReadFile(filepath.Join(asked.Dir(), bundle.DescriptionFile))
	if err != nil {
		return found, nil, err
	}
	if err := json.Unmarshal(text, &found); err != nil {
		return found, nil, err
	}
	if found.Name != asked.Name || found.Version != asked.Version {
		return found, nil, fmt.Errorf("it is called %s", found.Title())
	}
	if err := found.Check(); err != nil {
		return found, nil, err
	}
	objects, err = r.ReadFile(filepath.Join(asked.Dir(), found.ObjectsFile()))
	return found, objects, err
}

// listVersions are the versions of a bundle that there are, as a clause; "" if there are none.
func listVersions(dir string) string {
	all, _ := os.ReadDir(dir)
	var versions []string
	for _, e := range all {
		versions = append(versions, e.Name())
	}
	if len(versions) == 0 {
		return ""
	}
	return ", which has " + join(versions)
}

// CheckImages says what keeps the images of a bundle from the nodes of a cluster, whose owner is given; nil if nothing
// does. It is asked before a revision is applied: what runs has its images.
func (c Content) CheckImages(cluster, owner string) *plan.Verdict {
	b := c.Bundle
	if b == nil {
		return nil
	}
	refuse := func(format string, args ...any) *plan.Verdict {
		text := "bundle " + b.Title() + ": " + fmt.Sprintf(format, args...)
		return &plan.Verdict{Phase: v1alpha1.PhaseWaiting, Reason: plan.ReasonImageMissing, Message: text}
	}

	switch {
	case b.NotServed != "":
		return refuse("its images cannot be pulled: %s", b.NotServed)
	case len(b.Missing) > 0:
		return refuse(
			"the appliance has no %s; upload an archive with it (docker save), or pack it along, without --absent",
			join(b.Missing),
		)
	case cluster == v1alpha1.ApplianceTarget && slices.ContainsFunc(b.Images, isBrought):
		return refuse("the appliance itself runs images of its stick alone; install it on a cluster")
	case cluster != v1alpha1.ApplianceTarget && b.Owner != owner && len(b.Images) > 0:
		return refuse(
			"its images are those of owner %s, and the nodes of %s get those of %s; upload it for %s, and say "+
				"source.bundle.owner: %s", b.Owner, cluster, owner, owner, owner,
		)
	}
	return nil
}

// isBrought reports whether an image came in the bundle's archive.
func isBrought(i bundle.Image) bool { return !i.Absent }
