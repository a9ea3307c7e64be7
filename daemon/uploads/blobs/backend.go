package blobs

import (
	"context"
	"errors"
	"io"
	"os"
	"time"
)

// What a backend may answer besides what was asked. Its errors wrap one of these, or none if it refused for another
// reason.
var (
	ErrNotExist = errors.New("is not in the store")
	ErrFull     = errors.New("the store is full")
	ErrDown     = errors.New("the store does not answer")
)

// Limits on parts, which are S3's.
const (
	MinPart  = 5 << 20 // octets of a part that is not the last
	MaxParts = 10000
)

// Backend is where a Store keeps everything: a folder (Folder), or an S3 server (package s3). What it answered for
// survives a power cut.
type Backend interface {
	Objects
	Uploads
}

// Objects are small objects, which are stored and read whole, and complete artifacts.
type Objects interface {
	// MakeBucket makes a bucket if it is not there.
	MakeBucket(ctx context.Context, bucket string) error
	// Put stores a small object, in place of one that has the name: there is the old one or the new one.
	Put(ctx context.Context, bucket, object string, data []byte) error
	// Get reads a whole object of at most limit octets.
	Get(ctx context.Context, bucket, object string, limit int64) ([]byte, error)
	// Open reads length octets of an object from offset on; the stream ends with ctx.
	Open(ctx context.Context, bucket, object string, offset, length int64) (io.ReadCloser, error)
	// Stat asks for one object.
	Stat(ctx context.Context, bucket, object string) (Object, error)
	// List calls yield for every object whose name begins with prefix, in no order, without Meta.
	List(ctx context.Context, bucket, prefix string, yield func(Object) error) error
	// Remove removes an object; none of that name is no error.
	Remove(ctx context.Context, bucket, object string) error
}

// Uploads are artifacts that come in part by part. The part under way gathers in a file; what there is of it when a
// request ends is a fragment.
type Uploads interface {
	// Begin begins an upload and returns the backend's own name for it. meta are to be kept with the object.
	Begin(ctx context.Context, u Upload, meta map[string]string) (id string, err error)
	// PartFile opens a file for a part under way. In one of the whole upload octets have the place that they have in the
	// artifact, in another the part begins at 0.
	PartFile(u Upload) (f *os.File, whole bool, err error)
	// PutPart stores part number, from 1 on, of size octets with that CRC-32C, in place of one that has the number.
	PutPart(ctx context.Context, u Upload, number int, f *os.File, size int64, sum uint32) error
	// PutFragment stores what lies at an offset of the file of the part under way.
	PutFragment(ctx context.Context, u Upload, t Fragment, f *os.File, at int64) error
	// LoadFragment has a fragment lie at an offset of the file again; false if it is lost or torn.
	LoadFragment(ctx context.Context, u Upload, t Fragment, f *os.File, at int64) (bool, error)
	// RemoveFragments removes fragments that are in a later part or fragment.
	RemoveFragments(ctx context.Context, u Upload, old []Fragment) error
	// LostParts says in a sentence what is not right with the first n parts; "" if nothing is.
	LostParts(ctx context.Context, u Upload, n int64) (string, error)
	// Complete makes all n parts the object, with meta. Whoever is told that it failed should look whether the object is
	// there: an answer may have been lost.
	Complete(ctx context.Context, u Upload, n int64, meta map[string]string) (lost string, err error)
	// Discard removes all that there is of an upload, which may be nothing.
	Discard(ctx context.Context, u Upload) error
	// Sweep removes what is older than an hour of uploads that named does not know by its serial. Of uploads that
	// others may have begun it removes what is older than an age, unless named knows its ID.
	Sweep(ctx context.Context, bucket string, named func(serial, id string) bool, now time.Time, age time.Duration) error
}

// Object is what a backend knows of an object. Meta is there only after Stat; its names are as Go writes headers
// (Sha256).
type Object struct {
	Name     string
	Size     int64
	Modified time.Time
	Meta     map[string]string
}

// Upload says which unfinished upload is meant.
type Upload struct {
	Bucket   string
	Object   string // that it will be
	Serial   string // random; no other upload ever had it
	ID       string // what Begin returned; "" before
	PartSize int64  // octets of all parts but the last
	Length   int64  // octets of the object
	Tail     []Fragment
}

// Fragment is a received piece of a part.
type Fragment struct {
	Offset int64 `json:"offset"` // in the artifact
	Length int64 `json:"length"`
}

// FragmentPrefix is how the objects begin that a backend keeps for fragments: it is followed by SERIAL/OFFSET.
const FragmentPrefix = ".firstlight/fragments/"

// SweepAge is how old must be what no upload names before it is removed: one may begin just now.
const SweepAge = time.Hour
