package publish_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/assets/signature"
	"firstlight.dev/firstlight/daemon/uploads/publish"
)

// TestSignaturesComeAndGoWithTheirArtifacts, whatever else is a binary image; no owner can fill the catalog.
func TestSignaturesComeAndGoWithTheirArtifacts(t *testing.T) {
	b := newFixture(t)
	key, err := signature.NewPrivateKey()
	require.NoError(t, err)
	sign := func(text string) string {
		s, err := key.Sign(t.Context(), bytes.NewReader([]byte(text)), "x", "")
		require.NoError(t, err)
		return s.Text()
	}
	put := func(owner, name, text string) artifact.Metadata {
		r := b.store(artifact.Binary, owner, name, text)
		r.SHA256 = fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
		return r
	}
	sync := func(records ...artifact.Metadata) []string {
		failed := publish.Folder(b.dir).Sync(map[artifact.Collection][]artifact.Metadata{artifact.Binary: records}, nil)
		require.NoError(t, failed)
		c, err := publish.Read(filepath.Join(b.dir, artifact.CatalogFile))
		require.NoError(t, err)
		return c.Signatures
	}

	image := put("alpha", "debian.qcow2.minisig", sign("debian"))
	first := put("alpha", "arch.minisig", sign("arch"))
	half := put("alpha", "half.minisig", sign("half"))
	half.Complete = false
	no := put("alpha", "none.minisig", "nonsense")
	large := put("alpha", "large.minisig", strings.Repeat("x", 4096))
	named := put("alpha", "signature", sign("named otherwise"))
	assert.Equal(t, []string{sign("arch"), sign("debian")}, sync(image, first, half, no, large, named))
	assert.Equal(t, []string{sign("debian")}, sync(image), "the other one was removed")
	image = put("alpha", "debian.qcow2.minisig", sign("newer"))
	assert.Equal(t, []string{sign("newer")}, sync(image), "it was replaced")

	var many []artifact.Metadata
	for i := range artifact.MaxSignatures + 5 {
		many = append(many, put("greedy", fmt.Sprintf("%03d.minisig", i), sign("greedy")))
	}
	last := put("zeta", "x.minisig", sign("zeta"))
	all := sync(append(many, image, last)...)
	require.Len(t, all, artifact.MaxSignatures+2)
	assert.Equal(t, sign("zeta"), all[len(all)-1])

	require.NoError(t, os.Remove(filepath.Join(b.dir, artifact.StoreDir, "binary/zeta/beta/x.minisig")))
	err = publish.Folder(b.dir).Sync(map[artifact.Collection][]artifact.Metadata{artifact.Binary: {last}}, nil)
	require.Error(t, err, "the store has lost it")
}
