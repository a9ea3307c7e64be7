package bench_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// everyOtherKind is how many bundles there are for each that defines a kind: that is what costs an API server most.
const everyOtherKind = 4

// bundle is what one Component, or one chart, installs: objects in a namespace of their own.
type bundle struct {
	name       string // of the Component, the chart, the release and the namespace
	definition string // of a kind; may be empty
	objects    string
}

// newBundle is one of many; the objects of each have other names.
func newBundle(i int) bundle {
	b := bundle{name: fmt.Sprintf("app-%02d", i)}
	b.objects = fmt.Sprintf(`apiVersion: v1
kind: ServiceAccount
metadata: {name: %[1]s}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: %[1]s-settings}
data: {number: "%[2]d", text: some words}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: %[1]s-files}
data: {a.txt: some more words, b.txt: and more}
---
apiVersion: v1
kind: Secret
metadata: {name: %[1]s}
data: {key: bm90aGluZw==}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: %[1]s}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: %[1]s}
subjects: [{kind: ServiceAccount, name: %[1]s, namespace: %[1]s}]
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s}
spec: {selector: {app: %[1]s}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: 0
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {serviceAccountName: %[1]s, containers: [{name: app, image: registry.example/app:1}]}
`, b.name, i)
	if i%everyOtherKind != 0 {
		return b
	}

	b.definition = fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lamps%[1]d.bench.example}
spec:
  group: bench.example
  scope: Namespaced
  names: {kind: Lamp%[1]d, listKind: Lamp%[1]dList, plural: lamps%[1]d, singular: lamp%[1]d}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {lit: {type: boolean}}}}}}
`, i)
	b.objects += fmt.Sprintf(`---
apiVersion: bench.example/v1
kind: Lamp%[1]d
metadata: {name: lamp}
spec: {lit: true}
`, i)
	return b
}

// text is all of it, as one stream of documents.
func (b bundle) text() string {
	if b.definition == "" {
		return b.objects
	}
	return b.definition + "---\n" + b.objects
}

// writeChart writes it as a chart of the same objects. Kinds are in the folder that helm installs first.
func (b bundle) writeChart(dir string) error {
	chart := filepath.Join(dir, b.name)
	if err := errors.Join(
		os.MkdirAll(filepath.Join(chart, "templates"), 0o755), os.MkdirAll(filepath.Join(chart, "crds"), 0o755),
	); err != nil {
		return fmt.Errorf("write chart: %w", err)
	}

	files := map[string]string{
		"Chart.yaml":             "apiVersion: v2\nname: " + b.name + "\nversion: 1.0.0\n",
		"templates/objects.yaml": b.objects,
	}
	if b.definition != "" {
		files["crds/kind.yaml"] = b.definition
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(chart, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write chart: %w", err)
		}
	}

	return nil
}
