package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2/transport"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/attestation"
	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/secureboot"
	"firstlight.dev/firstlight/assets/secureboot/secureboottest"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/tpm"
	"firstlight.dev/firstlight/daemon/appliance/workstation"
	"firstlight.dev/firstlight/daemon/engine/remote/sshtest"
	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/measured"
	"firstlight.dev/firstlight/image/measured/measuredtest"
)

// newBootImage makes an image with all that firmware and GRUB read of one, and what they measure when it boots.
func newBootImage(t *testing.T, initramfs string) (path string, events []measuredtest.Event) {
	t.Helper()
	grub, err := os.ReadFile("../../overlays/esp" + stick.GrubConfigPath)
	require.NoError(t, err)
	slot := stick.SlotConfig{Version: "1.2.3", RootHash: strings.Repeat("ab", 32), Kernel: "k", Initramfs: "i"}.Encode()
	shim, loader, kernel := secureboottest.Program([]byte("shim")), secureboottest.Program([]byte("grub")),
		secureboottest.Program([]byte("kernel"))
	start := func(name string, program []byte) measuredtest.Event {
		digest, err := secureboot.Digest(name, program)
		require.NoError(t, err)
		return measuredtest.Start(name, [32]byte(digest))
	}

	guid := func(n int) string { return fmt.Sprintf("6f1f5d0e-94a1-4c54-9c6a-3b1f52a0fa%02d", n) }
	path = filepath.Join(t.TempDir(), "firstlight.img")
	require.NoError(t, disk.Write(t.Context(), path, disk.Layout{GUID: guid(0), Partitions: []disk.Partition{
		{Name: stick.PartitionESP, Type: gpt.TypeESP, GUID: guid(1), Size: 34 << 20, Content: disk.FAT{Label: "ESP", Files: []disk.File{
			disk.TextFile(stick.LoaderPath, shim), disk.TextFile("/EFI/BOOT/grubx64.efi", loader),
			disk.TextFile(stick.GrubConfigPath, grub),
		}}},
		{Name: stick.SlotA.Boot(), Type: gpt.TypeLinuxBoot, GUID: guid(2), Size: 34 << 20, Content: disk.FAT{
			Label: "BOOT-A", Files: []disk.File{
				disk.TextFile(stick.KernelName, kernel), disk.TextFile(stick.InitramfsName, []byte(initramfs)),
				disk.TextFile(stick.SlotConfigName, slot),
			},
		}},
	}}))

	line := "(hd0,gpt7)/vmlinuz console=tty0 console=ttyS0,115200 loglevel=4 printk.devkmsg=on gpt panic=30 systemd.crash_reboot=1 systemd.ssh_auto=no " +
		"systemd.gpt_auto=no firstlight.version=1.2.3 firstlight.esp=" + guid(1) + " firstlight.slot=a firstlight.verity=" +
		strings.Repeat("ab", 32)
	return path, []measuredtest.Event{
		measuredtest.SecureBoot(1), start(`\EFI\BOOT\BOOTX64.EFI`, shim), start(`\EFI\BOOT\grubx64.efi`, loader),
		measuredtest.File("(hd0,gpt2)/EFI/debian/grub.cfg", string(grub)), measuredtest.Command("set timeout=0"),
		measuredtest.File("(hd0,gpt7)/slot.cfg", string(slot)), measuredtest.Command("set version=1.2.3"),
		measuredtest.File("(hd0,gpt7)/vmlinuz", string(kernel)), measuredtest.CommandLine(line),
		measuredtest.File("(hd0,gpt7)/initramfs.img", initramfs), start("", kernel),
	}
}

// TestAnAttestationIsCheckedWithAnImage by the command, from a file and from standard input.
func TestAnAttestationIsCheckedWithAnImage(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	image, events := newBootImage(t, "initramfs")
	other, _ := newBootImage(t, "another initramfs")
	a, nonce := measuredtest.Attest(t, events)
	write := func(a attestation.Attestation) string {
		text, err := json.Marshal(a)
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), "attestation.json")
		require.NoError(t, os.WriteFile(path, text, 0o600))
		return path
	}
	path, asked := write(a), hex.EncodeToString(nonce)
	check := func(args ...string) (string, error) {
		out, _, err := command(t, "", append([]string{"attest"}, args...)...)
		return out, err
	}

	out, err := check("--check", path, "--nonce", asked, image)
	require.NoError(t, err, out)
	assert.Contains(t, out, a.Fingerprint()+", believed: nothing vouches for it")
	assert.Contains(t, out, "event log     11 events, as the TPM has measured\nSecure Boot   on\n")
	assert.Contains(t, out, "boots         "+image+": version 1.2.3, root abab")
	assert.NotContains(t, out, "DIFFERS")
	out, err = check("--check", path, "--nonce", asked, "--key", a.Fingerprint())
	require.NoError(t, err)
	assert.Contains(t, out, a.Fingerprint()+", the one that is known")
	assert.NotContains(t, out, "boots ")

	text, err := os.ReadFile(path)
	require.NoError(t, err)
	out, _, err = command(t, string(text), "attest", "--check", "-", "--nonce", asked, "-o", "json", image)
	require.NoError(t, err)
	var report struct {
		Key     string
		Boot    measured.Boot
		Differs []string
	}
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	assert.Equal(t, a.Fingerprint(), report.Key)
	assert.True(t, report.Boot.SecureBoot)
	assert.Empty(t, report.Differs)

	out, err = check("--check", path, "--nonce", asked, other)
	assert.ErrorContains(t, err, "it has not booted "+other)
	assert.Equal(t, 1, strings.Count(out, "DIFFERS"))
	assert.Contains(t, out, "DIFFERS       file initramfs.img: ")

	_, err = check("--check", path, "--nonce", strings.Repeat("00", 32), image)
	assert.ErrorIs(t, err, attestation.ErrNonce)
	_, err = check("--check", path, "--nonce", asked, "--key", strings.Repeat("00", 32))
	assert.ErrorIs(t, err, attestation.ErrKey)
	changed := a
	changed.Log = measuredtest.Log(events[1:])
	_, err = check("--check", write(changed), "--nonce", asked, image)
	assert.ErrorIs(t, err, measured.ErrReplay)
	changed.Log = a.Log[:len(a.Log)-1]
	_, err = check("--check", write(changed), "--nonce", asked, image)
	assert.ErrorIs(t, err, measured.ErrLog)
	changed.Log = nil
	_, err = check("--check", write(changed), "--nonce", asked, image)
	assert.ErrorIs(t, err, measured.ErrNoLog)

	for _, line := range []string{"attest --check x", "attest --check x --nonce 00", "attest --check x --nonce zz", "attest a b"} {
		assert.Equal(t, 2, run(t.Context(), strings.Fields(line)), line)
	}
}

// answering is an appliance whose firstlightd attests by a TPM of the test's.
type answering struct {
	*sshtest.Node
	t      *testing.T
	events []measuredtest.Event
}

func newAnswering(t *testing.T, events []measuredtest.Event) (a *answering, host string) {
	_, key := sshtest.UseNewHome(t)
	a = &answering{sshtest.New(t), t, events}
	a.AuthorizeKey(key)
	a.PutProgram("firstlightd", `echo "$3" >$DIR/asked.new; mv $DIR/asked.new $DIR/asked
until [ -f $DIR/answer ]; do sleep 0.05; done
mv $DIR/answer $DIR/last; cat $DIR/last`)
	host = fmt.Sprintf("%s:%d", a.Addr, a.Port)
	store, err := workstation.UserStore()
	require.NoError(t, err)
	appliance, err := store.Prepare(host, "")
	require.NoError(t, err)
	c, err := store.Connect(t.Context(), appliance, func(string) {})
	require.NoError(t, err)
	c.Close()
	require.NoError(t, store.Save(appliance))
	return a, host
}

// answer answers the next question, by machine or, if that is nil, with what was answered last.
func (a *answering) answer(machine transport.TPM) {
	require.NoError(a.t, os.RemoveAll(filepath.Join(a.Dir, "asked")))
	go func() {
		for a.Get("asked") == "" {
			time.Sleep(20 * time.Millisecond)
		}
		text := a.Get("last")
		if machine != nil {
			nonce, err := hex.DecodeString(a.Get("asked"))
			assert.NoError(a.t, err)
			answer, err := tpm.Attest(machine, nonce)
			assert.NoError(a.t, err)
			answer.Log = measuredtest.Log(a.events)
			out, err := json.Marshal(answer)
			assert.NoError(a.t, err)
			text = string(out)
		}
		path := filepath.Join(a.Dir, "answer")
		assert.NoError(a.t, os.WriteFile(path+".new", []byte(text), 0o600))
		assert.NoError(a.t, os.Rename(path+".new", path))
	}()
}

// TestAnAppliancesKeyIsBelievedOnce: the first answer's key is stored, and an answer by another TPM, or to another
// question, is refused.
func TestAnAppliancesKeyIsBelievedOnce(t *testing.T) {
	image, events := newBootImage(t, "initramfs")
	a, host := newAnswering(t, events)
	own, other := measuredtest.Boot(t, events), measuredtest.Boot(t, events)

	a.answer(own)
	out, _, err := command(t, "", "attest", image)
	require.NoError(t, err)
	assert.Contains(t, out, ", believed: nothing vouches for it")
	assert.Contains(t, out, "boots         "+image)
	a.answer(own)
	out, _, err = command(t, "", "attest", "--host", host, image)
	require.NoError(t, err)
	assert.Contains(t, out, ", the one that is known")

	a.answer(nil)
	_, _, err = command(t, "", "attest", image)
	assert.ErrorIs(t, err, attestation.ErrNonce)
	a.answer(other)
	_, _, err = command(t, "", "attest", image)
	assert.ErrorIs(t, err, attestation.ErrKey)
	assert.ErrorContains(t, err, "run firstlight logout "+host+" and log in again")
}
