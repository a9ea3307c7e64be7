package metal3

import (
	"fmt"
	"strings"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/signature"
)

// ImageTrust is which images nodes may be given, by their sha256. The zero value trusts all.
type ImageTrust struct {
	Required bool            // an image must be in one of the two
	Own      map[string]bool // what the stick brings: the root it is read from was checked
	Signed   map[string]bool // what a key of the site has signed
}

// CheckImage says in a sentence why no node may be given an image; "" if it may. Ironic compares what it writes with the
// digest that is checked here.
func (t ImageTrust) CheckImage(image *metal3api.Image) string {
	if !t.Required || image == nil {
		return ""
	}

	sum := strings.ToLower(image.Checksum)
	switch {
	case image.IsLiveISO(): // Metal3 passes no digest of it on (Image.GetChecksum)
		return fmt.Sprintf("its image %s is a live ISO, whose digest no one compares, and site.yaml requires signed images; "+
			"name an image that is written to a disk", image.URL)
	case image.ChecksumType != metal3api.SHA256:
		return fmt.Sprintf("its image %s has no sha256 in spec.image, and site.yaml requires signed images; "+
			"give its sha256, and upload its signature", image.URL)
	case !t.Own[sum] && !t.Signed[sum]:
		return fmt.Sprintf("its image %s with sha256 %.12s… is signed by none of images.keys in site.yaml; sign it with "+
			"firstlight sign, and upload the signature: firstlight artifact push IMAGE%s binary/NAME%s", image.URL, sum,
			signature.Suffix, signature.Suffix)
	}
	return ""
}
