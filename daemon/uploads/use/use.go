// Package use says who uses an artifact now, so that nothing is taken away from under somebody: servers
// that are, or will be, installed from an OS image, and Software that wants a package on nodes.
//
// Container images have no user here: what runs on the nodes of clusters was pulled by them and stays there.
package use

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"firstlight.dev/firstlight/assets/artifact"
)

var (
	hosts     = schema.GroupVersionResource{Group: "metal3.io", Version: "v1alpha1", Resource: "baremetalhosts"}
	softwares = schema.GroupVersionResource{Group: "bpa.akraino.org", Version: "v1alpha1", Resource: "softwares"}
)

// siteNamespace has the site's clusters, which may name any owner (daemon/clusters/bpa/v1alpha1).
const siteNamespace = "default"

// Finder asks the bootstrap cluster's API.
type Finder struct {
	API dynamic.Interface

	// Package is what a complete binary image is called as a Debian package; "" if it is none. nil where
	// artifacts are not on this machine: they are no packages of its repository either.
	Package func(artifact.Key) (name, version string, err error)
}

// New returns who asks that API; its account must be allowed to list BareMetalHosts and Software.
func New(c *rest.Config, named func(artifact.Key) (name, version string, err error)) (Finder, error) {
	api, err := dynamic.NewForConfig(c)
	if err != nil {
		return Finder{}, fmt.Errorf("make client of users: %w", err)
	}
	return Finder{api, named}, nil
}

// Users names those that an artifact must not be taken away from.
func (f Finder) Users(ctx context.Context, k artifact.Key) ([]string, error) {
	switch k.Collection {
	case artifact.OS:
		return f.find(
			ctx, hosts, "BareMetalHost", func(b *unstructured.Unstructured) bool { return hostInstalls(b, k) },
		)
	case artifact.Binary:
		if f.Package == nil {
			return nil, nil
		}

		name, version, err := f.Package(k)
		if err != nil || name == "" {
			return nil, err
		}

		return f.find(ctx, softwares, "Software", func(b *unstructured.Unstructured) bool {
			// Packages of an owner get onto the nodes of that owner, and onto the site's if it says so.
			if in := b.GetNamespace(); in != k.Owner && in != siteNamespace {
				return false
			}

			var s software
			text, err := b.MarshalJSON()
			if err == nil {
				err = json.Unmarshal(text, &s)
			}

			return err == nil && s.wants(name, version) // the operator refuses what cannot be read
		})
	}
	return nil, nil
}

// find lists objects of a kind and names those that use it. A cluster without such a kind has none.
func (f Finder) find(
	ctx context.Context,
	of schema.GroupVersionResource,
	kind string,
	uses func(*unstructured.Unstructured) bool,
) (users []string, err error) {
	list, err := f.API.Resource(of).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", of.Resource, err)
	}

	for i := range list.Items {
		if b := &list.Items[i]; uses(b) {
			users = append(users, kind+" "+b.GetNamespace()+"/"+b.GetName())
		}
	}

	return users, nil
}

// hostInstalls tells whether an image is the one that a host has or is asked to have, or that the site names for it.
func hostInstalls(b *unstructured.Unstructured, k artifact.Key) bool {
	for _, path := range [][]string{{"spec", "image", "url"}, {"status", "provisioning", "image", "url"}, {"metadata", "annotations", artifact.ImageAnnotation}} {
		text, _, _ := unstructured.NestedString(b.Object, path...)
		if u, err := url.Parse(text); err == nil && u.Path == artifact.ImagesPath+k.Object() {
			return true
		}
	}
	return false
}

// software is what matters here of a Software (daemon/clusters/bpa/v1alpha1).
type software struct {
	Spec struct {
		MasterSoftware, WorkerSoftware []requestedPackages
	}
	Status struct {
		Nodes []struct {
			Packages []struct{ Name, Installed string }
		}
	}
}

// requestedPackages are packages by name, with the version that is asked for; "" is any.
type requestedPackages map[string]string

// UnmarshalJSON reads NAME, and {NAME: {version: VERSION}, …}.
func (a *requestedPackages) UnmarshalJSON(b []byte) error {
	var name string
	if json.Unmarshal(b, &name) == nil {
		*a = requestedPackages{name: ""}
		return nil
	}

	var all map[string]struct{ Version string }
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}

	*a = requestedPackages{}
	for name, v := range all {
		(*a)[name] = v.Version
	}

	return nil
}

// wants tells whether a Software relies on this version of a package: it asks for it, or for any and
// some node has this one or none yet.
func (s software) wants(name, version string) bool {
	for _, item := range append(append([]requestedPackages(nil), s.Spec.MasterSoftware...), s.Spec.WorkerSoftware...) {
		of, is := item[name]
		if is && (of == version || of == "" && s.relies(name, version)) {
			return true
		}
	}
	return false
}

// relies tells whether some node has this version of a package or none yet, or no node was looked at.
func (s software) relies(name, version string) bool {
	looked := false
	for _, n := range s.Status.Nodes {
		for _, p := range n.Packages {
			if p.Name != name {
				continue
			}
			if looked = true; p.Installed == version || p.Installed == "" {
				return true
			}
		}
	}
	return !looked
}
