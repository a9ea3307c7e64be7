// Package guest names what the manifests of an appliance on someone else's Kubernetes and the daemon that runs there
// agree on. docs/install.md says what such an appliance is.
package guest

import (
	"encoding/json"
	"fmt"
	"strings"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/label"
)

// Names in the cluster.
const (
	Namespace  = "firstlight"
	Name       = "firstlight" // of Deployment, ServiceAccount and pod
	NodeLabel  = label.Appliance
	SiteSecret = "firstlight-site"           // with SiteKey
	SiteKey    = "site.yaml"                 // the site document
	Folder     = "/var/lib/firstlight-guest" // on that node, unless its owner names another one
)

// Architecture of all images, as Go and OCI name it.
const Architecture = "amd64"

// NodeSelector is of the pods of an appliance: its node, which others of other architectures may be next to.
func NodeSelector() map[string]string {
	return map[string]string{NodeLabel: "", "kubernetes.io/arch": Architecture}
}

// User is who the daemon is for the cluster's API server.
const User = "system:serviceaccount:" + Namespace + ":" + Name

// Variable of the environment with an encoded Placement, in pods that run the daemon's program.
const Variable = "FIRSTLIGHT_PLACEMENT"

// Placement is where the pods of an appliance are on a Kubernetes that is not its own.
type Placement struct {
	Folder   string `json:"folder"`             // absolute, on the node; there are all files that the appliance keeps, each at its own path below it
	Registry string `json:"registry,omitempty"` // HOST[:PORT][/PATH] in place of the images' own domain; "": the node has them
}

// Encode returns the text of Variable.
func (p Placement) Encode() string {
	text, _ := json.Marshal(p) // two strings always can be
	return string(text)
}

// Parse reads a Placement back.
func Parse(text string) (Placement, error) {
	var p Placement
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return p, fmt.Errorf("read %s: %w", Variable, err)
	}
	return p, p.Check()
}

// Image is the name by which a node gets an image of ours; others keep theirs.
func (p Placement) Image(name string) string {
	rest, isOurs := strings.CutPrefix(name, assets.ImageDomain+"/")
	if !isOurs || p.Registry == "" {
		return name
	}
	return p.Registry + "/" + rest
}

// Check returns an error if pods cannot be placed so.
func (p Placement) Check() error {
	if !strings.HasPrefix(p.Folder, "/") || strings.Trim(p.Folder, "/") == "" {
		return fmt.Errorf("folder %q is no folder of the node; name one like %s", p.Folder, Folder)
	}
	if strings.Contains(p.Registry, "://") || strings.HasSuffix(p.Registry, "/") || strings.ContainsAny(p.Registry, " \t\n\"'") {
		return fmt.Errorf("registry %q is not HOST[:PORT][/PATH]", p.Registry)
	}
	return nil
}
