// Package use says who uses an artifact now, so that nothing is taken away from under somebody: servers
// that are, or will be, installed from an OS image, and Software that wants a package on nodes.
//
// Container images have no user here: what runs on the nodes of clusters was pulled by them and stays there.
package use

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/packages"
)

var (
	hosts     = schema.GroupVersionResource{Group: "metal3.io", Version: "v1alpha1", Resource: "baremetalhosts"}
	softwares = schema.GroupVersionResource{Group: "bpa.akraino.org", Version: "v1alpha1", Resource: "softwares"}
)

// Finder asks the bootstrap cluster's API.
type Finder struct {
	API dynamic.Interface

	// File is where the bytes of a complete artifact are; nil where they are not on this machine, and
	// so are no packages of its repository either.
	File func(artifact.Key) string
}

// New returns who asks that API; its account must be allowed to list BareMetalHosts and Software.
func New(c *rest.Config, file func(artifact.Key) string) (Finder, error) {
	api, err := dynamic.NewForConfig(c)
	if err != nil {
		return Finder{}, fmt.Errorf("make client of users: %w", err)
	}
	return Finder{api, file}, nil
}

// Users names those that an artifact must not be taken away from.
func (f Finder) Users(ctx context.Context, k artifact.Key) ([]string, error) {
	switch k.Collection {
	case artifact.OS:
		return f.find(ctx, hosts, "BareMetalHost", func(b *unstructured.Unstructured) bool { return installs(b, k) })
	case artifact.Binary:
		name, version, err := f.packageOf(k)
		if err != nil || name == "" {
			return nil, err
		}
		return f.find(ctx, softwares, "Software", func(b *unstructured.Unstructured) bool {
			var s v1alpha1.Software
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(b.Object, &s); err != nil {
				return false // the operator refuses it as well
			}
			return wants(s, name, version)
		})
	}
	return nil, nil
}

// find lists objects of a kind and names those that use it. A cluster without such a kind has none.
func (f Finder) find(ctx context.Context, of schema.GroupVersionResource, kind string, uses func(*unstructured.Unstructured) bool) (users []string, err error) {
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

// installs tells whether an image is the one that a host has or is asked to have.
func installs(b *unstructured.Unstructured, k artifact.Key) bool {
	for _, path := range [][]string{{"spec", "image", "url"}, {"status", "provisioning", "image", "url"}} {
		text, _, _ := unstructured.NestedString(b.Object, path...)
		if u, err := url.Parse(text); err == nil && u.Path == artifact.ImagesPath+k.Object() {
			return true
		}
	}
	return false
}

// packageOf is what a binary image is called as a Debian package; "" if it is none, or not there yet.
func (f Finder) packageOf(k artifact.Key) (name, version string, err error) {
	if f.File == nil {
		return "", "", nil
	}
	file, err := os.Open(f.File(k))
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("look whether %s is a package: %w", k.Name, err)
	}
	defer file.Close()
	control, err := packages.Control(file)
	if err != nil {
		return "", "", nil //nolint:nilerr // then no repository offers it
	}
	return packages.Field(control, "Package"), packages.Field(control, "Version"), nil
}

// wants tells whether a Software relies on this version of a package: it asks for it, or for any and
// some node has this one or none yet.
func wants(s v1alpha1.Software, name, version string) bool {
	for _, item := range append(append([]v1alpha1.Packages(nil), s.Spec.MasterSoftware...), s.Spec.WorkerSoftware...) {
		asked, is := item.Asked[name]
		if !is && (!item.Single || item.Name != name) {
			continue
		}
		if asked != nil && asked.Version != "" {
			if asked.Version == version {
				return true
			}
			continue
		}
		if relies(s.Status, name, version) {
			return true
		}
	}
	return false
}

// relies tells whether some node has this version of a package or none yet, or no node was looked at.
func relies(s v1alpha1.SoftwareStatus, name, version string) bool {
	looked := false
	for _, n := range s.Nodes {
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
