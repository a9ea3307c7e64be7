package bootchain_test

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

	"firstlight.dev/firstlight/assets/secureboot"
	"firstlight.dev/firstlight/daemon/appliance/bootchain"
)

func newKey(t *testing.T, name string) secureboot.Key {
	t.Helper()
	k, err := secureboot.NewKey(name, time.Now())
	require.NoError(t, err)
	return k
}

func TestWhatChecksTheBootIsSaid(t *testing.T) {
	ours, theirs := newKey(t, "ours").Certificate, newKey(t, "Someone CA").Certificate
	signed := bootchain.Stick{Owner: []*x509.Certificate{ours}}
	for _, c := range []struct {
		name     string
		firmware bootchain.Firmware
		stick    bootchain.Stick
		says     string
	}{
		{"BIOS", bootchain.Firmware{}, signed, "Started by BIOS: nothing checks GRUB"},
		{"off", bootchain.Firmware{UEFI: true}, signed, "Secure Boot is off: nothing checks GRUB"},
		{"setup mode", bootchain.Firmware{UEFI: true, Setup: true}, signed, "Secure Boot is off: nothing checks GRUB"},
		{"switched off with our keys", bootchain.Firmware{UEFI: true, Trusted: signed.Owner}, signed, "Switch Secure Boot on"},
		{"Debian's chain", bootchain.Firmware{UEFI: true, Enforced: true, Trusted: []*x509.Certificate{theirs}},
			bootchain.Stick{}, "checks shim, GRUB and kernel; nothing checks GRUB's configuration, command line and initramfs"},
		{"others as well", bootchain.Firmware{UEFI: true, Enforced: true, Trusted: []*x509.Certificate{ours, theirs}},
			signed, "also starts what others sign: Someone CA."},
		{"digests as well", bootchain.Firmware{UEFI: true, Enforced: true, Trusted: signed.Owner, Digests: 2},
			signed, "also starts what others sign: programs by 2 digests in db."},
		{"no efivarfs", bootchain.Firmware{UEFI: true, Hidden: true}, signed, "whether Secure Boot is on, and with whose keys, is not known"},
		{"whole", bootchain.Firmware{UEFI: true, Enforced: true, Trusted: signed.Owner}, signed,
			"checks all that starts by the owner's keys, from the firmware to the root."},
	} {
		assert.Contains(t, bootchain.Describe(c.firmware, c.stick), c.says, c.name)
	}
}

func TestKeysAreEnrolledWhereThatLeadsSomewhere(t *testing.T) {
	ours, theirs := newKey(t, "ours").Certificate, newKey(t, "theirs").Certificate
	setup := bootchain.Firmware{UEFI: true, Setup: true}
	signed := bootchain.Stick{Updates: map[string][]byte{"PK": {1}}, Owner: []*x509.Certificate{ours}}
	changed := signed
	changed.Refused = errors.New("vmlinuz: it was changed")
	for _, c := range []struct {
		name     string
		firmware bootchain.Firmware
		stick    bootchain.Stick
		locked   bool
		tries    int
		enroll   bool
		why      string
	}{
		{name: "setup mode", firmware: setup, stick: signed, enroll: true},
		{name: "nobody signed", firmware: setup, why: "nobody has signed the image"},
		{name: "BIOS", stick: signed, why: "started by BIOS"},
		{name: "done", firmware: bootchain.Firmware{UEFI: true, Enforced: true, Trusted: signed.Owner}, stick: signed},
		{name: "cut before the platform key", firmware: bootchain.Firmware{UEFI: true, Setup: true, Trusted: signed.Owner},
			stick: signed, enroll: true},
		{name: "keys of others", firmware: bootchain.Firmware{UEFI: true, Trusted: []*x509.Certificate{theirs}}, stick: signed,
			why: "Delete its platform key"},
		{name: "it would not start", firmware: setup, stick: changed, why: "would not start the stick any more: vmlinuz"},
		{name: "the second try", firmware: setup, stick: signed, tries: bootchain.MaxTries - 1, enroll: true},
		{name: "it forgets them", firmware: setup, stick: signed, tries: bootchain.MaxTries, why: "had none after each restart"},
		{name: "its variables are hidden", firmware: bootchain.Firmware{UEFI: true, Hidden: true}, stick: signed,
			why: "variables cannot be read"},
		{name: "it would lock DATA", firmware: setup, stick: signed, locked: true, why: "Make a key file"},
	} {
		enroll, why := bootchain.Plan(c.firmware, c.stick, c.locked, c.tries)
		assert.Equal(t, c.enroll, enroll, c.name)
		if c.why == "" {
			assert.Empty(t, why, c.name)
		}
		assert.Contains(t, why, c.why, c.name)
	}
}

// put writes a variable as efivarfs has it.
func put(t *testing.T, dir string, v secureboot.Variable, content []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, v.FileName()), append([]byte{6, 0, 0, 0}, content...), 0o600))
}

func TestFirmwareIsRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "efi", "efivars")
	f, err := bootchain.ReadFirmware(dir)
	require.NoError(t, err)
	assert.Equal(t, bootchain.Firmware{}, f, "a BIOS")

	require.NoError(t, os.MkdirAll(dir, 0o755))
	f, err = bootchain.ReadFirmware(dir)
	require.NoError(t, err)
	assert.Equal(t, bootchain.Firmware{UEFI: true, Hidden: true}, f, "efivarfs is not mounted")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "BootOrder-8be4df61-93ca-11d2-aa0d-00e098032b8c"), nil, 0o600))
	f, err = bootchain.ReadFirmware(dir)
	require.NoError(t, err)
	assert.Equal(t, bootchain.Firmware{UEFI: true}, f, "UEFI before Secure Boot")

	ours := newKey(t, "ours")
	put(t, dir, secureboot.Enforced, []byte{1})
	put(t, dir, secureboot.SetupMode, []byte{0})
	put(t, dir, secureboot.DB, secureboot.List(ours.Certificate))
	f, err = bootchain.ReadFirmware(dir)
	require.NoError(t, err)
	assert.Equal(t, bootchain.Firmware{UEFI: true, Enforced: true, Trusted: []*x509.Certificate{ours.Certificate}}, f)

	digests := make([]byte, 28+2*48) // EFI_SIGNATURE_LIST of EFI_CERT_SHA256_GUID
	copy(digests, []byte{0x26, 0x16, 0xc4, 0xc1, 0x4c, 0x50, 0x92, 0x40, 0xac, 0xa9, 0x41, 0xf9, 0x36, 0x93, 0x43, 0x28})
	digests[16], digests[24] = byte(len(digests)), 48
	put(t, dir, secureboot.DB, append(secureboot.List(ours.Certificate), digests...))
	f, err = bootchain.ReadFirmware(dir)
	require.NoError(t, err)
	assert.Equal(t, 2, f.Digests)
	assert.Len(t, f.Trusted, 1)

	put(t, dir, secureboot.DB, []byte("x"))
	_, err = bootchain.ReadFirmware(dir)
	require.ErrorContains(t, err, "read the firmware's keys")
}

// TestThePlatformKeyIsWrittenLast: cut before it the firmware is in setup mode still, and what was written is not written
// again.
func TestThePlatformKeyIsWrittenLast(t *testing.T) {
	key, dir := newKey(t, "ours"), t.TempDir()
	s := bootchain.Stick{Updates: map[string][]byte{}}
	for _, v := range []secureboot.Variable{secureboot.PK, secureboot.KEK, secureboot.DB} {
		update, err := key.Update(v, secureboot.List(key.Certificate), time.Now())
		require.NoError(t, err)
		s.Updates[v.Name] = update
	}
	put(t, dir, secureboot.SetupMode, []byte{1})
	put(t, dir, secureboot.DB, secureboot.List(key.Certificate)) // of a try before
	// Where PK goes is a directory: the write fails there, when the others are done.
	pk := filepath.Join(dir, secureboot.PK.FileName())
	require.NoError(t, os.Mkdir(pk, 0o755))
	require.ErrorContains(t, bootchain.Enroll(dir, s), "variable PK")
	db, err := os.ReadFile(filepath.Join(dir, secureboot.DB.FileName()))
	require.NoError(t, err)
	assert.Equal(t, secureboot.List(key.Certificate), db[4:], "written once more")
	kek, err := os.ReadFile(filepath.Join(dir, secureboot.KEK.FileName()))
	require.NoError(t, err)
	assert.Equal(t, append([]byte{0x27, 0, 0, 0}, s.Updates["KEK"]...), kek)

	require.NoError(t, os.Remove(pk))
	put(t, dir, secureboot.KEK, secureboot.List(key.Certificate)) // as firmware keeps it
	require.ErrorContains(t, bootchain.Enroll(dir, s), "is in setup mode still")
	written, err := os.ReadFile(pk)
	require.NoError(t, err)
	assert.True(t, bytes.HasSuffix(written, secureboot.List(key.Certificate)))
	put(t, dir, secureboot.SetupMode, []byte{0})
	put(t, dir, secureboot.PK, secureboot.List(key.Certificate))
	require.NoError(t, bootchain.Enroll(dir, s))
}
