package stick_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/stick"
)

func TestEnvironment(t *testing.T) {
	for _, e := range []stick.Environment{{Slot: stick.SlotA}, {Slot: stick.SlotB}, {Slot: stick.SlotA, Try: stick.SlotB}} {
		block := e.Encode()
		require.Len(t, block, stick.EnvironmentSize)
		assert.Equal(t, strings.Repeat("#", stick.EnvironmentSize-stick.EnvironmentSector), string(block[stick.EnvironmentSector:]),
			"all that changes is in the first sector")
		got, err := stick.ParseEnvironment(block)
		require.NoError(t, err)
		assert.Equal(t, e, got)
	}
}

// TestEnvironmentOfGrub: save_env leaves the variable empty that it was told to take out.
func TestEnvironmentOfGrub(t *testing.T) {
	pad := func(text string) []byte {
		return append([]byte(text), bytes.Repeat([]byte("#"), stick.EnvironmentSize-len(text))...)
	}
	for text, want := range map[string]stick.Environment{
		"# GRUB Environment Block\n":                                              {Slot: stick.SlotA},
		"# GRUB Environment Block\nslot=b\ntry=\n":                                {Slot: stick.SlotB},
		"# GRUB Environment Block\n# WARNING: no edits\nother=1\ntry=b\nslot=a\n": {Slot: stick.SlotA, Try: stick.SlotB},
	} {
		got, err := stick.ParseEnvironment(pad(text))
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for _, bad := range [][]byte{nil, pad("slot=a\n"), pad("# GRUB Environment Block\nslot=c\n"), pad("# GRUB Environment Block\nslot=\n"),
		[]byte("# GRUB Environment Block\nslot=a\n")} {
		_, err := stick.ParseEnvironment(bad)
		assert.Error(t, err, "%.40s", bad)
	}
}

// TestATornEnvironmentIsTheOneBeforeOrTheOneAfter wherever a write of it ends, by GRUB's own reading where that is
// installed and by ours: no slot is tried or started that neither of them names.
func TestATornEnvironmentIsTheOneBeforeOrTheOneAfter(t *testing.T) {
	editor, missing := exec.LookPath("grub-editenv")
	if missing != nil {
		t.Log("without grub-editenv: what GRUB reads is not compared")
	}
	path, compared := filepath.Join(t.TempDir(), "grubenv"), map[string]bool{}
	states := []stick.Environment{{Slot: "a"}, {Slot: "b"}, {Slot: "a", Try: "b"}, {Slot: "b", Try: "a"}}
	for _, before := range states {
		for _, after := range states {
			old, block := before.Encode(), after.Encode()
			for n := range 50 { // all that they say is in it
				copy(old, block[:n])
				got, err := stick.ParseEnvironment(old)
				require.NoError(t, err, "%.50s", old)
				mixed := stick.Environment{Slot: after.Slot, Try: before.Try} // the slot is named first
				assert.Contains(t, []stick.Environment{before, after, mixed, {Slot: after.Slot}}, got, "%.50s", old)
				if missing != nil || compared[string(old)] {
					continue
				}
				compared[string(old)] = true
				require.NoError(t, os.WriteFile(path, old, 0o600))
				list, err := exec.Command(editor, path, "list").Output()
				require.NoError(t, err, "%.50s", old)
				want := "slot=" + string(got.Slot) + "\n"
				if got.Try != "" {
					want += "try=" + string(got.Try) + "\n"
				}
				assert.Equal(t, want, string(list), "%.50s", old)
			}
		}
	}
}

func TestSlotConfig(t *testing.T) {
	c := stick.SlotConfig{Version: "1.2.3-dev+x", RootHash: "aa", Kernel: "bb", Initramfs: "cc"}
	got, err := stick.ParseSlotConfig(c.Encode())
	require.NoError(t, err)
	assert.Equal(t, c, got)
	for _, name := range []string{"version", "verity", "kernel", "initramfs"} {
		_, err := stick.ParseSlotConfig(bytes.Replace(c.Encode(), []byte("set "+name+"="), []byte("# "), 1))
		assert.ErrorContains(t, err, "does not say what "+name+" is")
	}
}

func TestSlots(t *testing.T) {
	assert.Equal(t, stick.SlotB, stick.SlotA.Other())
	assert.Equal(t, stick.SlotA, stick.SlotB.Other())
	assert.Equal(t, []string{"BOOT-A", "ROOT-A", "BOOT-B", "ROOT-B"},
		[]string{stick.SlotA.Boot(), stick.SlotA.Root(), stick.SlotB.Boot(), stick.SlotB.Root()})
}
