// Package crd holds the CustomResourceDefinitions of this project as files: the daemon
// applies them, tests and tools read them.
package crd

import _ "embed"

// BPA defines Provisioning, Software and NodeUpdate of bpa.akraino.org/v1alpha1, three YAML documents.
//
//go:embed bpa.yaml
var BPA []byte

// KPA defines Component of kpa.akraino.org/v1alpha1.
//
//go:embed kpa.yaml
var KPA []byte

// Metal3Provider defines the kinds of infrastructure.cluster.x-k8s.io and IPPool of ipam.metal3.io, one YAML document
// each. It is made from the types in daemon/clusters/metal3provider by go generate.
//
//go:embed metal3provider.yaml
var Metal3Provider []byte
