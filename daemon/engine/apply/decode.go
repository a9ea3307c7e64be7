package apply

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Decode reads a stream of YAML documents as objects; empty ones are passed over. A key that an object has twice is an
// error, which names the document.
func Decode(stream []byte) (objects []*unstructured.Unstructured, err error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(stream)))
	for number := 1; ; number++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}

		u := &unstructured.Unstructured{}
		if err == nil {
			document, err = yaml.YAMLToJSONStrict(document)
		}
		if err == nil {
			err = json.Unmarshal(document, &u.Object)
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		if len(u.Object) > 0 {
			objects = append(objects, u)
		}
	}
}
