package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2/transport"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/luks"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/tpm/tpmtest"
)

const (
	machineID = "0123456789ab4def8123456789abcdef"
	ownKey    = "the owner's own key file"
)

var errCut = errors.New("power cut")

// machine is what a stick is put into: a TPM or none, a medium with a key file or none. It ends a command before it
// begins when there are no more left, as a power cut does.
type machine struct {
	tpm     *tpmtest.TPM
	keyFile string
	left    int // commands until the power is cut; negative: it is not
	seen    [][]byte
	lines   []string
}

func (m *machine) preparer(t *testing.T) Preparer {
	k := Preparer{
		Log: slog.New(slog.DiscardHandler),
		TPM: func() (transport.TPMCloser, error) {
			if m.tpm == nil {
				return nil, errAbsent
			}
			return closer{m.tpm.Open(t)}, nil
		},
		KeyFile: func() ([]byte, error) { return []byte(m.keyFile), nil },
	}
	k.Exec = func(ctx context.Context, keys [][]byte, name string, args ...string) ([]byte, error) {
		if m.left == 0 {
			return nil, errCut
		}
		m.left--
		m.seen = append(m.seen, keys...)
		m.lines = append(m.lines, strings.Join(args, " "))
		return Preparer{}.output(ctx, keys, name, args...)
	}
	return k
}

type closer struct{ transport.TPM }

func (closer) Close() error { return nil }

func needCryptsetup(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("cryptsetup"); err != nil {
		t.Skip("needs cryptsetup: scripts/deps test")
	}
}

// blank is the place of a new DATA.
func blank(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Truncate(path, 32<<20))
	return path
}

// makeVolume makes DATA on a machine, and returns a key of it.
func makeVolume(t *testing.T, m *machine) (path string, key []byte) {
	t.Helper()
	path = blank(t)
	m.left = -1
	k := m.preparer(t)
	r := k.findKeys(t.Context(), 0)
	key, err := volume{k: k, device: path}.make(t.Context(), machineID, planMaking(RequireNothing, r.means).Ways, r)
	require.NoError(t, err)
	return path, key
}

// boot opens DATA on a machine. By what it was opened now is left out.
func boot(t *testing.T, m *machine, path string) (sealInfo, error) {
	t.Helper()
	k := m.preparer(t)
	seal, err := volume{k: k, device: path}.unlock(t.Context(), func(key []byte) error {
		return volume{k: Preparer{}, device: path}.try(t.Context(), key, "")
	})
	if err == nil {
		assert.NotEmpty(t, seal.Opened)
	}
	seal.Opened = ""
	return seal, err
}

// ways are those that a header has, in order.
func ways(t *testing.T, path string) (all []stick.Seal) {
	t.Helper()
	h, err := volume{k: Preparer{}, device: path}.header(t.Context())
	require.NoError(t, err)
	assert.Len(t, h.Slots, len(h.Tokens), "each slot has its token")
	assert.Empty(t, h.Stale)
	for _, token := range h.Tokens {
		all = append(all, token.Way)
	}
	slices.Sort(all)
	return all
}

func TestDataIsOpenedByItsOwnMachineAlone(t *testing.T) {
	needCryptsetup(t)
	tpmtest.SkipWithout(t)
	own := &machine{tpm: tpmtest.Start(t, t.TempDir())}
	path, key := makeVolume(t, own)

	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	h, err := luks.Read(f)
	require.NoError(t, err)
	assert.Equal(t, machineID, strings.ReplaceAll(h.UUID, "-", ""), "firstlight-init reads who it is")

	seal, err := boot(t, own, path)
	require.NoError(t, err)
	assert.Equal(t, sealInfo{Way: stick.SealTPM}, seal)
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.False(t, bytes.Contains(raw, key), "the key is on the medium")
	for _, line := range own.lines {
		assert.NotContains(t, line, string(key), "in a command line")
	}

	other := &machine{tpm: tpmtest.Start(t, t.TempDir()), left: -1}
	_, err = boot(t, other, path)
	assert.ErrorContains(t, err, "sealed to another machine's TPM")
	_, err = boot(t, &machine{left: -1, keyFile: "a key file that is not its own"}, path)
	assert.ErrorContains(t, err, "is not its own")
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(raw, after), "a machine that opens nothing writes nothing")
}

func TestAKeyFileOpensItWithoutTPM(t *testing.T) {
	needCryptsetup(t)
	m := &machine{keyFile: ownKey}
	path, _ := makeVolume(t, m)
	assert.Equal(t, []stick.Seal{stick.SealKeyFile}, ways(t, path))
	seal, err := boot(t, m, path)
	require.NoError(t, err)
	assert.Equal(t, sealInfo{Way: stick.SealKeyFile}, seal)
}

// TestAPowerCutWhileSealingLosesNothing: whichever command of cryptsetup was the last, the next boot of the same machine
// opens DATA and ends up where the boot would have.
func TestAPowerCutWhileSealingLosesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("runs cryptsetup some hundred times")
	}
	needCryptsetup(t)
	tpmtest.SkipWithout(t)
	first, second := tpmtest.Start(t, t.TempDir()), tpmtest.Start(t, t.TempDir())
	for _, c := range []struct {
		name string
		made machine // where it is made
		next machine // and then started
		ways []stick.Seal
		seal sealInfo
	}{
		{"TPM switched on", machine{}, machine{tpm: first},
			[]stick.Seal{stick.SealTPM}, sealInfo{Way: stick.SealTPM}},
		{"key file brought", machine{}, machine{keyFile: ownKey},
			[]stick.Seal{stick.SealKeyFile}, sealInfo{Way: stick.SealKeyFile}},
		{"recovered on another machine", machine{tpm: first, keyFile: ownKey}, machine{tpm: second, keyFile: ownKey},
			[]stick.Seal{stick.SealKeyFile, stick.SealTPM}, sealInfo{Way: stick.SealTPM, KeyFile: true}},
	} {
		made, _ := makeVolume(t, &c.made)
		fresh, err := os.ReadFile(made)
		require.NoError(t, err)
		cuts := 0
		for ; ; cuts++ {
			require.Less(t, cuts, 50, "it never ends")
			path := blank(t)
			require.NoError(t, os.WriteFile(path, fresh, 0o600))
			m := c.next
			m.left = cuts
			seal, err := boot(t, &m, path)
			isWhole := err == nil && seal.Note == ""

			m = c.next
			m.left = -1
			seal, err = boot(t, &m, path)
			require.NoError(t, err, "%s, cut before command %d", c.name, cuts+1)
			require.Equal(t, c.seal, seal, "%s, cut before command %d", c.name, cuts+1)
			h, err := volume{k: Preparer{}, device: path}.header(t.Context())
			require.NoError(t, err)
			require.Empty(t, h.Stale)
			if isWhole {
				assert.Equal(t, c.ways, ways(t, path), c.name)
				break
			}
		}
		t.Logf("%s: cut at %d places", c.name, cuts)
	}
}

// TestATornHeaderIsReadAgain: cryptsetup writes a slot, then one copy of the header after the other; whichever sector of
// these was the last, DATA is opened as before or as after.
func TestATornHeaderIsReadAgain(t *testing.T) {
	needCryptsetup(t)
	tpmtest.SkipWithout(t)
	m := &machine{tpm: tpmtest.Start(t, t.TempDir())}
	path, key := makeVolume(t, m)
	v := volume{k: m.preparer(t), device: path}
	beside := token{Way: stick.SealBeside, Key: mintKey()}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"a slot is added", func() error {
			slot, err := v.addKey(t.Context(), key, beside.Key, stick.SealBeside)
			beside.Slots = []string{slot}
			return err
		}},
		{"its token is added", func() error { return v.addToken(t.Context(), beside) }},
		{"both are removed", func() error {
			h, err := v.header(t.Context())
			require.NoError(t, err)
			return v.removeToken(t.Context(), h.Tokens[len(h.Tokens)-1])
		}},
	} {
		before, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, step.do(), step.name)
		after, err := os.ReadFile(path)
		require.NoError(t, err)

		changed := changedSectors(before, after)
		require.NotEmpty(t, changed, step.name)
		stride := 1
		if testing.Short() {
			stride = max(1, len(changed)/3)
		}
		for n := 0; n < len(changed); n += stride {
			torn := bytes.Clone(before)
			for _, at := range changed[:n] {
				copy(torn[at:at+sectorBytes], after[at:at+sectorBytes])
			}

			half := blank(t)
			require.NoError(t, os.WriteFile(half, torn, 0o600))
			seal, err := boot(t, &machine{tpm: m.tpm, left: -1}, half)
			require.NoError(t, err, "%s: cut after %d of %d sectors", step.name, n, len(changed))
			assert.Equal(t, sealInfo{Way: stick.SealTPM}, seal, "%s: cut after %d of %d sectors", step.name, n, len(changed))
		}
		t.Logf("%s: %d sectors", step.name, len(changed))
	}
}

const sectorBytes = 512

// changedSectors are the places that differ, in the order in which cryptsetup writes: a slot, then the two copies of the
// header. Of a slot's many sectors every fiftieth is enough.
func changedSectors(before, after []byte) (places []int) {
	const headers = 32 << 10
	count := 0
	add := func(from, to, stride int) {
		for at := from; at < to; at += sectorBytes {
			if !bytes.Equal(before[at:at+sectorBytes], after[at:at+sectorBytes]) {
				if count++; count%stride == 0 {
					places = append(places, at)
				}
			}
		}
	}
	add(headers, len(before), 50)
	add(0, headers, 1)
	return places
}

// TestABrokenTPMTakesNothingAway: what opened DATA before is still there.
func TestABrokenTPMTakesNothingAway(t *testing.T) {
	needCryptsetup(t)
	path, _ := makeVolume(t, &machine{})
	k := (&machine{left: -1}).preparer(t)
	k.TPM = func() (transport.TPMCloser, error) { return closer{deaf{}}, nil }
	seal, err := volume{k: k, device: path}.unlock(t.Context(), func([]byte) error { return nil })
	require.NoError(t, err)
	assert.Equal(t, stick.SealBeside, seal.Way)
	assert.Equal(t, stick.SealBeside, seal.Opened)
	assert.Contains(t, seal.Note, "What opens DATA was not changed")
	assert.Equal(t, []stick.Seal{stick.SealBeside}, ways(t, path))
}

// TestATPMThatSealsInVainIsNotInTheWay of a key file, and leaves nothing in the header, however often it is tried.
func TestATPMThatSealsInVainIsNotInTheWay(t *testing.T) {
	needCryptsetup(t)
	tpmtest.SkipWithout(t)
	path, _ := makeVolume(t, &machine{})
	software := tpmtest.Start(t, t.TempDir())
	m := &machine{left: -1}
	k := m.preparer(t)
	k.TPM = func() (transport.TPMCloser, error) { return closer{forgetful{software.Open(t)}}, nil }
	unlock := func() sealInfo {
		seal, err := volume{k: k, device: path}.unlock(t.Context(), func([]byte) error { return nil })
		require.NoError(t, err)
		assert.Contains(t, seal.Note, "add tpm: unseal by TPM: ")
		assert.NotContains(t, seal.Note, "\n")
		return seal
	}

	for range 2 {
		assert.Equal(t, stick.SealBeside, unlock().Way)
		assert.Equal(t, []stick.Seal{stick.SealBeside}, ways(t, path))
	}
	m.keyFile = ownKey
	sealed := unlock()
	assert.Equal(t, stick.SealKeyFile, sealed.Way)
	assert.Equal(t, stick.SealBeside, sealed.Opened, "before it had the key file")
	assert.Equal(t, []stick.Seal{stick.SealKeyFile}, ways(t, path))

	software = tpmtest.Start(t, t.TempDir()) // a session was left in the other
	r := k.findKeys(t.Context(), 0)
	require.True(t, r.TPM)
	require.ErrorContains(t, r.dropDeafTPM(), "unseal by TPM: ")
	assert.Equal(t, []stick.Seal{stick.SealKeyFile}, planMaking(RequireNothing, r.means).Ways, "a new DATA does without")
}

// forgetful is a TPM that seals and does not unseal.
type forgetful struct{ transport.TPM }

func (f forgetful) Send(command []byte) ([]byte, error) {
	const unseal = "\x00\x00\x01\x5e" // TPM_CC_Unseal
	if len(command) > 10 && string(command[6:10]) == unseal {
		return nil, errors.New("no answer")
	}
	return f.TPM.Send(command)
}

type deaf struct{}

func (deaf) Send([]byte) ([]byte, error) { return nil, fmt.Errorf("no answer") }
