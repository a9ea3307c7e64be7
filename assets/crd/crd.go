// Package crd holds the CustomResourceDefinitions of this project as files: the daemon
// applies them, tests and tools read them.
package crd

import _ "embed"

// BPA defines Provisioning and Software of bpa.akraino.org/v1alpha1, two YAML documents.
//
//go:embed bpa.yaml
var BPA []byte
