package stickupdate

import (
	"bytes"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/secureboot"
	"firstlight.dev/firstlight/assets/stick"
)

// TestWhatTheMachineWouldNotStartIsRefused, also with --unsigned, which is about updates.keys: it would be tried in vain.
func TestWhatTheMachineWouldNotStartIsRefused(t *testing.T) {
	owner, err := secureboot.NewKey("The owner's db", time.Now())
	require.NoError(t, err)
	path, next := copyFile(t, makeImage(t, "1.0.0", 70)), makeImage(t, "1.1.0", 60)
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	u := newUpdater(t, path, "1.0.0", stick.SlotA, false, t.TempDir(), "1")

	u.Owners = func() ([]*x509.Certificate, error) { return []*x509.Certificate{owner.Certificate}, nil }
	_, err = u.Update(t.Context(), next, Options{Unsigned: true}, func(string, int64, int64) {})
	require.ErrorContains(t, err, next+" is refused: this machine starts only what The owner's db has signed: slot.cfg")
	require.ErrorContains(t, err, "sign it with firstlight sign --secure-boot; nothing is written")

	u.Owners = func() ([]*x509.Certificate, error) { return nil, errors.New("db is torn") }
	_, err = u.Update(t.Context(), next, Options{}, func(string, int64, int64) {})
	require.ErrorContains(t, err, "which images this machine starts is not known: db is torn")
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(before, after), "a refusal writes nothing")

	u.Owners = func() ([]*x509.Certificate, error) { return nil, nil }
	_, err = u.Update(t.Context(), next, Options{}, func(string, int64, int64) {})
	require.NoError(t, err)
}

// TestFirmwareDoesNotHinderUpdatesOfAStickThatNobodySigned, whatever is in its variables.
func TestFirmwareDoesNotHinderUpdatesOfAStickThatNobodySigned(t *testing.T) {
	image, err := os.ReadFile(makeImage(t, "1.0.0", 70))
	require.NoError(t, err)
	table, err := gpt.ReadPrimary(bytes.NewReader(image))
	require.NoError(t, err)
	boot := stick.BootInfo{Slot: stick.SlotA}
	for _, name := range []string{stick.PartitionESP, stick.PartitionBootA} {
		p, ok := table.Find(name)
		require.True(t, ok, name)
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, image[p.Offset():p.Offset()+p.Size()], 0o600))
		boot.Partitions = append(boot.Partitions, stick.Partition{Name: name, Path: path})
	}

	dir := t.TempDir()
	for v, content := range map[secureboot.Variable]string{
		secureboot.Enforced: "\x01", secureboot.SetupMode: "\x00", secureboot.DB: "no list of keys",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, v.FileName()), []byte("\x06\x00\x00\x00"+content), 0o600))
	}
	owners, err := bootOwners(boot, dir)
	require.NoError(t, err)
	assert.Empty(t, owners)
}
