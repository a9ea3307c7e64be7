package installer

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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

// TestANodeInServiceKeepsWhatItHas: another digest under the same name is no reason to replace an image there.
func TestANodeInServiceKeepsWhatItHas(t *testing.T) {
	have := parseImages(listed)
	want := []string{"firstlight.internal/coredns:v1.14.2", "firstlight.internal/etcd:v3.6.16", "firstlight.internal/kube-proxy:v1.36.3"}
	stick := map[string]string{want[0]: "sha256:new", want[1]: "sha256:bb", want[2]: "sha256:ee"}
	missing, torn := missingImages(want, keepDigests(stick, have), have)
	assert.Equal(t, want[1:], missing, "one that was cut off, and one that is not there")
	assert.Equal(t, want[1:2], torn)
	assert.Equal(t, "sha256:new", stick[want[0]], "the other nodes' were changed")

	n := &node{known: facts{Programs: "1.36.3-0firstlight0.1.0+0123456789ab"}}
	assert.True(t, n.inService())
	version, err := n.programsVersion(t.Context())
	require.NoError(t, err)
	assert.Empty(t, version, "a node in service is to have the stick's programs")
	assert.False(t, (&node{known: facts{Programs: "1.36.3", HalfMade: true}}).inService(), "a control plane that was never whole")
	assert.False(t, (&node{}).inService())
}

func TestVersionsThatDoNotGoTogether(t *testing.T) {
	for _, c := range []struct {
		cluster, stick string
		controlPlane   bool
		says           string
	}{
		{"v1.36.3", "v1.36.3", true, ""},
		{"v1.36.3", "v1.36.7", false, ""},
		{"v1.36.7", "v1.36.3", false, ""},
		{"v1.36.3", "v1.36.7", true, "the cluster runs Kubernetes v1.36.3 and this stick has v1.36.7: add it with a stick of v1.36.3"},
		{"v1.36.3", "v1.37.0", false, "add it with a stick of v1.36, or install"},
		{"v1.3.0", "v1.36.0", false, "add it with a stick of v1.3,"},
		{"", "v1.36.0", false, "this stick has v1.36.0"},
	} {
		err := checkSkew(c.cluster, c.stick, c.controlPlane)
		if c.says == "" {
			assert.NoError(t, err)
			continue
		}
		assert.ErrorContains(t, err, c.says)
	}
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
