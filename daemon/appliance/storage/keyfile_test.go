package storage

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/tpm/tpmtest"
)

// TestAKeyFileIsReplaced: the one of before opens nothing then, and after a power cut one of the two opens DATA.
func TestAKeyFileIsReplaced(t *testing.T) {
	needCryptsetup(t)
	tpmtest.SkipWithout(t)
	own := &machine{tpm: tpmtest.Start(t, t.TempDir())}
	path, _ := makeVolume(t, own)
	record := stick.StorageInfo{State: stick.StorageData, Seal: stick.SealTPM, Device: path}
	var first, second string
	keep := func(key *string) func(string) error {
		return func(line string) error {
			*key = line
			return nil
		}
	}
	require.NoError(t, own.preparer(t).NewKeyFile(t.Context(), record, keep(&first)))
	assert.Equal(t, []stick.Seal{stick.SealKeyFile, stick.SealTPM}, ways(t, path))
	opens := func(path, key string) bool {
		return volume{device: path}.try(t.Context(), []byte(key), "") == nil
	}
	assert.True(t, opens(path, first))

	before, err := os.ReadFile(path)
	require.NoError(t, err)
	if !testing.Short() {
		for cuts := 0; ; cuts++ {
			cut := blank(t)
			require.NoError(t, os.WriteFile(cut, before, 0o600))
			record.Device = cut
			m := *own
			m.left = cuts
			printed := ""
			err := m.preparer(t).NewKeyFile(t.Context(), record, keep(&printed))
			assert.True(t, opens(cut, first) || printed != "" && opens(cut, printed), "cut before command %d", cuts+1)
			if err == nil {
				t.Logf("cut at %d places", cuts)
				break
			}
		}
	}

	record.Device = path
	own.left = -1
	full := errors.New("no space left on device")
	err = own.preparer(t).NewKeyFile(t.Context(), record, func(line string) error {
		assert.True(t, opens(path, first) && opens(path, line), "the old one goes when its owner has the new one")
		return full
	})
	require.ErrorIs(t, err, full)
	assert.True(t, opens(path, first))
	assert.Equal(t, []stick.Seal{stick.SealKeyFile, stick.SealTPM}, ways(t, path))

	require.NoError(t, own.preparer(t).NewKeyFile(t.Context(), record, keep(&second)))
	assert.NotEqual(t, first, second)
	assert.False(t, opens(path, first))
	assert.True(t, opens(path, second))

	key, err := parseKeyFile(strings.NewReader(second + "\r\n"))
	require.NoError(t, err, "what is printed is a key file")
	assert.Equal(t, second, string(key))
}

func TestWhereAKeyFileIsRefused(t *testing.T) {
	for _, c := range []struct {
		record stick.StorageInfo
		says   string
	}{
		{stick.StorageInfo{State: stick.StorageVolatile}, "there is no DATA in use"},
		{stick.StorageInfo{State: stick.StorageData, Seal: stick.SealNone}, "DATA is not encrypted"},
		{stick.StorageInfo{State: stick.StorageData, Seal: stick.SealKeyFile}, "keep a copy of that file"},
	} {
		err := (&machine{}).preparer(t).NewKeyFile(t.Context(), c.record, func(string) error { panic("there is none") })
		assert.ErrorContains(t, err, c.says)
	}
}
