// Package noderuntime is what a node of a workload cluster runs besides Kubernetes: the way to the API servers, the
// pods' network, the renewal of certificates, and, while a cluster is verified, something to talk to. Every node has
// it and it runs all the time, so it is small; it lies in the image whose layer Kubernetes is in. docs/clusters.md
// says where it is used.
package noderuntime
