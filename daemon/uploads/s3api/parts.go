package s3api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/daemon/uploads/blobs"
)

// Bounds on what one owner may leave unfinished.
const (
	maxUploads    = 100
	maxOwnerParts = 2 * blobs.MaxParts
	maxPart       = 5 << 30 // octets, S3's
)

// headFile says of what a folder of parts is.
const headFile = "upload.json"

// Parts are the parts of multipart uploads: they come in any order and at the same time, so each is a file,
// DIR/ID/NUMBER-SHA256, until all of them are made one artifact. They outlive restarts.
type Parts struct {
	Dir    string
	Expiry time.Duration // an upload that nothing came for so long is removed, while the agent ran
	Log    *slog.Logger

	mu      sync.Mutex
	uploads map[string]*partial
}

// partial is one multipart upload.
type partial struct {
	id      string
	key     artifact.Key
	begun   time.Time
	octets  int64 // of its parts, and of those on their way
	parts   int
	touched time.Time // monotonic
}

// part is one that is there.
type part struct {
	number int
	sum    string // sha256, its ETag
	size   int64
	stored time.Time
}

// Open reads what an agent before left.
func (p *Parts) Open() error {
	p.uploads = map[string]*partial{}
	if err := os.MkdirAll(p.Dir, 0o750); err != nil {
		return fmt.Errorf("make folder of parts: %w", err)
	}

	found, err := os.ReadDir(p.Dir)
	if err != nil {
		return fmt.Errorf("read folder of parts: %w", err)
	}

	for _, f := range found {
		u, err := p.load(f.Name())
		if err != nil { // of one that was just being begun or removed
			p.Log.Warn("parts of an upload are removed", "upload", f.Name(), "why", err)
			if err := os.RemoveAll(filepath.Join(p.Dir, f.Name())); err != nil {
				return fmt.Errorf("remove parts: %w", err)
			}
			continue
		}
		p.uploads[u.id] = u
	}

	return nil
}

func (p *Parts) load(id string) (*partial, error) {
	text, err := os.ReadFile(filepath.Join(p.Dir, id, headFile))
	if err != nil {
		return nil, err
	}

	u := &partial{id: id, touched: time.Now()}
	info, err := os.Stat(filepath.Join(p.Dir, id))
	if err == nil {
		err = json.Unmarshal(text, &u.key)
	}
	if err == nil {
		err = u.key.Check()
	}
	if err != nil {
		return nil, err
	}

	u.begun = info.ModTime()
	cut, _ := filepath.Glob(filepath.Join(p.Dir, id, "tmp-*"))
	for _, path := range cut {
		_ = os.Remove(path) // what stays goes with the upload
	}

	parts, err := p.list(id)
	for _, part := range parts {
		u.octets, u.parts = u.octets+part.size, u.parts+1
	}
	return u, err
}

// Discard removes all uploads: S3 is served no more.
func (p *Parts) Discard() error {
	found, err := os.ReadDir(p.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	for _, f := range found {
		err = errors.Join(err, os.RemoveAll(filepath.Join(p.Dir, f.Name())))
	}
	return err
}

// Octets is how many octets an owner has in parts.
func (p *Parts) Octets(owner string) (n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, u := range p.uploads {
		if u.key.Owner == owner {
			n += u.octets
		}
	}
	return n
}

// begin begins an upload.
func (p *Parts) begin(k artifact.Key) (id string, err error) {
	u := &partial{id: requestID() + requestID(), key: k, begun: time.Now(), touched: time.Now()}
	p.mu.Lock()
	uploads, _ := p.countOwner(k.Owner)
	if uploads < maxUploads {
		p.uploads[u.id] = u
	}
	p.mu.Unlock()
	if uploads >= maxUploads {
		return "", newFailure(http.StatusConflict, "TooManyUploads",
			"owner %s has %d unfinished uploads, which is the most; complete or abort some", k.Owner, uploads)
	}

	text, err := json.Marshal(k)
	if err == nil {
		err = os.Mkdir(filepath.Join(p.Dir, u.id), 0o750)
	}
	if err == nil {
		err = atomicfile.Write(filepath.Join(p.Dir, u.id, headFile), text, 0o640)
	}
	if err != nil {
		p.remove(u.id)
		return "", storeFailure(err)
	}

	return u.id, nil
}

// countOwner counts an owner's uploads and parts; the caller has the lock.
func (p *Parts) countOwner(owner string) (uploads, parts int) {
	for _, u := range p.uploads {
		if u.key.Owner == owner {
			uploads, parts = uploads+1, parts+u.parts
		}
	}
	return uploads, parts
}

// find is the upload of an ID, if it is of that artifact.
func (p *Parts) find(id string, k artifact.Key) (*partial, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if u := p.uploads[id]; u != nil && u.key == k {
		return u, nil
	}
	return nil, newFailure(http.StatusNotFound, "NoSuchUpload", "there is no such upload of this object; it was completed, aborted, or waited too long")
}

// uploadsOf lists the uploads of an owner and a collection, by object.
func (p *Parts) uploadsOf(c artifact.Collection, owner string) (all []partial) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, u := range p.uploads {
		if u.key.Collection == c && u.key.Owner == owner {
			all = append(all, *u)
		}
	}
	slices.SortFunc(all, func(a, b partial) int {
		return strings.Compare(a.key.Object()+"\x00"+a.id, b.key.Object()+"\x00"+b.id)
	})
	return all
}

// count counts octets that come, or that did not come after all.
func (p *Parts) count(u *partial, octets int64, parts int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, have := p.countOwner(u.key.Owner); parts > 0 && have >= maxOwnerParts {
		return newFailure(http.StatusConflict, "TooManyParts", "owner %s has %d unfinished parts, which is the most", u.key.Owner, have)
	}

	u.octets, u.parts, u.touched = u.octets+octets, u.parts+parts, time.Now()
	return nil
}

// store receives a part, which is on the medium when it returns. One that has the number goes then.
func (p *Parts) store(u *partial, number int, size int64, body io.Reader) (sum string, err error) {
	dir := filepath.Join(p.Dir, u.id)
	file, err := os.CreateTemp(dir, "tmp-")
	if err != nil {
		return "", storeFailure(err)
	}
	defer os.Remove(file.Name()) // it has its name by then

	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(file, h), body)
	if err == nil && n != size {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return "", storeFailure(err)
	}

	sum = hex.EncodeToString(h.Sum(nil))
	older, _ := filepath.Glob(filepath.Join(dir, strconv.Itoa(number)+"-*"))
	path := filepath.Join(dir, strconv.Itoa(number)+"-"+sum)
	if err := os.Rename(file.Name(), path); err != nil {
		return "", storeFailure(err)
	}
	if err := syncDir(dir); err != nil {
		return "", storeFailure(err)
	}

	for _, old := range older {
		p.forget(u, old, path)
	}
	return sum, nil
}

// forget removes a part in whose place another came, which may have its octets and so its name.
func (p *Parts) forget(u *partial, old, now string) {
	info, err := os.Stat(old)
	if err == nil && old != now {
		err = os.Remove(old)
	}
	if err == nil {
		_ = p.count(u, -info.Size(), -1) // it never refuses less
	}
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// list lists the parts of an upload, by number.
func (p *Parts) list(id string) (all []part, err error) {
	found, err := os.ReadDir(filepath.Join(p.Dir, id))
	if err != nil {
		return nil, err
	}

	for _, f := range found {
		number, sum, _ := strings.Cut(f.Name(), "-")
		n, err := strconv.Atoi(number)
		if err != nil {
			continue // the head, or one that is coming
		}

		info, err := f.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, part{n, sum, info.Size(), info.ModTime()})
	}

	slices.SortFunc(all, func(a, b part) int { return a.number - b.number })
	return all, nil
}

// remove removes an upload with its parts.
func (p *Parts) remove(id string) {
	p.mu.Lock()
	delete(p.uploads, id)
	p.mu.Unlock()
	dir := filepath.Join(p.Dir, id)
	// Without its head the rest is removed by the next start.
	err := errors.Join(os.RemoveAll(filepath.Join(dir, headFile)), os.RemoveAll(dir))
	if err != nil {
		p.Log.Warn("parts are left", "upload", id, "error", err)
	}
}

// Run removes uploads that nobody goes on with, until ctx ends.
func (p *Parts) Run(ctx context.Context) {
	tick := time.NewTicker(time.Hour)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			p.sweep(time.Now())
		}
	}
}

func (p *Parts) sweep(now time.Time) {
	var old []string
	p.mu.Lock()
	for id, u := range p.uploads {
		if now.Sub(u.touched) > p.Expiry {
			old = append(old, id)
		}
	}

	p.mu.Unlock()
	for _, id := range old {
		p.Log.Info("multipart upload expired", "upload", id)
		p.remove(id)
	}
}

// storeFailure says of an error of the disk what a client can do about it.
func storeFailure(err error) error {
	var f *failure
	switch {
	case errors.As(err, &f):
		return f
	case errors.Is(blobs.FullError(err), blobs.ErrFull):
		return newFailure(http.StatusInsufficientStorage, "StorageFull", "the disk has no room for this part")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return newFailure(http.StatusBadRequest, "IncompleteBody", "the request ended early; nothing of this part is kept")
	}
	return err
}
