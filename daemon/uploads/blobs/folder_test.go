package blobs_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/daemon/uploads/blobs"
)

// gatewayState is the record that an appliance with an S3 server over the folder wrote of an unfinished upload.
func gatewayState(b *fixture, name, id string, change func(upload map[string]any)) (serial string) {
	file := filepath.Join(b.config.Backend.(*blobs.Folder).Dir, "binary", ".firstlight", "records", "alpha", "beta", name)
	text, err := os.ReadFile(file)
	require.NoError(b.t, err)
	var state map[string]any
	require.NoError(b.t, json.Unmarshal(text, &state))
	upload := state["upload"].(map[string]any)
	upload["id"] = id
	change(upload)
	text, err = json.Marshal(state)
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(file, text, 0o644))
	return upload["serial"].(string)
}

// What an S3 server over the folder left of an upload is gone on with at the octet, also when taking it over is cut off.
func TestUploadOfAnEarlierApplianceGoesOn(t *testing.T) {
	content := image(17 << 20)
	const at, partBegin = 12<<20 + 123, 10 << 20
	for _, c := range []struct {
		name string
		at   int64
		id   string   // "" before the first whole part
		dir  string   // of its parts
		tail [2]int64 // offsets at which fragments begin; the second may be the end
	}{
		{"parts and fragments", at, "1b2c", "1b2c", [2]int64{partBegin, partBegin + 99}},
		{"completion that was cut off", at, "1b2c", "1b2c.0123-2.inprogress", [2]int64{partBegin, at}},
		{"fragments alone", 1 << 20, "", "", [2]int64{0, 77}},
		{"parts alone", partBegin, "1b2c", "1b2c", [2]int64{partBegin, partBegin}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &blobs.Folder{Dir: t.TempDir()}
			b := newFixture(t, f, nil)
			_, err := b.Create(t.Context(), key("tool"), record(key("tool"), len(content)))
			require.NoError(t, err)
			_, err = b.Append(t.Context(), key("tool"), 0, c.at, octets(content[:c.at]))
			require.NoError(t, err)

			// The same as the server kept it.
			tail := []blobs.Fragment{}
			for i, end := range []int64{c.tail[1], c.at} {
				if begin := c.tail[i]; begin < end {
					tail = append(tail, blobs.Fragment{Offset: begin, Length: end - begin})
				}
			}
			serial := gatewayState(b, "tool", c.id, func(u map[string]any) { u["tail"] = tail })
			bucket := filepath.Join(f.Dir, "binary")
			require.NoError(t, os.Remove(filepath.Join(bucket, ".firstlight", "uploads", serial)))
			for _, p := range tail {
				name := filepath.Join(bucket, ".firstlight", "fragments", serial, fmt.Sprint(p.Offset))
				require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
				require.NoError(t, os.WriteFile(name, content[p.Offset:p.Offset+p.Length], 0o644))
			}
			if c.dir != "" {
				parts := filepath.Join(bucket, ".sgwtmp", "multipart", fmt.Sprintf("%x", sha256.Sum256([]byte(key("tool").Object()))), c.dir)
				require.NoError(t, os.MkdirAll(parts, 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(parts, "object"), content[:min(c.at, partBegin)], 0o644))
				require.NoError(t, os.WriteFile(filepath.Join(parts, "1"), nil, 0o644))
			}

			b.open()
			assert.Equal(t, []string{".firstlight/records/alpha/beta/tool"}, notFragments(b.names("")))
			n, err := b.Append(t.Context(), key("tool"), c.at, -1, octets(content[c.at:]))
			require.NoError(t, err)
			assert.Equal(t, int64(len(content)), n)
			assert.True(t, bytes.Equal(content, b.read(key("tool"))))
			assert.ElementsMatch(t, []string{".firstlight/records/alpha/beta/tool", "alpha/beta/tool"}, b.names(""))
			assert.Empty(t, b.pending())
		})
	}
}

func notFragments(names []string) (others []string) {
	for _, n := range names {
		if filepath.Dir(filepath.Dir(n)) != ".firstlight/fragments" {
			others = append(others, n)
		}
	}
	return others
}

// A complete artifact of an earlier appliance is found by its record, or without one by what its file's attribute says.
func TestObjectOfAnEarlierApplianceIsThere(t *testing.T) {
	f := &blobs.Folder{Dir: t.TempDir()}
	b := newFixture(t, f, nil)
	before := b.bring(key("tool"), image(100))
	file := filepath.Join(f.Dir, "binary", "alpha", "beta", "tool")
	text := make([]byte, 4096)
	n, err := unix.Getxattr(file, "user.metadata", text)
	require.NoError(t, err)
	var meta map[string]string
	require.NoError(t, json.Unmarshal(text[:n], &meta))
	lower, err := json.Marshal(map[string]string{"serial": meta["Serial"], "record": meta["Record"], "part-size": "8388608"})
	require.NoError(t, err)
	require.NoError(t, unix.Setxattr(file, "user.metadata", lower, 0))
	require.NoError(t, b.config.Backend.Remove(t.Context(), "binary", ".firstlight/records/alpha/beta/tool"))
	b.open()
	b.Sweep(t.Context())
	after, err := b.Get(key("tool"))
	require.NoError(t, err)
	before.Updated, after.Updated = after.Updated, before.Updated
	after.Updated = before.Updated
	assert.Equal(t, before, after)
}

// An upload of an older appliance that nobody knows any more is swept after its time, ours after an hour.
func TestWhatNoUploadNamesIsSwept(t *testing.T) {
	f := &blobs.Folder{Dir: t.TempDir()}
	b := newFixture(t, f, nil)
	bucket := filepath.Join(f.Dir, "binary")
	for _, name := range []string{".firstlight/uploads/gone", ".firstlight/uploads/put-1", ".firstlight/fragments/gone/0", ".sgwtmp/multipart/ab/1b2c/object"} {
		file := filepath.Join(bucket, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, nil, 0o644))
	}
	named := func(string, string) bool { return false }
	now := b.now
	for _, dir := range []string{".firstlight/uploads/gone", ".firstlight/uploads/put-1", ".firstlight/fragments/gone", ".sgwtmp/multipart/ab/1b2c"} {
		require.NoError(t, os.Chtimes(filepath.Join(bucket, dir), now, now))
	}
	require.NoError(t, f.Sweep(t.Context(), "binary", named, now.Add(blobs.SweepAge), blobs.Expiry))
	assert.FileExists(t, filepath.Join(bucket, ".firstlight/uploads/gone"))
	require.NoError(t, f.Sweep(t.Context(), "binary", named, now.Add(blobs.SweepAge+1), blobs.Expiry))
	for _, name := range []string{".firstlight/uploads/gone", ".firstlight/uploads/put-1", ".firstlight/fragments/gone"} {
		assert.NoFileExists(t, filepath.Join(bucket, name))
		assert.NoDirExists(t, filepath.Join(bucket, name))
	}
	assert.DirExists(t, filepath.Join(bucket, ".sgwtmp/multipart/ab/1b2c"))
	require.NoError(t, f.Sweep(t.Context(), "binary", named, now.Add(blobs.Expiry+1), blobs.Expiry))
	assert.NoDirExists(t, filepath.Join(bucket, ".sgwtmp/multipart/ab/1b2c"))
}

// cutOff is a folder that is not asked any more from some point of a completion on.
type cutOff struct {
	*blobs.Folder
	before, after bool // the file becomes the object
	cut           bool
}

func (c *cutOff) Complete(ctx context.Context, u blobs.Upload, n int64, meta map[string]string) (lost string, err error) {
	if c.before {
		c.cut = true
		return "", blobs.ErrDown
	}
	lost, err = c.Folder.Complete(ctx, u, n, meta)
	c.cut = c.after
	return lost, err
}

func (c *cutOff) Put(ctx context.Context, bucket, object string, data []byte) error {
	if c.cut {
		return blobs.ErrDown
	}
	return c.Folder.Put(ctx, bucket, object, data)
}

func TestCompletionOfAFolderCutOff(t *testing.T) {
	content := image(11 << 20)
	for name, c := range map[string]*cutOff{"before the file is the object": {before: true}, "before the record says so": {after: true}} {
		t.Run(name, func(t *testing.T) {
			c.Folder = &blobs.Folder{Dir: t.TempDir()}
			b := newFixture(t, c, nil)
			_, err := b.Create(t.Context(), key("tool"), record(key("tool"), len(content)))
			require.NoError(t, err)
			_, err = b.Append(t.Context(), key("tool"), 0, -1, octets(content))
			assert.Equal(t, blobs.Down, kind(t, err))
			b.config.Backend = c.Folder
			b.open()
			b.Sweep(t.Context())
			assert.True(t, bytes.Equal(content, b.read(key("tool"))))
			assert.ElementsMatch(t, []string{".firstlight/records/alpha/beta/tool", "alpha/beta/tool"}, b.names(""))
			assert.Empty(t, b.pending())
		})
	}
}
