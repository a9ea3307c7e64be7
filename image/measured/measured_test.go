package measured

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/attestation"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/image/measured/measuredtest"
)

const line = "(hd0,gpt7)/vmlinuz console=tty0 gpt firstlight.version=1.0 firstlight.esp=6f1f5d0e-94a1-4c54-9c6a-3b1f52a0c102 " +
	"firstlight.slot=a firstlight.verity=0123"

// boots are the b.Events of a machine that boots the image of newImage.
func boots() []measuredtest.Event {
	return []measuredtest.Event{
		measuredtest.Measure(0, measuredtest.POST, "firmware", "firmware"),
		measuredtest.SecureBoot(1),
		measuredtest.Start(`\EFI\BOOT\BOOTX64.EFI`, sha256.Sum256([]byte("shim"))),
		measuredtest.Start(`\EFI\BOOT\grubx64.efi`, sha256.Sum256([]byte("grub"))),
		measuredtest.File("(hd0,gpt2)/EFI/debian/grub.cfg", "grub.cfg"),
		measuredtest.File("(hd0,gpt7)/slot.cfg", "slot.cfg"),
		measuredtest.File("(hd0,gpt7)/vmlinuz", "vmlinuz"),
		measuredtest.Command("set trial="),
		measuredtest.Command("[  = a -o  = b ]"),
		measuredtest.Command("linux " + line),
		measuredtest.CommandLine(line),
		measuredtest.File("(hd0,gpt7)/initramfs.img", "initramfs"),
		measuredtest.Start("", sha256.Sum256([]byte("vmlinuz"))),
	}
}

const config = `# a comment
set trial=
if [ "$try" = a -o "$try" = b ]
then
  set trial="firstlight.trial=1 a=b"
fi
if linux $boot/vmlinuz console=tty0 gpt firstlight.version=$version firstlight.esp=$esp firstlight.slot=$slot $trial firstlight.verity=$verity
then
  boot
fi
`

func newImage() Image {
	digest := func(content string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(content))) }
	words := parseLine(config, stick.SlotConfig{Version: "1.0", RootHash: "0123"})
	return Image{
		Version: "1.0", Root: "0123", line: words, commands: parseCommands(config),
		programs: map[string]string{
			digest("shim"): "EFI/BOOT/BOOTX64.EFI", digest("grub"): "EFI/BOOT/grubx64.efi", digest("vmlinuz"): "vmlinuz",
		},
		files: map[string]string{
			digest("grub.cfg"): "EFI/debian/grub.cfg", digest("slot.cfg"): "slot.cfg", digest("vmlinuz"): "vmlinuz",
			digest("initramfs"): "initramfs.img",
		},
	}
}

func attest(t testing.TB, events []measuredtest.Event) attestation.Attestation {
	t.Helper()
	a, _ := measuredtest.Attest(t, events)
	return a
}

func TestWhatWasMeasuredIsRead(t *testing.T) {
	a := attest(t, boots())
	b, err := Read(a)
	require.NoError(t, err)
	assert.True(t, b.SecureBoot)
	assert.Len(t, b.Programs, 3)
	assert.Equal(t, `\EFI\BOOT\BOOTX64.EFI`, b.Programs[0].Name)
	assert.Len(t, b.Files, 4)
	assert.Equal(t, []string{line}, b.CommandLines)
	assert.Equal(t, "0123", RootHash(b.CommandLines[0]))
	assert.Equal(t, 13, b.Events)
	assert.Empty(t, newImage().Compare(b))
}

// TestALogThatIsNotWhatTheTPMMeasuredIsRefused: with an event changed, left out, added, or truncated. A text that was not measured counts for nothing.
func TestALogThatIsNotWhatTheTPMMeasuredIsRefused(t *testing.T) {
	events := boots()
	a := attest(t, events)
	for i, e := range events {
		left := append(append([]measuredtest.Event{}, events[:i]...), events[i+1:]...)
		_, err := Read(withLog(a, measuredtest.Log(left)))
		assert.ErrorIs(t, err, ErrReplay, "without event %d", i)
		assert.ErrorContains(t, err, fmt.Sprintf("PCR %d", e.PCR))

		changed := append([]measuredtest.Event{}, events...)
		changed[i].Digest[0] ^= 1
		_, err = Read(withLog(a, measuredtest.Log(changed)))
		assert.ErrorIs(t, err, ErrReplay, "with event %d changed", i)
	}
	_, err := Read(withLog(a, measuredtest.Log(append(append([]measuredtest.Event{}, events...), measuredtest.File("more", "more")))))
	assert.ErrorIs(t, err, ErrReplay)

	renamed := append([]measuredtest.Event{}, events...)
	renamed[10].Data = commandLinePrefix + "(hd0,gpt7)/vmlinuz of another text\x00" // the digest is left
	b, err := Read(withLog(a, measuredtest.Log(renamed)))
	require.NoError(t, err)
	assert.Empty(t, b.CommandLines)
	assert.Contains(t, newImage().Compare(b), "command line: it was not measured")

	whole := measuredtest.Log(events)
	ends := map[int]bool{}
	for i := range events {
		ends[len(measuredtest.Log(events[:i]))] = true
	}
	for at := 1; at < len(whole); at++ {
		_, err := Read(withLog(a, whole[:at]))
		if ends[at] {
			assert.ErrorIs(t, err, ErrReplay, "%d bytes", at)
		} else {
			assert.ErrorIs(t, err, ErrLog, "%d bytes", at)
		}
	}
	_, err = Read(withLog(a, nil))
	assert.ErrorIs(t, err, ErrNoLog)
}

func withLog(a attestation.Attestation, log []byte) attestation.Attestation {
	a.Log = log
	return a
}

// TestAHostileLogIsBounded: lengths that it names take no memory, and one that is too long is not read.
func TestAHostileLogIsBounded(t *testing.T) {
	a := attest(t, boots())
	good := measuredtest.Log(boots())
	head := len(measuredtest.Log(nil))
	var hostile [][]byte
	for at := 0; at+4 <= len(good); at++ {
		b := bytes.Clone(good)
		copy(b[at:], "\xff\xff\xff\xff")
		hostile = append(hostile, b)
	}
	manyDigests := append(bytes.Clone(good[:head]), bytes.Repeat([]byte{0}, 8)...)
	manyDigests = append(manyDigests, 0xff, 0xff, 0xff, 0x7f)
	for range 1000 {
		manyDigests = append(append(manyDigests, 0x0b, 0), make([]byte, 32)...)
	}
	hostile = append(hostile, manyDigests)

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, log := range hostile {
		if b, err := Read(withLog(a, log)); err == nil { // what was changed is a type or a name
			assert.Equal(t, 13, b.Events)
		}
	}
	runtime.ReadMemStats(&after)
	perLog := (after.TotalAlloc - before.TotalAlloc) / uint64(len(hostile))
	assert.Less(t, perLog, uint64(1<<20), "bytes for each")

	_, err := Read(withLog(a, append(bytes.Clone(good), make([]byte, maxLog)...)))
	assert.ErrorIs(t, err, ErrLog)
}

// TestSecureBootIsWhatTheFirmwareSaidFirst: what came later is whoever ran's.
func TestSecureBootIsWhatTheFirmwareSaidFirst(t *testing.T) {
	b, err := Read(attest(t, []measuredtest.Event{measuredtest.SecureBoot(0), measuredtest.SecureBoot(1)}))
	require.NoError(t, err)
	assert.False(t, b.SecureBoot)
	b, err = Read(attest(t, []measuredtest.Event{measuredtest.SecureBoot(1), measuredtest.SecureBoot(0)}))
	require.NoError(t, err)
	assert.True(t, b.SecureBoot)
}

func TestWhatDiffersFromAnImageIsNamed(t *testing.T) {
	image := newImage()
	replace := func(at int, e measuredtest.Event) []measuredtest.Event {
		events := boots()
		events[at] = e
		return events
	}
	without := func(at int) []measuredtest.Event { return append(boots()[:at], boots()[at+1:]...) }
	for _, c := range []struct {
		name   string
		events []measuredtest.Event
		differ []string
	}{
		{"the trial of another slot", replace(10, measuredtest.CommandLine("(hd1,gpt8)/vmlinuz console=tty0 gpt firstlight.version=1.0 "+
			"firstlight.esp=00000000-94a1-4c54-9c6a-3b1f52a0c102 firstlight.slot=b firstlight.trial=1 a=b firstlight.verity=0123")),
			nil},
		{"another root", replace(10, measuredtest.CommandLine(line[:len(line)-1]+"4")),
			[]string{"command line: it has firstlight.verity=0124, and the image's firstlight.verity=0123"}},
		{"a word more", replace(10, measuredtest.CommandLine(line+" init=/bin/sh")),
			[]string{"command line: it has init=/bin/sh, which the image's does not have"}},
		{"a word before", replace(10, measuredtest.CommandLine("(hd0,gpt7)/vmlinuz init=/bin/sh"+line[len("(hd0,gpt7)/vmlinuz"):])),
			[]string{"command line: it does not have the image's console=tty0",
				"command line: it does not have the image's gpt",
				"command line: it does not have the image's firstlight.version=1.0"}},
		{"another kernel", replace(6, measuredtest.File("(hd0,gpt7)/vmlinuz", "other")), []string{"file vmlinuz: d9298a10"}},
		{"another initramfs", replace(11, measuredtest.File("(hd0,gpt7)/initramfs.img", "other")),
			[]string{"file initramfs.img: d9298a10"}},
		{"an initramfs of another name", replace(11, measuredtest.File("(hd0,gpt7)/x", "other")),
			[]string{`file "(hd0,gpt7)/x": d9298a10`, "file initramfs.img: it was not measured"}},
		{"another shim", replace(2, measuredtest.Start(`\efi\boot\bootx64.efi`, sha256.Sum256([]byte("other")))), []string{"program EFI/BOOT/BOOTX64.EFI: d9298a10"}},
		{"a program more", append(boots(), measuredtest.Start(`\shell.efi`, sha256.Sum256([]byte("other")))), []string{`program "\\shell.efi": d9298a10`}},
		{"no command line", without(10), []string{"command line: it was not measured"}},
		{"two kernels", append(boots(), measuredtest.CommandLine("/vmlinuz")), []string{"command line: it does not have the image's console=tty0"}},
		{"a command more", append(boots(), measuredtest.Command("insmod evil")), []string{"command of GRUB: it ran insmod evil,"}},
		{"a command line that is called a command", append(boots(), measuredtest.Command("(hd0,gpt7)/vmlinuz init=/bin/sh")),
			[]string{"command of GRUB: it ran (hd0,gpt7)/vmlinuz init=/bin/sh,"}},
		{"a command under a text that is not its own",
			append(boots(), measuredtest.Measure(pcrCommands, measuredtest.IPL, "insmod evil", commandPrefix+"boot\x00")),
			[]string{"command of GRUB: it ran a command of which the log does not have the text"}},
		{"a file that is called something else",
			append(boots(), measuredtest.Measure(pcrFiles, measuredtest.Action, "linux /evil", "linux /evil")),
			[]string{`file "linux /evil": `}},
		{"a program that is called something else",
			append(boots(), measuredtest.Measure(pcrPrograms, measuredtest.Action, "MZ\x00", "Calling EFI Application from Boot Option")),
			[]string{`program "`}},
		{"a kernel that the firmware did not start", without(12), nil},
		{"no kernel that GRUB read", without(6), []string{"file vmlinuz: it was not measured"}},
	} {
		b, err := Read(attest(t, c.events))
		require.NoError(t, err, c.name)
		differ := image.Compare(b)
		if c.differ == nil {
			assert.Empty(t, differ, c.name)
		}
		for i, want := range c.differ {
			if assert.Greater(t, len(differ), i, c.name) {
				assert.Contains(t, differ[i], want, c.name)
			}
		}
	}
}

// recorded is the answer of an appliance in QEMU, with OVMF and swtpm, that booted an image by UEFI: Debian's shim, GRUB
// 2.12 and Linux 6.12.
func recorded(t testing.TB) (a attestation.Attestation) {
	t.Helper()
	text, err := os.ReadFile("testdata/uefi.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &a))
	return a
}

// TestARecordedBootIsReplayed: real firmware, GRUB and kernel measure what this package takes them to measure.
func TestARecordedBootIsReplayed(t *testing.T) {
	a := recorded(t)
	nonce := []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	require.NoError(t, a.Check(nonce, "bb0fc5f30fd04d33df6c311dfe52b1e1fa52a15d197867de090cc1e641243009"))
	b, err := Read(a)
	require.NoError(t, err)
	assert.Equal(t, 63, b.Events)
	assert.False(t, b.SecureBoot)
	assert.Len(t, b.Programs, 2, "GRUB starts the kernel itself")
	assert.Len(t, b.Commands, 23)
	require.Len(t, b.CommandLines, 1)
	assert.Equal(t, "0b56465213e815d1033809fe9240088095dc7e67f2fc4f8b349723372beb2486", RootHash(b.CommandLines[0]))

	grub, err := os.ReadFile("testdata/grub.cfg")
	require.NoError(t, err)
	config := stick.SlotConfig{
		Version: "0.1.0-dev+2069ac0c3c89-dirty", RootHash: RootHash(b.CommandLines[0]),
		Kernel:    "14159c607ad9762133db41e479dafecde1d6a5fe715a8d65d292a3262e4b6bed",
		Initramfs: "ef0a86eb6cb9a24f4c109c37701c3b02e93e3ad75f6f7f1ef5d69d47692cd61c",
	}
	slot := config.Encode()
	image := Image{
		line: parseLine(string(grub), config), commands: parseCommands(string(grub) + string(slot)),
		programs: map[string]string{
			"f4166948f7adafa71e45c7ca5d30d97f78f382ecf1e3c8e4767b1ec1770cd52f": "EFI/BOOT/BOOTX64.EFI",
			"4723da70afd558617a87dadf9087ca335822c60e5f2aec0135fcc0122d3b96ff": "EFI/BOOT/grubx64.efi",
		},
		files: map[string]string{
			fmt.Sprintf("%x", sha256.Sum256(grub)): "EFI/debian/grub.cfg",
			fmt.Sprintf("%x", sha256.Sum256(slot)): "slot.cfg",
			config.Kernel:                          "vmlinuz",
			config.Initramfs:                       "initramfs.img",
		},
	}
	assert.Empty(t, image.Compare(b))

	delete(image.files, config.Initramfs)
	image.files["00"] = "initramfs.img"
	assert.Equal(t, []string{"file initramfs.img: " + config.Initramfs + " was measured, and the image has 00"}, image.Compare(b),
		"once, though GRUB and kernel have measured it")
}

// FuzzRead: whatever a log is, it is replayed or refused.
func FuzzRead(f *testing.F) {
	a := attest(f, boots())
	f.Add(a.Log)
	f.Add(recorded(f).Log)
	f.Fuzz(func(t *testing.T, log []byte) {
		b, err := Read(withLog(a, log))
		if err == nil {
			assert.Equal(t, 13, b.Events)
		}
	})
}

// TestAnOwnersGRUBMeasuresNothing: then the command line is what the kernel has measured the digest of, whoever says the
// text.
func TestAnOwnersGRUBMeasuresNothing(t *testing.T) {
	image := newImage()
	events := []measuredtest.Event{
		measuredtest.Start(`\EFI\BOOT\BOOTX64.EFI`, sha256.Sum256([]byte("shim"))), measuredtest.Start("", sha256.Sum256([]byte("vmlinuz"))),
		measuredtest.Measure(pcrFiles, measuredtest.Tag, loadOptions(line), "LOADED_IMAGE::LoadOptions"),
		measuredtest.Measure(pcrFiles, measuredtest.Tag, "initramfs", "Linux initrd"),
	}
	a := attest(t, events)
	a.CommandLine = "BOOT_IMAGE=" + line
	b, err := Read(a)
	require.NoError(t, err)
	assert.Equal(t, []string{line}, b.CommandLines)
	assert.Empty(t, image.Compare(b))

	a.CommandLine += " init=/bin/sh"
	b, err = Read(a)
	require.NoError(t, err)
	assert.Empty(t, b.CommandLines)
	differ := image.Compare(b)
	require.Len(t, differ, 2)
	assert.Contains(t, differ[0], `file "LOADED_IMAGE::LoadOptions"`)
	assert.Equal(t, "command line: it was not measured", differ[1])
}
