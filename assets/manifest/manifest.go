// Package manifest holds the Kubernetes objects that the appliance's own cluster and the clusters it
// installs have in common, so that they stay the same thing.
package manifest

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"net/netip"
	"text/template"

	"firstlight.dev/firstlight/assets"
)

//go:embed *.yaml
var manifests embed.FS

// CoreDNS is the cluster's name server, in the namespace kube-system.
type CoreDNS struct {
	Address     netip.Addr     // of its Service
	Nameservers []netip.Addr   // asked for names that are not the cluster's; none: such names do not exist
	API         netip.AddrPort // of the API server; invalid: by its Service
	Replicas    int
	PullPolicy  string
}

// Image is where it comes from.
func (CoreDNS) Image() string { return assets.ImageDomain + "/coredns:" + assets.CoreDNSVersion }

// YAML is its objects, as one stream.
func (c CoreDNS) YAML() ([]byte, error) { return Fill(manifests, "coredns.yaml", c) }

// Fill fills a template of a folder. What the template names and values lacks is an error.
func Fill(folder fs.FS, path string, values any) ([]byte, error) {
	t, err := template.ParseFS(folder, path)
	if err != nil {
		return nil, fmt.Errorf("parse template %s: %w", path, err)
	}

	var b bytes.Buffer
	if err := t.Option("missingkey=error").Execute(&b, values); err != nil {
		return nil, fmt.Errorf("fill template %s: %w", path, err)
	}

	return b.Bytes(), nil
}
