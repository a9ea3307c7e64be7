package blobs

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/artifact"
)

const (
	recordPrefix = ".firstlight/records/"
	maxStateSize = 1 << 20 // octets of a record object
	maxFragments = 64      // of one part; then they are made one
)

// Names of the metadata of an object, by which it is known again.
const (
	metaSerial = "Serial" // of the upload that it is of
	metaRecord = "Record" // base64 of the record's JSON, without description if that is long
	maxMeta    = 1500     // octets; S3 has 2 KB for all
)

// entryState is what the store holds of an artifact besides its bytes.
type entryState struct {
	Record  artifact.Metadata `json:"record"`           // ImageOffset: octets that a kill leaves
	Upload  *upload           `json:"upload,omitempty"` // nil once complete
	Removed bool              `json:"removed,omitempty"`

	// Replacing is the serial of a whole upload that is taking the name: if the object is of that one, it has it.
	Replacing string `json:"replacing,omitempty"`
}

// upload is the state of an unfinished upload at the record's offset.
type upload struct {
	Serial   string     `json:"serial"`       // random; tells this upload from others of the name
	ID       string     `json:"id,omitempty"` // S3's; "" before the first part
	PartSize int64      `json:"part_size"`
	Hash     []byte     `json:"hash,omitempty"`      // state of the sha256 at the offset
	PartHash []byte     `json:"part_hash,omitempty"` // and where the part under way begins
	Tail     []Fragment `json:"tail,omitempty"`      // what there is of that part, in order
	TailSum  uint32     `json:"tail_sum,omitempty"`  // CRC-32C of it
	Checked  bool       `json:"checked,omitempty"`   // the head of an OS image was looked at
	Touched  time.Time  `json:"touched"`             // last time that something was received

	// How long agents saw that nobody continued it. The clock does not tell: an appliance may start years
	// in the past, and be set right while an upload waits.
	Idle time.Duration `json:"idle,omitempty"`
}

// partCount is how many whole parts there are at an offset; the last may be short.
func (u *upload) partCount(offset, length int64) int64 {
	if offset == length {
		return (length + u.PartSize - 1) / u.PartSize
	}
	return offset / u.PartSize
}

func newUpload(length, partSize int64, now time.Time) *upload {
	if least := (length + MaxParts - 1) / MaxParts; partSize < least {
		partSize = (least + 1<<20 - 1) >> 20 << 20 // whole MiB
	}
	return &upload{Serial: randomHex(), PartSize: partSize, Touched: now}
}

func randomHex() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails, crypto/rand
	return hex.EncodeToString(b[:])
}

// in names the upload to the backend.
func (u *upload) in(k artifact.Key, length int64) Upload {
	return Upload{
		Bucket:   k.Collection.Bucket(),
		Object:   k.Object(),
		Serial:   u.Serial,
		ID:       u.ID,
		PartSize: u.PartSize,
		Length:   length,
		Tail:     u.Tail,
	}
}

// save writes what is kept; the store has it whole or not at all.
func (d *Store) save(ctx context.Context, k artifact.Key, kp entryState) error {
	data, err := json.Marshal(kp)
	if err != nil {
		return fmt.Errorf("encode record of %s: %w", k, err)
	}
	if len(data) > maxStateSize { // it could never be read again
		return &Error{
			Kind: TooLarge,
			Text: fmt.Sprintf(
				"the record of %s would have %d bytes; %d are the most", k.Name, len(data), maxStateSize,
			),
		}
	}

	return d.Backend.Put(ctx, k.Collection.Bucket(), recordPrefix+k.Object(), data)
}

// update writes a changed copy of what is kept of an artifact, and keeps it once it is
// written. The caller has the turn.
func (d *Store) update(ctx context.Context, e *entry, how func(*entryState)) error {
	kp := e.copyState()
	how(&kp)
	if err := d.save(ctx, e.key, kp); err != nil {
		return err
	}

	e.mu.Lock()
	e.stored, e.live = kp, max(e.live, kp.Record.ImageOffset)
	e.mu.Unlock()
	return nil
}

// copyState is a copy that can be changed.
func (e *entry) copyState() entryState {
	e.mu.Lock()
	defer e.mu.Unlock()
	kp := e.stored
	if kp.Upload != nil {
		u := *kp.Upload
		kp.Upload = &u
	}

	return kp
}

// objectMetadata is what is kept with the object itself, from which a lost record is made again.
func objectMetadata(r artifact.Metadata, u *upload) map[string]string {
	r.ImageOffset, r.Complete = r.ImageLength, true
	text, err := json.Marshal(r)
	if err != nil || len(text) > maxMeta*3/4 {
		r.Description = artifact.Description{}
		r.Type = r.Type[:min(len(r.Type), 64)]
		text, _ = json.Marshal(r) // a struct of strings and numbers
	}

	return map[string]string{metaSerial: u.Serial, metaRecord: base64.StdEncoding.EncodeToString(text)}
}

// fromObject makes a record of an object alone: of its metadata if it has ours, else of its
// name and size.
func fromObject(k artifact.Key, o Object) artifact.Metadata {
	var r artifact.Metadata
	text, err := base64.StdEncoding.DecodeString(o.Meta[metaRecord])
	if err != nil || json.Unmarshal(text, &r) != nil {
		r = artifact.Metadata{Created: o.Modified}
	}

	if r.ImageLength != o.Size {
		r.SHA256, r.Format, r.VirtualSize = "", "", 0 // they are another object's
	}

	r.Owner, r.ClusterName, r.ImageName = k.Owner, k.Cluster, k.Name
	r.ImageLength, r.ImageOffset, r.Complete = o.Size, o.Size, true
	r.Updated = o.Modified
	return r
}

// parseObject is the inverse of Key.Object.
func parseObject(c artifact.Collection, object string) (artifact.Key, bool) {
	words := strings.Split(object, "/")
	if len(words) != 3 {
		return artifact.Key{}, false
	}

	k := artifact.Key{Collection: c, Owner: words[0], Cluster: words[1], Name: words[2]}
	return k, k.Check() == nil
}

// hashState is the state of a sha256, which can be gone on with in another process.
func hashState(h hash.Hash) []byte {
	state, err := h.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		panic(err) // crypto/sha256 never fails
	}
	return state
}

// hashFrom goes on from a state; nil is the beginning.
func hashFrom(state []byte) (hash.Hash, error) {
	h := sha256.New()
	if state == nil {
		return h, nil
	}
	if err := h.(encoding.BinaryUnmarshaler).UnmarshalBinary(state); err != nil {
		return nil, fmt.Errorf("read state of hash: %w", err)
	}

	return h, nil
}
