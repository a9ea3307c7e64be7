package lab_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/attestation"
	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/tpm/tpmtest"
	"firstlight.dev/firstlight/image/lab"
)

const lineLocked = "storage: locked: " // and why

// onMachine puts the stick into a machine with the TPM whose state is in dir, and the medium with the key if there is one.
func (n *networked) onMachine(t *testing.T, dir, medium string) {
	t.Helper()
	conf := n.conf
	conf.Firmware = lab.UEFI
	if dir != "" {
		conf.Extra = append(append([]string(nil), conf.Extra...),
			"-chardev", "socket,id=tpm,path="+tpmtest.StartForQEMU(t, dir).Control,
			"-tpmdev", "emulator,id=tpm0,chardev=tpm", "-device", "tpm-crb,tpmdev=tpm0")
	}
	if medium != "" {
		conf.Disks = append(append([]lab.Disk(nil), conf.Disks...), lab.Disk{Image: medium, Bus: lab.USB, Direct: true})
	}
	n.Machine = newMachine(t, conf)
}

// keyMedium is a medium with a key, as its owner makes it.
func keyMedium(t *testing.T, key string) string {
	t.Helper()
	dir := t.TempDir()
	path, file := filepath.Join(dir, "medium"), filepath.Join(dir, "key")
	require.NoError(t, os.WriteFile(file, []byte(key+"\n"), 0o600))
	require.NoError(t, os.WriteFile(path, make([]byte, 16<<20), 0o600))
	for _, command := range [][]string{
		{"mkfs.vfat", "-n", stick.KeyMediumLabel, path},
		{"mcopy", "-i", path, file, "::" + stick.KeyFileName},
	} {
		out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	return path
}

// mintedSecrets are those that the appliance has made, read from it by SSH: file and one line of it. Documents of the site
// are not among them: the one in use lies on SITE as its owner wrote it.
func (n *networked) mintedSecrets(t *testing.T) map[string]string {
	t.Helper()
	out := n.shell("cd /var/lib/firstlight && test -s ca/ca.key && test -s ssh/ssh_host_ed25519_key && " +
		"find ca ssh secret -type f -size -64 ! -path 'secret/site-history/*' | while read f; do echo \"$f $(base64 -w0 $f)\"; done")
	secrets := map[string]string{}
	for line := range strings.Lines(out) {
		file, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		content, err := base64.StdEncoding.DecodeString(text)
		require.NoError(t, err, file)
		for part := range bytes.Lines(content) {
			part = bytes.TrimSpace(part)
			if len(part) >= 24 && !bytes.HasPrefix(part, []byte("-----")) && len(part) > len(secrets[file]) {
				secrets[file] = string(part)
			}
		}
	}
	require.Contains(t, secrets, "ca/ca.key")
	return secrets
}

// attest asks what the machine has booted, with a nonce of its own. It returns the answer in a file, and the nonce.
func (n *networked) attest(t *testing.T) (path, nonce string) {
	t.Helper()
	asked := make([]byte, attestation.MaxNonce)
	rand.Read(asked)
	nonce, path = hex.EncodeToString(asked), filepath.Join(t.TempDir(), "attestation.json")
	require.NoError(t, os.WriteFile(path, []byte(n.shell("firstlightd attest 2>/dev/null --nonce "+nonce)), 0o600))
	return path, nonce
}

// checkAttestation has a workstation check such an answer, and returns what it prints and the key's fingerprint.
func checkAttestation(t *testing.T, path, nonce string, args ...string) (out, key string, err error) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var a attestation.Attestation
	require.NoError(t, json.Unmarshal(text, &a))
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"run", "./cmd/firstlight", "attest", "--check", path,
		"--nonce", nonce}, args...)...)
	cmd.Dir = "../.."
	said, err := cmd.CombinedOutput()
	t.Logf("firstlight attest %s\n%s", strings.Join(args, " "), said)
	return string(said), a.Fingerprint(), err
}

// withAnotherInitramfs copies an image, and changes a byte of what its slot starts.
func withAnotherInitramfs(t *testing.T, image string) string {
	t.Helper()
	dir := t.TempDir()
	changed, file := filepath.Join(dir, "changed.img"), filepath.Join(dir, stick.InitramfsName)
	out, err := exec.Command("cp", "--sparse=always", image, changed).CombinedOutput()
	require.NoError(t, err, "%s", out)
	at := fmt.Sprintf("%s@@%d", changed, partition(t, changed, stick.SlotA.Boot()).Offset())
	out, err = exec.Command("mcopy", "-i", at, "::"+stick.InitramfsName, file).CombinedOutput()
	require.NoError(t, err, "%s", out)
	flipByte(t, file, 1<<20)
	out, err = exec.Command("mcopy", "-o", "-i", at, file, "::"+stick.InitramfsName).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return changed
}

// TestDataIsSealedToItsMachine: the first boot seals DATA to the machine's TPM, the next one opens it alone; in another
// machine nothing opens it and nothing is written, until a medium with the key file is attached; from then on that
// machine opens it alone. Nothing that was minted is on the medium in clear. Each machine attests that it has booted the
// image, by a key of its own.
func TestDataIsSealedToItsMachine(t *testing.T) {
	needKind(t, "qemu-all")
	tpmtest.SkipWithout(t)
	n := newNetworked(t, "qemu-all", 4096)
	own, other := t.TempDir(), t.TempDir()

	n.onMachine(t, own, "")
	first := startsFrom(t, n.Machine)
	assert.Contains(t, see(t, n.Machine, lineDecided), "action=make")
	assert.Contains(t, see(t, n.Machine, lineData), "key: tpm")
	secrets := n.mintedSecrets(t)
	secrets["key file"] = strings.TrimSpace(n.shell("firstlightd key-file"))
	t.Log(n.shell("firstlightd status | grep 'DATA is encrypted'"))
	t.Log(n.shell("cryptsetup status firstlight-data | grep -v keyring"))
	image := n.conf.Disks[0].Image
	answer, nonce := n.attest(t)
	powerOff(t, n.Machine)
	out, key, err := checkAttestation(t, answer, nonce, image)
	require.NoError(t, err)
	assert.Regexp(t, `(?m)^boots +`+regexp.QuoteMeta(image)+`: version `, out)
	goldentest.WriteBlock(t, "../../docs/security.md", "attestation", strings.ReplaceAll(out, image, "firstlight.img"))
	out, _, err = checkAttestation(t, answer, nonce, withAnotherInitramfs(t, image))
	assert.Error(t, err)
	assert.Regexp(t, `(?m)^DIFFERS +file initramfs.img: [0-9a-f]{64} was measured, and the image has [0-9a-f]{64}$`, out)
	assert.Equal(t, 1, strings.Count(out, "DIFFERS"))

	n.onMachine(t, own, "")
	second := startsFrom(t, n.Machine)
	assert.Equal(t, "data", second.idSource)
	assert.Equal(t, first.id, second.id, "machine-id, which is read before anything is opened")
	assert.Contains(t, see(t, n.Machine, lineData), "key: tpm")
	require.NoError(t, n.Kill())

	n.onMachine(t, other, "")
	assert.Equal(t, first.id, startsFrom(t, n.Machine).id)
	assert.Contains(t, see(t, n.Machine, lineLocked), "sealed to another machine's TPM")
	require.NoError(t, n.Kill())

	n.onMachine(t, "", "")
	startsFrom(t, n.Machine)
	assert.Contains(t, see(t, n.Machine, lineLocked), "the firmware announces no TPM 2.0")
	require.NoError(t, n.Kill())

	n.onMachine(t, other, keyMedium(t, secrets["key file"]))
	startsFrom(t, n.Machine)
	assert.Contains(t, see(t, n.Machine, lineData), "key: tpm")
	assert.Equal(t, secrets["ca/ca.key"], n.mintedSecrets(t)["ca/ca.key"], "it is the same DATA")
	answer, nonce = n.attest(t)
	out, _, err = checkAttestation(t, answer, nonce, image)
	assert.NoError(t, err, "%s", out)
	out, _, err = checkAttestation(t, answer, nonce, "--key", key)
	assert.Error(t, err)
	assert.Contains(t, out, "it is signed by the key of another TPM")
	require.NoError(t, n.Kill())

	n.onMachine(t, other, "")
	startsFrom(t, n.Machine)
	assert.Contains(t, see(t, n.Machine, lineData), "key: tpm")
	require.NoError(t, n.Kill())

	raw := rawDisk(t, filepath.Join(n.conf.Dir, "disk0.qcow2"))
	id := first.id[:8] + "-" + first.id[8:12] + "-" + first.id[12:16] + "-" + first.id[16:20] + "-" + first.id[20:]
	found, bytes := search(t, raw, map[string]string{"uuid of the volume": id})
	assert.NotEmpty(t, found, "the search finds what is there")
	found, _ = search(t, raw, secrets)
	assert.Empty(t, found, "secrets on the medium in clear")
	t.Logf("%d secrets were looked for in %d MiB of the stick", len(secrets), bytes>>20)
}

// TestASiteThatRequiresATPMGetsNoDataWithout it.
func TestASiteThatRequiresATPMGetsNoDataWithout(t *testing.T) {
	image := needImage(t, "qemu-all")
	dir := t.TempDir()
	site, required := filepath.Join(dir, "site.yaml"), filepath.Join(dir, "stick.img")
	require.NoError(t, os.WriteFile(site, []byte("appliance: {seal: {require: tpm}}\n"), 0o600))
	out, err := exec.Command("cp", "--sparse=always", image, required).CombinedOutput()
	require.NoError(t, err, "%s", out)
	p := partition(t, required, stick.PartitionSite)
	out, err = exec.Command("mcopy", "-i", required+"@@"+strconv.FormatInt(p.Offset(), 10), site, "::site.yaml").CombinedOutput()
	require.NoError(t, err, "%s", out)
	m := newMachine(t, lab.Config{Disks: []lab.Disk{{Image: required, Bus: lab.USB, Bytes: 4 * gib}}})
	startsFrom(t, m)
	assert.Contains(t, see(t, m, lineLocked), "DATA is not made: site.yaml requires a TPM")
	see(t, m, lineUp)
	require.NoError(t, m.Kill())
}

// rawDisk is a disk as it is, with holes where nothing was written.
func rawDisk(t *testing.T, path string) *os.File {
	t.Helper()
	raw := filepath.Join(t.TempDir(), "raw")
	out, err := exec.Command("qemu-img", "convert", "-O", "raw", path, raw).CombinedOutput()
	require.NoError(t, err, "%s", out)
	f, err := os.Open(raw)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// search looks for each text in what a file has besides holes, of which it returns the size.
func search(t *testing.T, f *os.File, texts map[string]string) (found []string, size int64) {
	t.Helper()
	const overlap = 4096
	buffer := make([]byte, 64<<20)
	seen := map[string]bool{}
	for at := int64(0); ; {
		start, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return found, size
		}
		require.NoError(t, err)
		end, err := unix.Seek(int(f.Fd()), start, unix.SEEK_HOLE)
		require.NoError(t, err)
		for at = start; at < end; at += int64(len(buffer)) - overlap {
			n, err := f.ReadAt(buffer[:min(int64(len(buffer)), end-at)], at)
			if !errors.Is(err, io.EOF) {
				require.NoError(t, err)
			}
			for name, text := range texts {
				if !seen[name] && bytes.Contains(buffer[:n], []byte(text)) {
					seen[name], found = true, append(found, name)
				}
			}
		}
		at, size = end, size+end-start
	}
}
