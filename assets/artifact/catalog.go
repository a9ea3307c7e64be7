package artifact

import (
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/stick"
)

// Dir is where artifacts are kept on DATA.
const Dir = stick.DataDir + "/artifacts"

// The folder on DATA that agent and daemon share. All of it is one file system: an OS
// image is served to nodes by a second name of the very file that the store keeps.
const (
	StoreDir    = "store"        // the artifacts: a folder for each bucket
	PartsDir    = "parts"        // the agent's, of multipart uploads by S3
	ScratchDir  = "scratch"      // the agent's, empty after a restart
	ImagesDir   = "images"       // OWNER/CLUSTER/NAME of every complete OS image
	PackagesDir = "packages"     // OWNER.CLUSTER.NAME.deb of every complete binary image that is a Debian package
	DigestsDir  = "digests"      // the sha256, in hex, of every complete binary image
	BundlesDir  = "bundles"      // OWNER/NAME/VERSION of every bundle, see assets/bundle
	CatalogFile = "catalog.json" // see Catalog
	PushedFile  = "pushed.json"  // which container images are in the registry, for the agent alone

	AuditDir  = "audit"                   // the agent's: who changed what
	AuditFile = AuditDir + "/uploads.log" // the part of it that is being written
)

// StickArchives is the folder of the stick with archives of container images and bundles that a recipe has put there,
// OWNER/FILE. They are served as uploads are.
const StickArchives = "/usr/share/firstlight/bundles"

// Where the boot server shows ImagesDir and DigestsDir to nodes.
const (
	ImagesPath  = "/artifacts/"
	DigestsPath = "/binaries/sha256/"
)

// ImageAnnotation is the annotation of a BareMetalHost with the URL of the image that the site names for it. The
// host itself gets it only when its disk was looked at, which may be long after.
const ImageAnnotation = label.Image

// Catalog is what the agent tells the daemon of its appliance, as a file. It is written
// after what it names is there.
type Catalog struct {
	Written     time.Time            `json:"written"`
	Collections map[Collection]Usage `json:"collections"`
	Images      []OSImage            `json:"images"`
	Signatures  []string             `json:"signatures,omitempty"` // texts of signatures of minisign, of any file
}

// MaxSignatures is how many signatures of one owner are in the catalog: the first by cluster and name.
const MaxSignatures = 100

// Usage is what one collection holds.
type Usage struct {
	Artifacts int   `json:"artifacts"`
	Complete  int   `json:"complete"`
	Octets    int64 `json:"octets"` // received, of both complete and unfinished ones
	Announced int64 `json:"announced"`
}

// OSImage is a complete OS image that nodes can be installed from.
type OSImage struct {
	Owner       string `json:"owner"`
	Cluster     string `json:"cluster"`
	Name        string `json:"name"`
	SHA256      string `json:"sha256"`
	Format      string `json:"format"` // qcow2 or raw
	Length      int64  `json:"length"`
	VirtualSize int64  `json:"virtual_size"` // octets of the disk it makes
}

// Key is the artifact that the image is.
func (i OSImage) Key() Key {
	return Key{Collection: OS, Owner: i.Owner, Cluster: i.Cluster, Name: i.Name}
}

// FullName names the image among those of all owners, as site.yaml can: labels have no dots.
func (i OSImage) FullName() string { return i.Owner + "." + i.Cluster + "." + i.Name }

// ByName finds the images by their full names. The name alone is anybody's to upload first, so it means nothing.
func (c Catalog) ByName() map[string]OSImage {
	names := map[string]OSImage{}
	for _, i := range c.Images {
		names[i.FullName()] = i
	}
	return names
}

// ReservedSpace is how much of DATA, of so many octets, uploads leave free: the appliance's database, its logs
// and the kubelet write there too, and below 1 % the kubelet begins to remove pods.
func ReservedSpace(size int64) int64 { return max(1<<30, size/100*3) }

// PackageOwner is who brought a file in PackagesDir: labels have no dots.
func PackageOwner(file string) string {
	owner, _, _ := strings.Cut(file, ".")
	return owner
}
