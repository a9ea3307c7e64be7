package metal3

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/site"
)

// AppliedHost is a BareMetalHost that someone applied to the API and that site.yaml never named, with what its Secrets
// say. It is checked, installed and verified like a node of the site.
type AppliedHost struct {
	Host     *metal3api.BareMetalHost
	Username string // of its BMC
	Password string
	UserData []byte // nil: it has none
	// AwaitedSecret is the Secret of its user data that does not exist, for as long as it is waited for; "": none.
	AwaitedSecret string
	// Credentials are the Secret of its BMC as it was saved, to be restored with the host; nil: none.
	Credentials *corev1.Secret
	SameBMC     string // another host that has the same BMC; "": none

	Default site.CertificateCheck // of the site's nodes; "": pin
}

// UseCredentials takes over credentials that were saved; nil changes nothing.
func (a *AppliedHost) UseCredentials(saved *corev1.Secret) {
	if saved == nil {
		return
	}
	a.Credentials = saved
	a.Username, a.Password = string(saved.Data["username"]), string(saved.Data["password"])
}

// IsApplied reports whether a host is one of those: the site has no node of its name, and none of its objects ever came
// from a site. What is externally provisioned is its owner's alone.
func IsApplied(h *metal3api.BareMetalHost, rec HostBackup, inSite bool) bool {
	return !inSite && !rec.FromSite && h.Labels[LabelSite] == "" && !h.Spec.ExternallyProvisioned
}

// Node is the host as a site would describe it.
func (a AppliedHost) Node() site.Node {
	spec := a.Host.Spec
	n := site.Node{
		Name:       site.Name(a.Host.Name),
		BootMAC:    site.MAC(BootMAC(a.Host)),
		BootMode:   string(a.Host.BootMode()),
		RootDevice: siteRootDevice(spec.RootDeviceHints),
		Overwrite:  site.Consent(a.Host.Annotations[Overwrite]),
		OS:         site.OS{Username: "root"},
	}
	if n.BootMAC != "" {
		n.MACs = []site.MAC{n.BootMAC}
	}

	if spec.BMC.Address != "" {
		n.BMC = &site.BMC{
			Address:           BMCAddress(spec.BMC.Address),
			Username:          a.Username,
			Password:          site.NewSecret(a.Password),
			VerifyCertificate: a.certificateCheck(),
		}
	}

	if image := a.image(); image != nil {
		n.OS.URL = site.URL(image.URL)
		if image.DiskFormat != nil {
			n.OS.Format = *image.DiskFormat
		}
	}

	return n
}

// certificateCheck is how the certificate of the BMC is checked: as an annotation says, else as Metal3 would, or where its
// owner has switched that off, as that of a node of the site which says nothing.
func (a AppliedHost) certificateCheck() site.CertificateCheck {
	switch said := site.CertificateCheck(a.Host.Annotations[label.VerifyCertificate]); {
	case !BMCAddress(a.Host.Spec.BMC.Address).HasTLS():
		return ""
	case said == site.CheckPin, said == site.CheckCA, said == site.CheckNone:
		return said
	case !a.Host.Spec.BMC.DisableCertificateVerification && a.Host.Labels[LabelSite] == "":
		return site.CheckCA
	case !a.Host.Spec.BMC.DisableCertificateVerification && a.Default == site.CheckCA:
		return site.CheckCA // of a node that was taken out of the site, whose check is one of these two
	case a.Default == site.CheckNone:
		return site.CheckNone
	}
	return site.CheckPin
}

// BMCAddress is a BMC's address with its scheme: Metal3 takes one without for IPMI.
func BMCAddress(a string) site.BMCAddress {
	if !strings.Contains(a, "://") {
		a = "ipmi://" + a
	}
	return site.BMCAddress(a)
}

// image is what the host is to be installed with: what it asks for, or what was put aside until its inspection.
func (a AppliedHost) image() *metal3api.Image {
	image := a.Host.Spec.Image.DeepCopy()
	if image == nil || image.URL == "" {
		image = &metal3api.Image{}
		if json.Unmarshal([]byte(a.Host.Annotations[label.Wanted]), image) != nil || image.URL == "" {
			return nil
		}
	}

	if image.Checksum != "" && image.ChecksumType == "" {
		image.ChecksumType = checksumType(image.Checksum)
	}

	return image
}

// checksumType is the type of a checksum that comes without one: of a digest by its length, of a URL by what is found
// there (Ironic). Metal3 takes every checksum without a type for MD5 (Image.GetChecksum), and a SHA-256 that was checked
// as MD5 fits no image.
func checksumType(sum string) metal3api.ChecksumType {
	if _, err := hex.DecodeString(sum); err != nil {
		return metal3api.AutoChecksum
	}

	switch len(sum) {
	case hex.EncodedLen(sha256.Size):
		return metal3api.SHA256
	case hex.EncodedLen(sha512.Size):
		return metal3api.SHA512
	default:
		return metal3api.AutoChecksum
	}
}

// NewAppliedObjects is what an applied host becomes: itself, and its user data with the keys by which the appliance
// knows it and logs in. Its disk gets the site's mark, unless it has metadata of its own. The error names the host.
func NewAppliedObjects(s *site.Site, a AppliedHost, ap Appliance) (NodeObjects, error) {
	h := a.Host.DeepCopy()
	h.Spec.Image = a.image()
	n := NodeObjects{
		Applied:       true,
		Host:          h,
		SameBMC:       a.SameBMC,
		AwaitedSecret: a.AwaitedSecret,
		BMC:           a.Credentials,
		Own:           ownMAC(a.Node(), ap.MACs),
		Unsigned:      ap.Trust.CheckImage(h.Spec.Image),
	}
	if n.Host.Spec.Image == nil {
		return n, nil
	}

	for _, image := range ap.Images {
		if image.URL != h.Spec.Image.URL {
			continue
		}
		n.Need = image.Size
		if h.Spec.Image.DiskFormat == nil && image.Format != "" {
			h.Spec.Image.DiskFormat = &image.Format // without it the agent holds the whole image in memory
		}
	}

	if InService(a.Host) {
		return n, nil
	}

	if m := h.Spec.MetaData; m == nil || m.Name == h.Name+markSuffix {
		n.Meta = newAppliedSecret(h.Name, markSuffix, "metaData", metaData(s))
	}

	if u := h.Spec.UserData; u != nil && u.Name == h.Name+mergedSuffix {
		return n, nil // it has the keys; put into it twice, they would hide the place of the host key
	}

	keys, err := keyData(ap)
	if err != nil {
		return n, fmt.Errorf("host %s: user data: %w", h.Name, err)
	}

	merged, ok := mergeUserData(string(a.UserData), keys)
	if !ok {
		if merged, ok, err = mergeIgnition(a.UserData, ap.Key); err != nil {
			return n, fmt.Errorf("host %s: user data: %w", h.Name, err)
		}
		if !ok {
			return n, nil // it is neither cloud-init's nor Ignition's; the login decides
		}
		metav1.SetMetaDataAnnotation(&h.ObjectMeta, label.UserData, site.UserDataIgnition)
	}

	n.User = newAppliedSecret(h.Name, mergedSuffix, "userData", merged)
	return n, nil
}

// Ends of the names of an applied host's Secrets: its user data with our keys, and the mark of its disk.
const (
	mergedSuffix = "-firstlight-user-data"
	markSuffix   = "-firstlight-meta-data"
)

func newAppliedSecret(host, suffix, key, value string) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			Name:      host + suffix,
			Namespace: Namespace,
			Labels:    map[string]string{LabelNode: host},
		},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{key: []byte(value)},
	}
}

// patchApplied does a step on a host that other people's field managers own: it writes what the step needs and
// nothing else, in one request.
func (s Reconciler) patchApplied(ctx context.Context, step Step, n NodeObjects, have *metal3api.BareMetalHost) error {
	var mode metal3api.BootMode
	if s.BootMode != nil && step == StepImage && have.Spec.BootMode == "" {
		var err error
		if mode, err = s.BootMode(ctx, have); err != nil {
			return fmt.Errorf("ask how %s was started: %w", have.Name, err)
		}
	}

	patch, err := appliedPatch(step, n, have, mode)
	if err != nil || patch == nil {
		return err
	}

	text, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode patch of host %s: %w", have.Name, err)
	}

	h := have.DeepCopy()
	if err := s.Client.Patch(
		ctx, h, client.RawPatch(types.MergePatchType, text), client.FieldOwner(FieldManager),
	); err != nil {
		return fmt.Errorf("%s host %s: %w", step, have.Name, err)
	}

	return nil
}

type fields = map[string]any

// appliedPatch is the merge patch (RFC 7396) of a step; nil if there is nothing to write. mode is how the host is to
// boot its image, if that is to be written. It is pure.
func appliedPatch(step Step, n NodeObjects, have *metal3api.BareMetalHost, mode metal3api.BootMode) (fields, error) {
	annotations := fields{annotationPaused: nil}
	metadata := fields{"annotations": annotations}
	if n.Applied && step != StepRelease {
		// If its owner changes it at the same time, the next round decides again.
		metadata["resourceVersion"] = have.ResourceVersion
	}
	spec := fields{}
	switch step {
	case StepRelease:
		if isClearedByURL(have) {
			annotations[label.Cleared] = ClearedImage(have.Spec.Image)
		}
	case StepRegister:
		annotations[label.Cleared] = clearedRegistration
		spec["image"] = nil
		if n.Applied && n.Host.Spec.Image != nil {
			image, err := json.Marshal(n.Host.Spec.Image)
			if err != nil {
				return nil, fmt.Errorf("encode image of host %s: %w", have.Name, err)
			}
			annotations[label.Wanted], annotations[label.Image] = string(image), n.Host.Spec.Image.URL
		}
	case StepImage:
		annotations[label.Cleared], annotations[label.Wanted] = ClearedImage(n.Host.Spec.Image), nil
		spec["image"] = imageFields(n.Host.Spec.Image)
		if n.User != nil {
			spec["userData"] = fields{"name": n.User.Name, "namespace": n.User.Namespace}
		}
		switch kind := n.Host.Annotations[label.UserData]; {
		case kind == have.Annotations[label.UserData]:
		case kind == "":
			annotations[label.UserData] = nil
		default:
			annotations[label.UserData] = kind
		}
		if n.Meta != nil {
			spec["metaData"] = fields{"name": n.Meta.Name, "namespace": n.Meta.Namespace}
		}
		if have.Spec.RootDeviceHints == nil && have.Status.HardwareDetails != nil {
			spec["rootDeviceHints"] = onlyDisk(have.Status.HardwareDetails.Storage)
		}
		if mac := BootMAC(have); have.Spec.BootMACAddress == "" && mac != "" {
			spec["bootMACAddress"] = mac
		}
		if mode != "" {
			spec["bootMode"] = string(mode)
		}
	case StepApply:
		mac := BootMAC(have)
		if have.Spec.BootMACAddress != "" || mac == "" {
			return nil, nil
		}
		delete(annotations, annotationPaused)
		spec["bootMACAddress"] = mac
	default:
		return nil, nil
	}

	return fields{"metadata": metadata, "spec": spec}, nil
}

// imageFields are all fields of an image: a merge patch leaves what it does not name.
func imageFields(i *metal3api.Image) fields {
	all := fields{"url": i.URL, "checksum": nil, "checksumType": nil, "format": nil}
	if i.Checksum != "" {
		all["checksum"] = i.Checksum
	}
	if i.ChecksumType != "" {
		all["checksumType"] = i.ChecksumType
	}
	if i.DiskFormat != nil {
		all["format"] = *i.DiskFormat
	}
	return all
}

// siteRootDevice are hints in the site's words.
func siteRootDevice(h *metal3api.RootDeviceHints) *site.RootDevice {
	if h == nil {
		return nil
	}
	return &site.RootDevice{
		DeviceName:         h.DeviceName,
		HCTL:               h.HCTL,
		Model:              h.Model,
		Vendor:             h.Vendor,
		SerialNumber:       h.SerialNumber,
		MinSizeGigabytes:   h.MinSizeGigabytes,
		WWN:                h.WWN,
		WWNWithExtension:   h.WWNWithExtension,
		WWNVendorExtension: h.WWNVendorExtension,
		Rotational:         h.Rotational,
	}
}
