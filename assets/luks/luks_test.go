package luks

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const uuid = "8a5bb9a1-7a9c-4c53-9f6a-2d5a3f1f0001"

// volume is what cryptsetup makes.
func volume(t *testing.T) []byte {
	t.Helper()
	if _, err := exec.LookPath("cryptsetup"); err != nil {
		t.Skip("needs cryptsetup: scripts/deps test")
	}
	path := filepath.Join(t.TempDir(), "volume")
	require.NoError(t, os.WriteFile(path, make([]byte, 32<<20), 0o600))
	format := exec.Command("cryptsetup", "luksFormat", "--batch-mode", "--type=luks2", "--pbkdf=pbkdf2",
		"--pbkdf-force-iterations=1000", "--key-file=-", "--uuid="+uuid, path)
	format.Stdin = strings.NewReader("key")
	out, err := format.CombinedOutput()
	require.NoError(t, err, "%s", out)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return b
}

func TestWhatCryptsetupMakesIsRead(t *testing.T) {
	b := volume(t)
	h, err := Read(bytes.NewReader(b))
	require.NoError(t, err)
	assert.Equal(t, Header{UUID: uuid}, h)

	const second = 16 << 10
	for _, at := range []int{0, 7, 9, 200, 460, 5000} {
		one := bytes.Clone(b)
		one[at] ^= 1
		h, err = Read(bytes.NewReader(one))
		require.NoError(t, err, "byte %d of the first copy", at)
		assert.Equal(t, uuid, h.UUID)

		one[second+at] ^= 1
		_, err = Read(bytes.NewReader(one))
		require.Error(t, err, "byte %d of both copies", at)
	}

	b[300], b[second+300] = 1, 1
	_, err = Read(bytes.NewReader(b))
	assert.ErrorContains(t, err, "both copies are damaged")
	assert.NotErrorIs(t, err, ErrNone, "there was a volume: it is not taken for an empty partition")
}

func TestOtherContentIsNoVolume(t *testing.T) {
	for name, b := range map[string][]byte{"empty": nil, "zeros": make([]byte, 8<<20), "short": []byte("LUKS\xba\xbe\x00\x02")} {
		_, err := Read(bytes.NewReader(b))
		assert.Error(t, err, name)
	}
	_, err := Read(bytes.NewReader(make([]byte, 8<<20)))
	assert.ErrorIs(t, err, ErrNone)
}

func FuzzRead(f *testing.F) {
	b := make([]byte, 32<<10)
	copy(b, "LUKS\xba\xbe\x00\x02")
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) { _, _ = Read(bytes.NewReader(b)) })
}
