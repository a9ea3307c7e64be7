// Package manifest holds the Kubernetes objects that the appliance's own cluster and the clusters it
// installs have in common, so that they stay the same thing.
package manifest

import (
	"bytes"
	_ "embed"
	"fmt"
	"net/netip"
	"text/template"

	"firstlight.dev/firstlight/assets"
)

//go:embed coredns.yaml
var coreDNS string

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
func (c CoreDNS) YAML() ([]byte, error) { return fill("coredns.yaml", coreDNS, c) }

func fill(name, text string, v any) ([]byte, error) {
	t, err := template.New(name).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("parse manifest %s: %w", name, err)
	}

	var b bytes.Buffer
	if err := t.Execute(&b, v); err != nil {
		return nil, fmt.Errorf("fill manifest %s: %w", name, err)
	}

	return b.Bytes(), nil
}
