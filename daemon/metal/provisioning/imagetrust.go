package provisioning

import (
	"firstlight.dev/firstlight/assets/signature"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

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
