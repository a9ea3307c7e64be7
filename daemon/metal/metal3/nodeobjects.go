// Package metal3 hands the site over to Metal3: per node the Secrets and the
// BareMetalHost that its controllers act on, the operator that runs them, and the rules
// under which a host in service is left alone. What is decided is decided in pure
// functions; the stages apply it.
package metal3

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/assets/inspection"
	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/site"
)

// Namespace holds the hosts, their Secrets, Ironic and the operator (ICN's name).
const Namespace = "metal3"

// Labels and annotations of the objects that are handed over.
const (
	LabelSite    = label.Site        // name of the site
	LabelNode    = label.Node        // on Secrets: the node they are for
	AllowWipe    = label.AllowWipe   // annotation by which an owner gives up a live host's disk, for one image
	Overwrite    = label.Overwrite   // annotation, from the site or the owner: which data on its disk may be lost
	NoImage      = "none"            // value of AllowWipe: the host is to be emptied, or deleted
	FieldManager = "firstlight-site" // of server-side apply: what the site says
)

// Image is an operating system image that this appliance serves.
type Image struct {
	URL    string
	SHA256 string
	Format string // raw or qcow2
	Size   int64  // bytes it takes on a disk; 0: not known
}

// Appliance is what the hand-over needs to know of the box it runs on.
type Appliance struct {
	Time   []netip.Addr                                   // its addresses from which nodes take their time
	Images map[string]Image                               // by the name that site.yaml uses
	Key    string                                         // public key of the appliance's own log-in to nodes, as in authorized_keys
	Hash   func(password string) (hash string, err error) // crypt(5) hash; passes a hash through
	MACs   []string                                       // of its own NICs, lower case
	Trust  ImageTrust
}

// NodeObjects is everything that one node becomes.
type NodeObjects struct {
	BMC     *corev1.Secret // nil if the node has no BMC
	User    *corev1.Secret // <name>-user-data: cloud-init's or Ignition's
	Network *corev1.Secret // <name>-network-data: OpenStack network data
	Meta    *corev1.Secret // <name>-meta-data: what the config drive says of the installation besides; nil: nothing
	Host    *metal3api.BareMetalHost
	Need    int64  // bytes of the image on the disk; 0: not known
	Own     string // a MAC of the node that is one of the appliance's; "": none
	Applied bool   // the host is not the site's: someone applied it (AppliedHost)
	SameBMC string // another host that has the same BMC; "": none

	// Unsigned is why the site's rules for images forbid this one, in a sentence; "" if they do not.
	Unsigned string

	AwaitedSecret string // of the user data of an applied host; it does not exist and is waited for; "": none
}

// NewNodeObjects turns one node of a site with its defaults filled in into objects. The error names
// the node and what to do.
func NewNodeObjects(s *site.Site, n site.Node, a Appliance) (NodeObjects, error) {
	image, err := FindImage(n, a.Images)
	if err != nil {
		return NodeObjects{}, fmt.Errorf("node %s: %w", n.Name, err)
	}

	user, err := nodeUserData(s, n, a)
	if err != nil {
		return NodeObjects{}, fmt.Errorf("node %s: user data: %w", n.Name, err)
	}

	network, err := networkData(s, n)
	if err != nil {
		return NodeObjects{}, fmt.Errorf("node %s: network data: %w", n.Name, err)
	}

	name := string(n.Name)
	host, bmc := NewHost(n, map[string]string{LabelSite: string(s.Name)})
	host.Annotations[artifact.ImageAnnotation] = image.URL
	if n.OS.UserDataKind() == site.UserDataIgnition {
		host.Annotations[label.UserData] = site.UserDataIgnition
	}
	host.Spec.Image = &metal3api.Image{
		URL:          image.URL,
		Checksum:     image.SHA256,
		ChecksumType: metal3api.SHA256,
		DiskFormat:   &image.Format,
	}
	host.Spec.UserData = &corev1.SecretReference{Name: name + "-user-data", Namespace: Namespace}
	host.Spec.NetworkData = &corev1.SecretReference{Name: name + "-network-data", Namespace: Namespace}
	host.Spec.MetaData = &corev1.SecretReference{Name: name + "-meta-data", Namespace: Namespace}

	secret := func(suffix string, data map[string]string) *corev1.Secret {
		sec := newSecret(name+suffix, name, data)
		sec.Labels[LabelSite] = string(s.Name)
		return sec
	}
	if bmc != nil {
		bmc.Labels[LabelSite] = string(s.Name)
	}

	return NodeObjects{
		Need:     image.Size,
		Unsigned: a.Trust.CheckImage(host.Spec.Image),

		Own:     ownMAC(n, a.MACs),
		BMC:     bmc,
		User:    secret("-user-data", map[string]string{"userData": user}),
		Network: secret("-network-data", map[string]string{"networkData": network}),
		Meta:    secret("-meta-data", map[string]string{"metaData": metaData(s)}),
		Host:    host,
	}, nil
}

// nodeUserData is a node's user data, of the kind that its image reads.
func nodeUserData(s *site.Site, n site.Node, a Appliance) (string, error) {
	if n.OS.UserDataKind() == site.UserDataIgnition {
		return ignitionData(s, n, a)
	}
	return userData(s, n, a)
}

// NewHost is the host that a node of a site with its defaults filled in is, without an image, and the Secret of its BMC;
// nil if it has none. It has the node's labels and, before these, own.
func NewHost(n site.Node, own map[string]string) (*metal3api.BareMetalHost, *corev1.Secret) {
	name := string(n.Name)
	labels := map[string]string{}
	maps.Copy(labels, n.Labels)
	maps.Copy(labels, own)
	host := &metal3api.BareMetalHost{
		TypeMeta:   metav1.TypeMeta{APIVersion: "metal3.io/v1alpha1", Kind: "BareMetalHost"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace, Labels: labels, Annotations: map[string]string{}},
		Spec: metal3api.BareMetalHostSpec{
			Online:                true,
			BootMACAddress:        string(n.BootMAC),
			BootMode:              metal3api.BootMode(n.BootMode),
			AutomatedCleaningMode: metal3api.CleaningModeDisabled, // cleaning would erase every disk of the node, also those nobody named
			RootDeviceHints:       RootDeviceHints(n.RootDevice),
		},
	}
	if n.Overwrite.IsGranted() {
		host.Annotations[Overwrite] = string(n.Overwrite)
	}

	if n.BMC == nil {
		return host, nil
	}
	if host.Spec.BootMode == metal3api.UEFISecureBoot && !n.BMC.Address.IsRedfish() {
		host.Spec.BootMode, host.Annotations[label.SecureBoot] = metal3api.UEFI, "true"
	}
	bmc := newSecret(BMCSecretName(name), name, map[string]string{
		"username": n.BMC.Username,
		"password": n.BMC.Password.Reveal(),
	})
	check := n.BMC.VerifyCertificate
	host.Spec.BMC = metal3api.BMCDetails{
		Address:                        string(n.BMC.Address),
		CredentialsName:                bmc.Name,
		DisableCertificateVerification: check != site.CheckCA && check != site.CheckPin,
	}
	return host, bmc
}

// BMCSecretName is the name of the Secret with the credentials of a node's BMC.
func BMCSecretName(node string) string { return node + "-bmc-secret" }

// metaData is the mark of the disk (package inspection): the operator adds it to the metadata that it makes itself,
// which name the host and its UID.
func metaData(s *site.Site) string {
	return fmt.Sprintf("%s: %q\n", inspection.SiteKey, string(s.Name))
}

// ownMAC is the first MAC of a node that the appliance has itself.
func ownMAC(n site.Node, macs []string) string {
	for _, mac := range withBoot(n) {
		if slices.Contains(macs, strings.ToLower(string(mac))) {
			return string(mac)
		}
	}
	return ""
}

func newSecret(name, node string, data map[string]string) *corev1.Secret {
	sec := &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			Name:      name,
			Namespace: Namespace,
			Labels:    map[string]string{LabelNode: node},
		},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{},
	}
	for k, v := range data {
		sec.Data[k] = []byte(v)
	}
	return sec
}

// FindImage finds a node's operating system: what its URL says, or an image of this appliance by name.
func FindImage(n site.Node, images map[string]Image) (Image, error) {
	if n.OS.URL != "" {
		return Image{URL: string(n.OS.URL), SHA256: string(n.OS.SHA256), Format: n.OS.Format}, nil
	}

	image, ok := images[n.OS.Image]
	if !ok && n.OS.SHA256 != "" {
		image, ok = uploadedAs(n.OS.Image, string(n.OS.SHA256), images)
	}

	switch {
	case !ok:
		return Image{}, fmt.Errorf(
			"os.image %q is not on this appliance; it has %s (uploads by their full names, or by name and os.sha256)", n.OS.Image,
			list(images),
		)
	case n.OS.SHA256 != "" && string(n.OS.SHA256) != image.SHA256:
		return Image{}, fmt.Errorf(
			"os.image %q has the sha256 %s, not os.sha256; correct it, or take it out", n.OS.Image, image.SHA256,
		)
	}

	return image, nil
}

// uploadedAs finds an upload by the last part of its full name, OWNER.CLUSTER.NAME, and its digest: whoever uploaded
// it, the content is that which the site means.
func uploadedAs(name, sha256 string, images map[string]Image) (Image, bool) {
	for _, full := range slices.Sorted(maps.Keys(images)) {
		parts := strings.SplitN(full, ".", 3)
		if len(parts) == 3 && parts[2] == name && images[full].SHA256 == sha256 {
			return images[full], true
		}
	}
	return Image{}, false
}

// RootDeviceHints copies the site's description of the disk. Metal3 takes the first disk that fits;
// that it is the only one is checked before anything is written (OneDisk).
func RootDeviceHints(d *site.RootDevice) *metal3api.RootDeviceHints {
	if d == nil {
		return nil
	}
	return &metal3api.RootDeviceHints{
		DeviceName:         d.DeviceName,
		HCTL:               d.HCTL,
		Model:              d.Model,
		Vendor:             d.Vendor,
		SerialNumber:       d.SerialNumber,
		MinSizeGigabytes:   d.MinSizeGigabytes,
		WWN:                d.WWN,
		WWNWithExtension:   d.WWNWithExtension,
		WWNVendorExtension: d.WWNVendorExtension,
		Rotational:         d.Rotational,
	}
}
