package provisioning

import (
	"context"
	"fmt"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/signature"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// checkImage says why a host may not have its image written now; "" if it may. The host got it when it was trusted, but
// the site may trust fewer keys since; and what Ironic was told to write must be that image.
func (p *Provisioner) checkImage(ctx context.Context, h *metal3api.BareMetalHost) (refusal string, err error) {
	want := p.Site().Images
	if want.Require != site.RequireSigned {
		return "", nil
	}

	own, err := stickImages("")
	if err != nil {
		return "", err
	}
	_, signatures, err := p.Uploads()
	if err != nil {
		return "", fmt.Errorf("read uploaded signatures: %w", err)
	}
	if refusal := imageTrust(want, own, signatures).CheckImage(h.Spec.Image); refusal != "" {
		return refusal, nil
	}

	node, err := p.api.Node(ctx, h.Status.Provisioning.ID)
	if err != nil {
		return "", err
	}
	if node == nil {
		return "", fmt.Errorf("Ironic has no node of host %s", h.Name)
	}
	return metal3.CheckHandedImage(h.Spec.Image, node.InstanceInfo), nil
}

// imageTrust is which images the site lets nodes have. own are those of the stick; texts are signatures that were
// uploaded, of which those count that a key of the site has made.
func imageTrust(want site.Images, own map[string]metal3.Image, texts []string) metal3.ImageTrust {
	t := metal3.ImageTrust{Required: want.Require == site.RequireSigned, Own: map[string]bool{}, Signed: map[string]bool{}}
	if !t.Required {
		return t
	}

	for _, image := range own {
		t.Own[image.SHA256] = true
	}
	keys := signature.NewKeys(want.Keys)
	for _, text := range texts {
		s, err := signature.Parse([]byte(text))
		if err != nil {
			continue
		}
		if says, _, err := keys.CheckStatement(s); err == nil {
			t.Signed[says.SHA256] = true
		}
	}
	return t
}
