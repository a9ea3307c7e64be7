package devpush

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/devpush"
)

func TestOwnersThatTakeSignedVersionsAloneAreNamed(t *testing.T) {
	for _, c := range []struct {
		policy Policy
		says   string
	}{
		{Policy{}, ""},
		{Policy{Signed: true}, "its site.yaml has updates.keys, so that it takes signed versions alone"},
		{Policy{Boot: true}, "its firmware starts nothing but what its owner has signed"},
		{Policy{Signed: true, Boot: true}, "alone, and its firmware"},
		{Policy{Unknown: errors.New("the site cannot be read")}, "not known what its owner allows: the site cannot be read"},
	} {
		got := c.policy.Refusal()
		assert.Contains(t, got, c.says)
		assert.Equal(t, c.says == "", got == "")
	}
}

func TestPodsAreReplacedWhenAllAreOthersAndReady(t *testing.T) {
	old := []pod{{"bpa-1", "a", true}}
	for _, c := range []struct {
		now  []pod
		says string
	}{
		{old, "pod bpa-1 has not ended"},
		{append(old, pod{"bpa-2", "b", true}), "pod bpa-1 has not ended"},
		{nil, "its pod is not there yet"},
		{[]pod{{"bpa-2", "b", false}}, "pod bpa-2 is not ready"},
		{[]pod{{"bpa-2", "b", true}}, ""},
	} {
		err := areReplaced(append(old, pod{"bpa-0", "was ending", false}), c.now)
		if c.says == "" {
			assert.NoError(t, err)
			continue
		}
		assert.ErrorContains(t, err, c.says)
	}
}

func TestPodsAreReadFromKubectl(t *testing.T) {
	all, err := parsePods(`{"items": [
		{"metadata": {"name": "one", "uid": "u1"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}},
		{"metadata": {"name": "two", "uid": "u2"}, "status": {"conditions": [{"type": "Ready", "status": "False"}]}},
		{"metadata": {"name": "three", "uid": "u3"}}]}`)
	require.NoError(t, err)
	assert.Equal(t, []pod{{"one", "u1", true}, {"two", "u2", false}, {"three", "u3", false}}, all)
	_, err = parsePods("error: no")
	assert.Error(t, err)
}

func TestADescriptionSaysWhatOfWhatAndForHowLong(t *testing.T) {
	p := Push{Programs: []string{"firstlightd", "bpa"}, Revision: "0123456789ab+dirty", Time: time.Unix(1e9, 0)}
	assert.Equal(t, "This appliance runs firstlightd, bpa of 0123456789ab+dirty, pushed at 2001-09-09 01:46:40 UTC, until it "+
		"restarts; firstlight dev push --undo takes that back.", p.Describe())
}

// received is a file that a workstation sends.
type received struct {
	name    string
	content []byte
	digest  string // that it says; "": the right one
	cut     int    // bytes that do not arrive
	says    string
}

func (r received) compress(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b)
	require.NoError(t, err)
	_, err = z.Write(r.content)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return b.Bytes()[:b.Len()-r.cut]
}

func (r received) sum() string {
	if r.digest != "" {
		return r.digest
	}
	sum := sha256.Sum256(r.content)
	return hex.EncodeToString(sum[:])
}

// TestOnlyProgramsAreReceived: whole, and for this machine. Nothing of another file is left.
func TestOnlyProgramsAreReceived(t *testing.T) {
	own, err := os.Executable()
	require.NoError(t, err)
	program, err := os.ReadFile(own)
	require.NoError(t, err)
	a := Appliance{Dir: t.TempDir()}
	bpa, err := devpush.Find("bpa")
	require.NoError(t, err)
	for _, c := range []received{
		{name: "another digest", content: program, digest: strings.Repeat("0", 64), says: "its sha256 is "},
		{name: "no digest", content: program, digest: "no", says: "is no sha256"},
		{name: "no program", content: []byte("#!/bin/sh\n"), says: "it is no program for amd64"},
		{name: "cut", content: program, cut: 100, says: "unexpected EOF"},
	} {
		_, err := a.receive(bytes.NewReader(c.compress(t)), c.sum(), bpa)
		assert.ErrorContains(t, err, c.says, c.name)
		left, err := os.ReadDir(a.Dir)
		require.NoError(t, err)
		assert.Empty(t, left, c.name)
	}

	good := received{content: program}
	folder, err := a.receive(bytes.NewReader(good.compress(t)), good.sum(), bpa)
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join(folder, bpa.Path))
	require.NoError(t, err)
	assert.True(t, bytes.Equal(program, got))
}

func TestWhatIsNotShownDoesNotCount(t *testing.T) {
	a := Appliance{Dir: t.TempDir()}
	all, err := a.List()
	require.NoError(t, err)
	assert.Empty(t, all)

	file, target := filepath.Join(a.Dir, "file"), filepath.Join(a.Dir, "target")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.WriteFile(target, nil, 0o600))
	p := Push{Programs: []string{"bpa"}, Folder: a.Dir, Path: "file", Target: target}
	require.NoError(t, a.write([]Push{p}))
	all, err = a.List()
	require.NoError(t, err)
	assert.Empty(t, all, "the root's own file is at its place")

	require.NoError(t, os.Remove(target))
	require.NoError(t, os.Link(file, target))
	all, err = a.List()
	require.NoError(t, err)
	assert.Equal(t, []Push{p}, all)
}

func TestTwoFilesAreNotOneOrder(t *testing.T) {
	for names, says := range map[string]string{
		"": "no program is named", "bpa baremetal-operator": "are two programs", "nonsense": "no program nonsense",
	} {
		_, err := Order{Programs: strings.Fields(names)}.resolve()
		assert.ErrorContains(t, err, says)
	}
	programs, err := Order{Programs: []string{"bpa", "firstlightd"}}.resolve()
	require.NoError(t, err)
	assert.Len(t, programs, 2)
}

// TestAUnitThatDoesNotRunIsNotStarted, and one that comes back with another program is an error.
func TestAUnitThatDoesNotRunIsNotStarted(t *testing.T) {
	var ran []string
	state := "inactive\n"
	a := Appliance{
		Patience: 10 * interval,
		Run: func(_ context.Context, program string, args ...string) (string, error) {
			ran = append(ran, program+" "+strings.Join(args, " "))
			if slices.Contains(args, "ActiveState") {
				return state, nil
			}
			return "1\n", nil
		},
	}
	p := devpush.Program{Unit: "one.service"}
	require.NoError(t, a.restart(t.Context(), []devpush.Program{p}, "/nonsense"))
	assert.Equal(t, []string{"systemctl show --value --property ActiveState one.service"}, ran)

	for _, state = range []string{"active\n", "activating\n"} {
		ran = nil
		err := a.restart(t.Context(), []devpush.Program{p}, "/nonsense")
		assert.ErrorContains(t, err, "one.service does not run again: no process of it has this program")
		assert.Contains(t, ran, "systemctl restart --no-block one.service")
	}
}

// TestPushesThatWereKilledAreRemoved: only what is in the record stays, and two do not push at once.
func TestPushesThatWereKilledAreRemoved(t *testing.T) {
	a := Appliance{Dir: filepath.Join(t.TempDir(), "pushed")}
	unlock, err := a.lock()
	require.NoError(t, err)
	_, err = a.lock()
	assert.ErrorContains(t, err, "somebody else pushes", "there is no tmpfs yet")
	unlock()

	kept, killed := filepath.Join(a.Dir, "firstlightd-1"), filepath.Join(a.Dir, "firstlightd-2")
	require.NoError(t, os.MkdirAll(kept, 0o755))
	require.NoError(t, os.MkdirAll(killed, 0o755))
	require.NoError(t, a.write(nil))
	require.NoError(t, a.sweep([]Push{{Folder: kept}}))
	assert.DirExists(t, kept)
	assert.NoDirExists(t, killed)
	assert.FileExists(t, filepath.Join(a.Dir, recordName))
}
