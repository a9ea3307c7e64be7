package sitedocument

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func newStore(t *testing.T) Store {
	paths := []string{filepath.Join(t.TempDir(), "site.yaml"), filepath.Join(t.TempDir(), "baked.yaml")}
	return Store{Paths: paths, Write: func(text []byte, check func() error) error {
		if err := check(); err != nil {
			return err
		}
		return os.WriteFile(paths[0], text, 0o600)
	}}
}

func TestADocumentIsReplacedUnlessItIsWrongOrAnother(t *testing.T) {
	s := newStore(t)
	text, path, err := s.Read()
	require.NoError(t, err)
	assert.Nil(t, text)
	assert.Empty(t, path)

	require.NoError(t, os.WriteFile(s.Paths[1], []byte("name: baked\n"), 0o600))
	text, path, err = s.Read()
	require.NoError(t, err)
	assert.Equal(t, "name: baked\n", string(text))
	assert.Equal(t, s.Paths[1], path)
	was := Digest(text)

	problems, err := s.Replace([]byte("nmae: x\n"), was)
	require.NoError(t, err)
	assert.Contains(t, problems.String(), "site.yaml:1: nmae: unknown key")
	_, err = s.Replace([]byte(" \n"), was)
	require.ErrorContains(t, err, "is empty")
	assert.NoFileExists(t, s.Paths[0])

	_, err = s.Replace([]byte("name: second\n"), was)
	require.NoError(t, err)
	_, err = s.Replace([]byte("name: third\n"), was)
	require.ErrorIs(t, err, ErrChanged)
	text, _, err = s.Read()
	require.NoError(t, err)
	assert.Equal(t, "name: second\n", string(text))
	_, err = s.Replace([]byte("name: third\n"), "")
	require.NoError(t, err, "whoever names none replaces any")
}

// TestADocumentMayHaveWhatTheOneInUseHas that only a new one may not.
func TestADocumentMayHaveWhatTheOneInUseHas(t *testing.T) {
	node := func(name, mac, image string) string {
		return fmt.Sprintf("- name: %s\n  macs: ['52:54:00:00:00:%s']\n  os: {image: %s}\n", name, mac, image)
	}
	inUse := "nodes:\n" + node("a", "01", "x.iso")
	s := newStore(t)
	problems, err := s.Replace([]byte(inUse), "")
	require.NoError(t, err)
	require.Contains(t, problems.String(), `site.yaml:4: nodes[0].os.image: "x.iso" is started from a drive`)
	require.NoError(t, os.WriteFile(s.Paths[1], []byte(inUse), 0o600))

	problems, err = s.Replace([]byte("nodes:\n"+node("b", "02", "y.iso")+node("a", "01", "x.iso")), "")
	require.NoError(t, err)
	assert.Len(t, problems, 1)
	assert.Contains(t, problems.String(), `site.yaml:4: nodes[0].os.image: "y.iso" is started from a drive`)
	problems, err = s.Replace([]byte("nodes:\n"+node("b", "02", "y.raw")+node("a", "01", "x.iso")), "")
	require.NoError(t, err)
	assert.Empty(t, problems)
	text, _, err := s.Read()
	require.NoError(t, err)
	assert.Contains(t, string(text), "y.raw")
}

func TestTheHistoryIsBoundedAndRootsAlone(t *testing.T) {
	h := &History{Dir: filepath.Join(t.TempDir(), "secret", "site-history")}
	require.NoError(t, h.Load())
	assert.Empty(t, h.List())

	at := time.Date(2026, 11, 29, 9, 0, 0, 5, time.UTC)
	require.NoError(t, h.Add([]byte("name: a\n"), "", at))
	require.NoError(t, h.Add([]byte("name: a\n"), "ann@laptop", at.Add(time.Hour)))
	require.NoError(t, h.Add([]byte("name: a\n"), "", at.Add(time.Hour)))
	require.NoError(t, h.Add([]byte("name: a\n"), "eve@laptop", at.Add(time.Hour)))
	assert.Equal(t, []Entry{{1, at.Truncate(time.Second), "ann@laptop", []byte("name: a\n")}}, h.List())
	info, err := os.Stat(h.Dir)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	info, err = os.Stat(filepath.Join(h.Dir, "00000001.yaml"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	require.NoError(t, os.WriteFile(filepath.Join(h.Dir, "00000007.yaml"), []byte("# applied: some"), 0o600), "a torn one")
	for i := range 30 {
		require.NoError(t, h.Add(fmt.Appendf(nil, "name: a%d\n# by: nobody\n", i), "", at))
	}
	other := &History{Dir: h.Dir}
	require.NoError(t, other.Load())
	assert.Equal(t, h.List(), other.List())
	require.Len(t, other.List(), maxEntries)
	assert.Equal(t, "name: a29\n# by: nobody\n", string(other.List()[maxEntries-1].Text))
	assert.Equal(t, 31, other.List()[maxEntries-1].Number)

	require.NoError(t, h.Add([]byte("# "+strings.Repeat("x", maxBytes)), "", at))
	require.Len(t, h.List(), 1, "the newest is in it however long it is")
	require.NoError(t, h.Add([]byte("name: b\n"), "", at))
	files, err := os.ReadDir(h.Dir)
	require.NoError(t, err)
	assert.Len(t, files, 1)
}

// TestWhatIsInEffectIsAddedOnce: a document that somebody replaces is in effect until the new one was read.
func TestWhatIsInEffectIsAddedOnce(t *testing.T) {
	h := &History{Dir: filepath.Join(t.TempDir(), "site-history")}
	at := time.Date(2026, 11, 29, 9, 0, 0, 0, time.UTC)
	one, two := []byte("name: a\n"), []byte("name: b\n")
	require.NoError(t, h.Follow(one, at))
	require.NoError(t, h.Add(two, "ann@laptop", at))
	require.NoError(t, h.Follow(one, at))
	require.NoError(t, h.Follow(two, at))
	assert.Equal(t, []Entry{{1, at, "", one}, {2, at, "ann@laptop", two}}, h.List())

	require.NoError(t, h.Follow(one, at), "it was put on the stick again")
	require.Len(t, h.List(), 3)
	assert.Empty(t, h.List()[2].By)
}
