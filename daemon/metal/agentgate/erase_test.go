package agentgate

import (
	"context"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTheRamdiskErasesWhatIsNamed: its own hardware manager, run without the agent, and the gate.
func TestTheRamdiskErasesWhatIsNamed(t *testing.T) {
	for _, name := range []string{"python3", "wipefs"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip("needs the tools that the ramdisk has: ", err)
		}
	}
	if exec.CommandContext(t.Context(), "python3", "-c", "import cryptography").Run() != nil {
		t.Skip("needs the modules that the ramdisk has: python3-cryptography")
	}
	b := newFixture(t)
	b.hosts[macOf(1)] = &Host{Name: "node9", UUID: uuid}
	top := t.TempDir()
	disk, other, ca := filepath.Join(top, "disk"), filepath.Join(top, "other"), filepath.Join(top, "ca.pem")
	data := []byte(strings.Repeat("somebody's ", 1<<18))
	require.NoError(t, os.WriteFile(other, data, 0o644))
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.cert}), 0o644))
	base := b.boot(t, 1)
	run := func(disks string, more ...string) string {
		require.NoError(t, os.WriteFile(disk, data, 0o644))
		cmd := exec.CommandContext(t.Context(), "python3", "testdata/agent/erase.py")
		cmd.Env = append(os.Environ(), "PYTHONPATH=testdata/agent:"+packages, "PYTHONDONTWRITEBYTECODE=1", "DISK="+disk,
			"OTHER="+other, "CAFILE="+ca, "API_URL=https://"+b.addr+base, "DISKS="+disks)
		cmd.Env = append(append(cmd.Env, withNVMe(t)), more...)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return strings.TrimSpace(string(out))
	}
	read := func(path string) string {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		return string(text)
	}

	var asked []WriteRequest
	var done []EraseReport
	refusal := ""
	b.MayErase = func(_ context.Context, host string, q WriteRequest) (string, error) {
		assert.Equal(t, "node9", host)
		asked = append(asked, q)
		return refusal, nil
	}
	b.NoteErased = func(_ context.Context, host string, r EraseReport) (string, error) {
		assert.Equal(t, "node9", host)
		done = append(done, r)
		return "", nil
	}
	const named = `[{"name": "/dev/old", "serial": "SERIAL", "wwn": ""}]`
	assert.Equal(t, "erased by the agent", run(named))
	require.Len(t, asked, 1)
	assert.Equal(t, disk, asked[0].Disk.Name)
	assert.Equal(t, int64(len(data)), asked[0].Bytes)
	assert.Equal(t, 1, asked[0].Others)
	assert.Equal(t, []string{"data of an unknown kind"}, asked[0].Holds.Kinds)
	require.Len(t, done, 1)
	assert.Equal(t, "SERIAL", done[0].Disk.Serial)
	assert.Equal(t, "overwrite", done[0].Method)
	assert.True(t, done[0].Holds.IsBlank())
	assert.Empty(t, strings.Trim(read(disk), "\x00"), "something is left")

	// A drive that erases itself may read as anything afterwards.
	assert.Equal(t, "erased by the agent", run(named, "DRIVE_CAN=nvme"))
	assert.Equal(t, "nvme-format", done[1].Method)
	assert.True(t, done[1].Holds.IsBlank())

	assert.Positive(t, done[0].Compared)
	assert.Positive(t, done[1].Compared)

	// What the agent passes over counts as not erased.
	assert.Contains(t, run(named, "DRIVE_CAN=nothing"), "failed: the agent passed over "+disk)
	require.Len(t, done, 2)

	refusal = "disk x is not one that is to be erased"
	assert.Equal(t, "failed: refused by the appliance: "+refusal, run(named))
	assert.Equal(t, string(data), read(disk), "written to without the appliance's word")
	refusal = ""

	for _, wrong := range []string{
		`[{"name": "/dev/sda", "serial": "ANOTHER", "wwn": ""}]`,
		`[{"name": "` + disk + `", "serial": "SERIAL", "wwn": "0x5000"}]`,
		`[{"name": "` + disk + `", "serial": "SERIAL", "wwn": ""}, {"name": "x", "serial": "ANOTHER", "wwn": ""}]`,
	} {
		before := len(asked)
		assert.Contains(t, run(wrong), "failed: 0 disks have the serial number")
		assert.Len(t, asked, before)
		assert.Equal(t, string(data), read(disk), wrong)
	}
	assert.Contains(t, run(named, "OTHER_SERIAL=SERIAL"), "failed: 2 disks have the serial number 'SERIAL'")
	assert.Equal(t, string(data), read(disk))
	assert.Equal(t, string(data), read(other), "a disk that nobody named was written to")
	assert.Empty(t, b.requests(), "it is not Ironic's business")
}

// TestAnUnknownMachineErasesNothing, and neither does one without a token.
func TestAnUnknownMachineErasesNothing(t *testing.T) {
	b := newFixture(t)
	b.MayErase = func(context.Context, string, WriteRequest) (string, error) { panic("asked") }
	b.NoteErased = func(context.Context, string, EraseReport) (string, error) { panic("told") }
	question := `{"disk": {"name": "/dev/sda"}, "holds": {"kinds": []}}`
	for _, path := range []string{"/erase", "/erased"} {
		code, _ := b.ask(t, 40, "POST", b.boot(t, 40)+path, strings.NewReader(question))
		assert.Equal(t, 404, code)
		code, _ = b.ask(t, 11, "POST", path, strings.NewReader(question))
		assert.Equal(t, 403, code)
		code, _ = b.ask(t, 11, "POST", b.boot(t, 11)+path, strings.NewReader(`{"holds": {"kinds": []}}`))
		assert.Equal(t, 400, code)
	}
}

// TestOtherNamespacesOfADriveAreLeftAlone: a format of one may erase them all, so it is overwritten instead.
func TestOtherNamespacesOfADriveAreLeftAlone(t *testing.T) {
	b := newFixture(t)
	b.hosts[macOf(1)] = &Host{Name: "node9", UUID: uuid}
	b.MayErase = func(context.Context, string, WriteRequest) (string, error) { return "", nil }
	var done []EraseReport
	b.NoteErased = func(_ context.Context, _ string, r EraseReport) (string, error) {
		done = append(done, r)
		return "", nil
	}
	erase := newEraser(t, b, "nvme0n1", "DRIVE_CAN=nvme")
	block := t.TempDir()
	for _, name := range []string{"nvme0n1", "nvme0n1p1", "nvme0c0n1", "nvme1n1", "nvme10n1", "sda"} {
		require.NoError(t, os.Mkdir(filepath.Join(block, name), 0o755))
	}
	assert.Equal(t, "erased by the agent", erase("BLOCK="+block))
	require.NoError(t, os.Mkdir(filepath.Join(block, "nvme0n2"), 0o755))
	assert.Equal(t, "erased by the agent\nfalling back: its drive also has nvme0n2", erase("BLOCK="+block))
	require.Len(t, done, 2)
	assert.Equal(t, []string{"nvme-format", "overwrite"}, []string{done[0].Method, done[1].Method})
}

// TestNamespacesThatAreNotAttachedAreLeftAlone: no system sees them, a format may erase them all the same, and the record
// says that they are there.
func TestNamespacesThatAreNotAttachedAreLeftAlone(t *testing.T) {
	b := newFixture(t)
	b.hosts[macOf(1)] = &Host{Name: "node9", UUID: uuid}
	b.MayErase = func(context.Context, string, WriteRequest) (string, error) { return "", nil }
	var done EraseReport
	b.NoteErased = func(_ context.Context, _ string, r EraseReport) (string, error) {
		done = r
		return "", nil
	}
	erase := newEraser(t, b, "nvme0n1", "DRIVE_CAN=nvme", "BLOCK="+t.TempDir())
	for _, c := range []struct {
		drive       string // its OACS, and what it lists: all namespaces, those that are attached
		falls, said string
		unattached  int
	}{
		{"8 1 1", "", "nvme-format", 0},
		{"8 1,2,7 1", "its drive also has namespace 2, not attached, namespace 7, not attached", "overwrite", 2},
		{"2 - 1", "", "nvme-format", 0}, // it manages no namespaces, and knows no list of all
		{"8 - 1", "its drive does not tell its namespaces: nvme list-ns", "overwrite", -1},
		{"- - -", "its drive does not tell its namespaces: nvme id-ctrl", "overwrite", -1},
	} {
		out := erase("NVME=" + c.drive)
		assert.True(t, strings.HasPrefix(out, "erased by the agent"), "%s: %s", c.drive, out)
		if c.falls == "" {
			assert.NotContains(t, out, "falling back", c.drive)
		} else {
			assert.Contains(t, out, "falling back: "+c.falls, c.drive)
		}
		assert.Equal(t, c.said, done.Method, c.drive)
		assert.Equal(t, c.unattached, done.Unattached, c.drive)
	}
}

// TestArraysOfADiskAreStopped before it is written to: they would go on on their other disks.
func TestArraysOfADiskAreStopped(t *testing.T) {
	b := newFixture(t)
	b.hosts[macOf(1)] = &Host{Name: "node9", UUID: uuid}
	b.MayErase = func(context.Context, string, WriteRequest) (string, error) { return "", nil }
	b.NoteErased = func(context.Context, string, EraseReport) (string, error) { return "", nil }
	bin, block := t.TempDir(), t.TempDir()
	holders := filepath.Join(block, "sda", "holders")
	stop := filepath.Join(bin, "mdadm")
	erase := newEraser(t, b, "sda", "BLOCK="+block, "PATH="+bin+":"+os.Getenv("PATH"))
	begin := func(script string) {
		require.NoError(t, os.MkdirAll(filepath.Join(holders, "md126"), 0o755))
		require.NoError(t, os.MkdirAll(filepath.Join(holders, "md127"), 0o755))
		require.NoError(t, os.WriteFile(stop, []byte("#!/bin/sh -e\n"+script+"\n"), 0o755))
	}

	begin(`test "$1" = --stop; tr -d '\0' <"$DISK" | grep -q somebody; rmdir ` + holders + `/${2#/dev/}`)
	assert.Equal(t, "erased by the agent", erase())
	entries, err := os.ReadDir(holders)
	require.NoError(t, err)
	assert.Empty(t, entries, "arrays that go on")

	// One that does not stop, or is put together again.
	begin("exit 0")
	assert.Contains(t, erase(), "sda is still used by /dev/md126, /dev/md127")
}

// TestALockedDriveIsErased: it lost its power while it erased itself, and nothing can be read of it.
func TestALockedDriveIsErased(t *testing.T) {
	b := newFixture(t)
	b.hosts[macOf(1)] = &Host{Name: "node9", UUID: uuid}
	var asked []WriteRequest
	b.MayErase = func(_ context.Context, _ string, q WriteRequest) (string, error) {
		asked = append(asked, q)
		return "", nil
	}
	var done []EraseReport
	b.NoteErased = func(_ context.Context, _ string, r EraseReport) (string, error) {
		done = append(done, r)
		return "", nil
	}
	bin := t.TempDir()
	locked := filepath.Join(bin, "locked")
	erase := newEraser(t, b, "sda", "LOCKED="+locked, "PATH="+bin+":"+os.Getenv("PATH"))
	wipefs, err := exec.LookPath("wipefs")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(locked, nil, 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(bin, "wipefs"), []byte(
		"#!/bin/sh\nif [ -e "+locked+" ]; then echo 'Input/output error' >&2; exit 1; fi\nexec "+wipefs+` "$@"`+"\n"), 0o755))
	assert.Equal(t, "erased by the agent", erase())
	require.Len(t, asked, 1)
	assert.Equal(t, "Input/output error", asked[0].Holds.Unreadable)
	require.Len(t, done, 1)
	assert.Equal(t, "ata-secure-erase", done[0].Method)
	assert.True(t, done[0].Holds.IsBlank())
}

// TestADriveThatLiesIsNotErased: it says that it has erased itself, or that what was written is on it, and part of what
// it held is still there.
func TestADriveThatLiesIsNotErased(t *testing.T) {
	b := newFixture(t)
	b.hosts[macOf(1)] = &Host{Name: "node9", UUID: uuid}
	b.MayErase = func(context.Context, string, WriteRequest) (string, error) { return "", nil }
	b.NoteErased = func(context.Context, string, EraseReport) (string, error) {
		t.Error("it was reported as erased")
		return "", nil
	}
	erase := newEraser(t, b, "nvme0n1", "BLOCK="+t.TempDir())
	const lie = `failed: \S+nvme0n1 still holds what it held: \d+ of \d+ blocks read as before it was erased \(%s\); destroy it`
	for _, c := range []struct{ method, can, kept string }{
		{"nvme-format", "nvme", "0 2"}, // the first two MiB of nearly three
		{"nvme-format", "nvme", "1 2"}, // the one in the middle: both ends are erased
		{"overwrite", "pretend", ""},
	} {
		out := erase("DRIVE_CAN="+c.can, "LIES="+c.kept)
		assert.Regexp(t, fmt.Sprintf(lie, c.method), out, "%+v", c)
	}
}

// newEraser is a run of the ramdisk's step on a disk of this name, which is named, with the environment.
func newEraser(t *testing.T, b *fixture, name string, environment ...string) func(more ...string) string {
	t.Helper()
	for _, name := range []string{"python3", "wipefs"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip("needs the tools that the ramdisk has: ", err)
		}
	}
	if exec.CommandContext(t.Context(), "python3", "-c", "import cryptography").Run() != nil {
		t.Skip("needs the modules that the ramdisk has: python3-cryptography")
	}
	top := t.TempDir()
	disk, ca := filepath.Join(top, name), filepath.Join(top, "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.cert}), 0o644))
	base := b.boot(t, 1)
	return func(more ...string) string {
		require.NoError(t, os.WriteFile(disk, []byte(strings.Repeat("somebody's ", 1<<18)), 0o644))
		cmd := exec.CommandContext(t.Context(), "python3", "testdata/agent/erase.py")
		cmd.Env = append(os.Environ(), "PYTHONPATH=testdata/agent:"+packages, "PYTHONDONTWRITEBYTECODE=1", "DISK="+disk,
			"CAFILE="+ca, "API_URL=https://"+b.addr+base, `DISKS=[{"name": "/dev/old", "serial": "SERIAL", "wwn": ""}]`)
		cmd.Env = append(append(append(cmd.Env, withNVMe(t)), environment...), more...)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return strings.TrimSpace(string(out))
	}
}

// withNVMe is a PATH with a program nvme, which answers for the drive in NVME: its OACS, all of its namespaces, and those
// that are attached ("-": an error). One that is not described has one namespace.
func withNVMe(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(bin, "nvme"), []byte(`#!/bin/sh -e
list() {
	test "$1" != - || { echo 'NVMe status: Invalid Field in Command' >&2; exit 1; }
	printf '{"nsid_list":[%s]}' "$(echo "$1" | sed 's/[0-9]*/{"nsid":&}/g')"
}
what="$1 $3"
set -- ${NVME:-8 1 1}
case $what in
"id-ctrl -o") test "$1" != - || { echo 'No such device' >&2; exit 1; }; echo "{\"oacs\": $1}" ;;
"list-ns --all") list "$2" ;;
"list-ns -o") list "$3" ;;
*) exit 2 ;;
esac
`), 0o755))
	return "PATH=" + bin + ":" + os.Getenv("PATH")
}
