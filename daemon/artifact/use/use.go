// Package use says who uses an artifact now, so that nothing is taken away from under
// somebody: servers that are, or will be, installed from an OS image.
package use

import (
	"context"
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

var hosts = schema.GroupVersionResource{Group: "metal3.io", Version: "v1alpha1", Resource: "baremetalhosts"}

// Hosts asks the bootstrap cluster's API for its BareMetalHosts.
type Hosts struct{ API dynamic.Interface }

// New returns who asks that API; its account must be allowed to list BareMetalHosts.
func New(c *rest.Config) (Hosts, error) {
	api, err := dynamic.NewForConfig(c)
	if err != nil {
		return Hosts{}, fmt.Errorf("make client of hosts: %w", err)
	}
	return Hosts{api}, nil
}

// Users names the hosts whose image an artifact is. A cluster without such a kind has none.
func (h Hosts) Users(ctx context.Context, k artifact.Key) ([]string, error) {
	if k.Collection != artifact.OS {
		return nil, nil
	}
	list, err := h.API.Resource(hosts).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list hosts: %w", err)
	}
	var users []string
	for i := range list.Items {
		if b := &list.Items[i]; installs(b, k) {
			users = append(users, "BareMetalHost "+b.GetNamespace()+"/"+b.GetName())
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
