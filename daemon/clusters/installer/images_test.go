package installer

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/assert"
)

const listed = `REF                                       TYPE                                       DIGEST                                                                  SIZE      PLATFORMS   LABELS
firstlight.internal/pause:3.10.2          application/vnd.oci.image.manifest.v1+json sha256:aa 321.3 KiB linux/amd64 firstlight.dev/synced=true,io.cri-containerd.pinned=pinned
firstlight.internal/etcd:v3.6.16          application/vnd.oci.image.manifest.v1+json sha256:bb 27.1 MiB  linux/amd64 -
firstlight.internal/coredns:v1.14.2       application/vnd.oci.image.manifest.v1+json sha256:cc 74.0 MiB  linux/amd64 firstlight.dev/synced=true,io.cri-containerd.image=managed,io.cri-containerd.pinned=pinned
firstlight.internal/node:v0.1.0           application/vnd.oci.image.manifest.v1+json sha256:dd 180.0 MiB linux/amd64 firstlight.dev/synced=true
`

func TestImagesThatAreMissing(t *testing.T) {
	have := parseImages(listed)
	assert.Len(t, have, 4)
	digests := map[string]string{"firstlight.internal/pause:3.10.2": "sha256:aa", "firstlight.internal/etcd:v3.6.16": "sha256:bb",
		"firstlight.internal/coredns:v1.14.2": "sha256:new", "firstlight.internal/node:v0.1.0": "sha256:dd", "firstlight.internal/kube-proxy:v1.36.3": "sha256:ee"}
	missing, torn := missingImages([]string{"firstlight.internal/pause:3.10.2", "firstlight.internal/etcd:v3.6.16", "firstlight.internal/coredns:v1.14.2",
		"firstlight.internal/node:v0.1.0", "firstlight.internal/kube-proxy:v1.36.3"}, digests, have)
	assert.Equal(t, []string{"firstlight.internal/etcd:v3.6.16", "firstlight.internal/coredns:v1.14.2", "firstlight.internal/node:v0.1.0",
		"firstlight.internal/kube-proxy:v1.36.3"}, missing)
	assert.Equal(t, []string{"firstlight.internal/etcd:v3.6.16", "firstlight.internal/coredns:v1.14.2", "firstlight.internal/node:v0.1.0"}, torn,
		"one that was cut off, one of another version, one that may be collected")
	assert.Empty(t, parseImages(""))
	assert.Empty(t, parseImages("ctr: failed to dial\n\n x"))
}

func TestFilesThatDiffer(t *testing.T) {
	a, b, c := file{"/a b", 0o644, []byte("a")}, file{"/b", 0o644, []byte("b")}, file{"/c", 0o644, nil}
	sum := func(s string) string { h := sha256.Sum256([]byte(s)); return hex.EncodeToString(h[:]) }
	sums := parseSums(sum("a") + "  /a b\n" + sum("other") + "  /b\nnonsense\n")
	assert.Equal(t, []file{b, c}, filterDiffering([]file{a, b, c}, sums))
	assert.Empty(t, filterDiffering(nil, nil))
	assert.NotEqual(t, digestOf(a, b), digestOf(b, a))
	assert.NotEqual(t, digestOf(file{"/a", 0, []byte("b")}, file{"/c", 0, nil}), digestOf(file{"/a", 0, nil}, file{"/c", 0, []byte("b")}))
}
