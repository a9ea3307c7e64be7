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
	scheme, _, _ := strings.Cut(strings.ToLower(image.URL), "://")
	switch {
	case image.IsLiveISO(): // Metal3 passes no digest of it on (Image.GetChecksum)
		return fmt.Sprintf("its image %s is a live ISO, whose digest no one compares, and site.yaml requires signed images; "+
			"name an image that is written to a disk", image.URL)
	case scheme != "http" && scheme != "https": // of oci:// Ironic takes another digest, of file:// what is in its own files
		return fmt.Sprintf("its image %s is not at an http or https address, and site.yaml requires signed images; upload "+
			"it, or give it such an address, with its sha256", image.URL)
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

// CheckHandedImage says in a sentence why what Ironic was told to write is not the image of a host, which was checked; ""
// if it is. info is the instance_info of Ironic's node, as baremetal-operator sets it.
func CheckHandedImage(image *metal3api.Image, info map[string]any) string {
	if image == nil {
		return "it has no image any more"
	}

	text := func(key string) string { v, _ := info[key].(string); return v }
	if text("image_source") == image.URL && text("image_os_hash_algo") == string(image.ChecksumType) &&
		strings.EqualFold(text("image_os_hash_value"), image.Checksum) {
		return ""
	}
	return fmt.Sprintf("Ironic was told to write %s with %s %.12s…, its image is %s with %s %.12s…: it was changed while it was "+
		"being installed, and Metal3 begins again", text("image_source"), text("image_os_hash_algo"),
		text("image_os_hash_value"), image.URL, image.ChecksumType, image.Checksum)
}
