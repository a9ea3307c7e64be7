package engine

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// decode reads YAML or JSON documents. A List becomes its items; empty documents are passed over.
func decode(text []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	reader := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for number := 1; ; number++ {
		u := &unstructured.Unstructured{}
		if err := reader.Decode(&u.Object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}

		if len(u.Object) == 0 {
			continue
		}
		if err := each(u, func(o *unstructured.Unstructured) error {
			if o.GetAPIVersion() == "" || o.GetKind() == "" {
				return errors.New("it has no apiVersion or no kind")
			}
			objects = append(objects, o)
			return foldStringData(o)
		}); err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
	}
}

// each calls do for an object, or for the items of a List.
func each(u *unstructured.Unstructured, do func(*unstructured.Unstructured) error) error {
	if !u.IsList() {
		return do(u)
	}
	return u.EachListItem(func(o runtime.Object) error {
		item, ok := o.(*unstructured.Unstructured)
		if !ok {
			return errors.New("an item of the List is no object")
		}
		return each(item, do)
	})
}

// foldStringData writes what a Secret has as text into its data, where the API would put it: a key that is taken out of
// the text is then taken out of the Secret, too.
func foldStringData(o *unstructured.Unstructured) error {
	if o.GetAPIVersion() != "v1" || o.GetKind() != "Secret" {
		return nil
	}

	texts, found, err := unstructured.NestedStringMap(o.Object, "stringData")
	if err != nil || !found {
		return err
	}
	for key, text := range texts {
		value := base64.StdEncoding.EncodeToString([]byte(text))
		if err := unstructured.SetNestedField(o.Object, value, "data", key); err != nil {
			return err
		}
	}

	unstructured.RemoveNestedField(o.Object, "stringData")
	return nil
}
