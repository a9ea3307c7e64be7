// Package artifact is what the appliance's REST API for uploads and its clients agree on:
// names, records, headers and paths. Paths, record fields and headers are those of ICN's
// BPA REST API; what is added to them is marked.
package artifact

import (
	"fmt"
	"net/url"
	"regexp"
	"time"
)

// Port is where the API is served, by TLS.
const Port = 9015

// PortS3 is where the same artifacts are served by S3, by TLS, if the site says so. It is MinIO's.
const PortS3 = 9000

// Base is the first part of every path of the API.
const Base = "/v1/baremetalcluster"

// Group is the API group in which rights are given: an artifact is to Kubernetes' RBAC a
// resource of this group, named like its collection, in the namespace named like its owner.
const Group = "artifact.firstlight.dev"

// Headers of the upload protocol, in octets. Complete is ?1 or ?0.
const (
	HeaderOffset   = "Upload-Offset"
	HeaderLength   = "Upload-Length"   // not in ICN
	HeaderComplete = "Upload-Complete" // not in ICN
)

// Limits on what is announced.
const (
	MaxLength   = 5 << 40  // octets of one artifact: S3's largest object
	MaxForm     = 16 << 20 // octets of a multipart form, all parts; ICN's limit
	MaxMetadata = 64 << 10 // octets of the record in it
	MaxPage     = 1000     // records of one page of a list
	PageLength  = 100      // if nothing else is asked

	MaxRecords     = 10000   // artifacts of one owner, finished or not
	MaxRecordBytes = 8 << 20 // octets of the free text of all of them
	MaxPageBytes   = 1 << 20 // octets of the free text of one page, but for its first record
)

// Collection is a kind of artifacts, as it stands in the path.
type Collection string

const (
	Binary    Collection = "binary_images"
	Container Collection = "container_images"
	OS        Collection = "os_images"
)

// Collections lists them all.
func Collections() []Collection { return []Collection{Binary, Container, OS} }

// Bucket is where the store keeps the artifacts of a collection; ICN's names.
func (c Collection) Bucket() string {
	return map[Collection]string{Binary: "binary", Container: "container", OS: "operatingsystem"}[c]
}

// IsKnown tells whether there is such a collection.
func (c Collection) IsKnown() bool { return c.Bucket() != "" }

// Key names one artifact.
type Key struct {
	Collection Collection
	Owner      string // a DNS label
	Cluster    string // a DNS label
	Name       string
}

var (
	reLabel   = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	reName    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
	rePackage = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+~-]{0,127}$`)
)

// Check says in a sentence what is wrong with the names; nil if nothing is. The name's rule
// is that of an image in site.yaml; binaries also have the '+' and '~' of Debian's versions.
func (k Key) Check() error {
	switch {
	case !k.Collection.IsKnown():
		return fmt.Errorf("collection %q is unknown; use binary_images, container_images or os_images", k.Collection)
	case !reLabel.MatchString(k.Owner):
		return fmt.Errorf("owner %q is not a DNS label: up to 63 of a-z, 0-9 and '-'", k.Owner)
	case !reLabel.MatchString(k.Cluster):
		return fmt.Errorf("cluster %q is not a DNS label: up to 63 of a-z, 0-9 and '-'", k.Cluster)
	case k.Collection == Binary && !rePackage.MatchString(k.Name):
		return fmt.Errorf("name %q is not allowed; use up to 128 of letters, digits, '.', '_', '+', '~' and '-', beginning with a letter or digit", k.Name)
	case k.Collection != Binary && !reName.MatchString(k.Name):
		return fmt.Errorf("name %q is not allowed; use up to 128 of letters, digits, '.', '_' and '-', beginning with a letter or digit", k.Name)
	}
	return nil
}

// ServedImage is where the appliance's registry has an image of a name that an owner's archive gives it,
// registry.example/web/nginx:1: names are each owner's own, as the namespaces of rights are.
func ServedImage(owner, name string) string { return ServedPath + owner + "/" + name }

// ServedPath begins every repository of uploaded images.
const ServedPath = "owners/"

// Object is the name within the collection's bucket.
func (k Key) Object() string { return k.Owner + "/" + k.Cluster + "/" + k.Name }

// Path is where the API serves the record.
func (k Key) Path() string {
	return CollectionPath(k.Collection, k.Owner, k.Cluster) + "/" + url.PathEscape(k.Name)
}

// ContentPath is where the API serves the bytes. ICN has no such path.
func (k Key) ContentPath() string { return k.Path() + "/content" }

func (k Key) String() string { return string(k.Collection) + "/" + k.Object() }

// CollectionPath is where the API lists and takes records.
func CollectionPath(c Collection, owner, cluster string) string {
	return Base + "/" + url.PathEscape(owner) + "/" + url.PathEscape(cluster) + "/" + string(c)
}

// Metadata is what is known of an artifact. The offset and whether it is complete are the
// server's to say: what a client sends for them is passed over.
type Metadata struct {
	Owner       string      `json:"owner"`
	ClusterName string      `json:"cluster_name"`
	Type        string      `json:"type"` // free text
	ImageName   string      `json:"image_name"`
	ImageOffset int64       `json:"image_offset"` // octets that are there
	ImageLength int64       `json:"image_length"` // octets announced
	Complete    bool        `json:"upload_complete"`
	Description Description `json:"description"`

	// Not in ICN.
	SHA256      string    `json:"sha256,omitempty"`       // lower case hexadecimal; announced, or found once complete
	Format      string    `json:"format,omitempty"`       // of an OS image: qcow2 or raw
	VirtualSize int64     `json:"virtual_size,omitempty"` // octets of the disk an OS image makes
	ServedAs    []string  `json:"served_as,omitempty"`    // of a container image: the names nodes can pull it by
	NotServed   string    `json:"not_served,omitempty"`   // why nodes cannot pull it, or be installed from it; a sentence
	Damaged     string    `json:"damaged,omitempty"`      // why it can only be removed or replaced, a sentence
	Created     time.Time `json:"created,omitzero"`
	Updated     time.Time `json:"updated,omitzero"` // last time the record or its bytes changed
}

// Description is free to the client.
type Description struct {
	ImageRecords []map[string]string `json:"image_records"`
}

// FreeTextLength is how many octets of the record are free to the client, about.
func (r Metadata) FreeTextLength() (n int) {
	n = len(r.Type)
	for _, notes := range r.Description.ImageRecords {
		n += 2
		for key, value := range notes {
			n += len(key) + len(value) + 6
		}
	}
	return n
}

// List is one page of a collection, ordered by name.
type List struct {
	Items    []Metadata `json:"items"`
	Continue string     `json:"continue,omitempty"` // give it back to get the next page; absent on the last
}

// ProblemType is the media type of every failure (RFC 9457).
const ProblemType = "application/problem+json"

// Problem is a failure, in one sentence.
type Problem struct {
	Title  string `json:"title"` // the status in words
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Offset *int64 `json:"offset,omitempty"` // where an upload may go on, if that is the matter
}

func (p Problem) Error() string { return p.Detail }
