package clusterapi

import (
	"context"
	"encoding/json"
	"fmt"
	"path"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// ClassName is the ClusterClass that the appliance keeps, in the namespace of its hosts.
const ClassName = "firstlight"

const (
	clusterGroup = "cluster.x-k8s.io/v1beta2"
	classOwner   = "firstlight-cluster-class" // field manager
)

// Image is what the class gives the disks of nodes that no cluster says otherwise of.
type Image struct {
	URL    string `json:"url"`
	SHA256 string `json:"checksum"`
	Format string `json:"format"` // raw or qcow2
}

// Class is the ClusterClass with its templates.
type Class struct {
	Repository string // Repository but in tests
	Image      Image
}

// Objects are the templates, then the class that refers to them.
func (c Class) Objects() ([]client.Object, error) {
	p := Infrastructure()
	file := path.Join(c.Repository, p.Name, assets.ClusterAPIVersion, "clusterclass-"+ClassName+".yaml")
	objects, err := readObjects(file, expandDefaults)
	if err != nil {
		return nil, err
	}

	var all []client.Object
	for i, u := range objects {
		if last := i == len(objects)-1; (u.GetKind() == "ClusterClass") != last {
			return nil, fmt.Errorf("read %s: its ClusterClass is not the last of its objects", file)
		}
		all = append(all, u)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("read %s: it has no ClusterClass", file)
	}

	return all, c.complete(objects[len(objects)-1])
}

// complete gives the class the digest of all that makes nodes what they are, and then the appliance's image as a default.
// A cluster has its image from when it is created: another default is no change for it.
func (c Class) complete(class *unstructured.Unstructured) error {
	set, err := apply.New(classOwner, class)
	if err != nil {
		return err
	}
	class.SetAnnotations(map[string]string{label.Class: set.Objects[0].GetAnnotations()[apply.Annotation]})

	text, err := json.Marshal(c.Image)
	if err != nil {
		return err
	}
	value := map[string]any{}
	if err := json.Unmarshal(text, &value); err != nil {
		return err
	}
	value["checksumType"] = "sha256"

	variables, _, err := unstructured.NestedSlice(class.Object, "spec", "variables")
	if err != nil {
		return err
	}
	for _, v := range variables {
		if v, ok := v.(map[string]any); ok && v["name"] == "image" {
			if err := unstructured.SetNestedMap(v, value, "schema", "openAPIV3Schema", "default"); err != nil {
				return err
			}
			return unstructured.SetNestedSlice(class.Object, variables, "spec", "variables")
		}
	}

	return fmt.Errorf("ClusterClass %s has no variable image", class.GetName())
}

// ClassStage is the fact that the class is there. image is the appliance's own.
func ClassStage(image func() (Image, error), api func() (client.Client, error)) bringup.Stage {
	s := apply.Stage{
		Name:  "cluster-class-ready",
		Title: "The class of clusters is made",
		Fact:  "the ClusterClass of the appliance's hosts is there, with the image of the stick as its default",
		Why:   "The managers check what it says, so it comes after them.",
		Owner: classOwner,
		API:   api,
		Doing: "applying ClusterClass " + ClassName,

		StaleOnly: true, // templates cannot be changed
		Objects: func() ([]client.Object, error) {
			i, err := image()
			if err != nil {
				return nil, err
			}
			c, err := api()
			if err != nil {
				return nil, err
			}
			return Class{Repository: Repository, Image: i}.objectsToApply(context.Background(), c)
		},
	}.Bringup()
	s.AfterReady = true
	return s
}

// objectsToApply are the objects to apply. A class that clusters have been made of is left as it is, if a newer stick has another
// one: to change it would be to install all of their nodes again.
func (c Class) objectsToApply(ctx context.Context, api client.Reader) ([]client.Object, error) {
	all, err := c.Objects()
	if err != nil {
		return nil, err
	}

	kind := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{
		APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition",
	}}
	err = api.Get(ctx, client.ObjectKey{Name: "metal3clustertemplates.infrastructure.cluster.x-k8s.io"}, kind)
	if apierrors.IsNotFound(err) {
		return nil, bringup.Wait("the kinds of provider metal3")
	} else if err != nil {
		return nil, fmt.Errorf("look for provider metal3: %w", err)
	}

	class := all[len(all)-1]
	have := newObject("ClusterClass")
	err = api.Get(ctx, client.ObjectKeyFromObject(class), have)
	switch {
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		return all, nil
	case err != nil:
		return nil, fmt.Errorf("read ClusterClass %s: %w", ClassName, err)
	case have.GetAnnotations()[label.Class] == class.GetAnnotations()[label.Class]:
		return all, nil
	}

	clusters := &unstructured.UnstructuredList{}
	clusters.SetGroupVersionKind(newObject("ClusterList").GroupVersionKind())
	if err := api.List(ctx, clusters); err != nil {
		return nil, fmt.Errorf("list Clusters: %w", err)
	}
	for i := range clusters.Items {
		if usesClass(&clusters.Items[i]) {
			return nil, nil
		}
	}

	return all, nil
}

// usesClass reports whether a Cluster is one of the appliance's class.
func usesClass(cluster *unstructured.Unstructured) bool {
	name, _, _ := unstructured.NestedString(cluster.Object, "spec", "topology", "classRef", "name")
	namespace, _, _ := unstructured.NestedString(cluster.Object, "spec", "topology", "classRef", "namespace")
	if namespace == "" {
		namespace = cluster.GetNamespace()
	}
	return name == ClassName && namespace == Infrastructure().Namespace
}

func newObject(kind string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": clusterGroup, "kind": kind}}
}
