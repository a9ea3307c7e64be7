package stickupdate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/secureboot"
	"firstlight.dev/firstlight/assets/secureboot/secureboottest"
	"firstlight.dev/firstlight/assets/signature"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/assets/verity"
	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/disk/disktest"
)

// makeImage writes the image of a version, as the builder does but for what is in the files.
func makeImage(t *testing.T, version string, rootBlocks int, changes ...func(*disk.Stick)) string {
	t.Helper()
	dir := t.TempDir()
	root := make([]byte, rootBlocks*verity.BlockSize)
	rand.NewChaCha8(sha256.Sum256([]byte(version))).Read(root)
	copy(root, "hsqs")
	binary.LittleEndian.PutUint64(root[40:], uint64(len(root)-100))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "root"), root, 0o600))
	hash, _, err := disk.Seal(t.Context(), filepath.Join(dir, "root"), 0, verity.Known{})
	require.NoError(t, err)

	kernel, initramfs := secureboottest.Program([]byte("kernel of "+version)), bytes.Repeat([]byte(version), 100_000)
	config := stick.SlotConfig{
		Version: version, RootHash: hash,
		Kernel: fmt.Sprintf("%x", sha256.Sum256(kernel)), Initramfs: fmt.Sprintf("%x", sha256.Sum256(initramfs)),
	}
	boot := bytes.Repeat([]byte{0xcc}, 512)
	boot[510], boot[511] = 0x55, 0xaa
	core := make([]byte, 20*512)
	binary.LittleEndian.PutUint16(core[0x1fc:], 19)
	s := disk.Stick{
		ESP: []disk.File{
			disk.TextFile(stick.EnvironmentPath, stick.Environment{Slot: stick.SlotA}.Encode()),
			disk.TextFile(stick.OwnedGRUBPath, secureboottest.Program(secureboot.PlaceholderKey())),
		},
		Slot: []disk.File{
			disk.TextFile(stick.KernelName, kernel), disk.TextFile(stick.InitramfsName, initramfs),
			disk.TextFile(stick.SlotConfigName, config.Encode()),
		},
		Root: disk.Image(filepath.Join(dir, "root")), Boot: boot, Core: core,
	}
	for _, change := range changes {
		change(&s)
	}
	l, err := s.Layout()
	require.NoError(t, err)
	path := filepath.Join(dir, "x.img")
	require.NoError(t, disk.Write(t.Context(), path, l))
	return path
}

var errCut = errors.New("power cut")

// region is a partition of a stick in a file; the power is cut after so many writes to the stick, if any are left.
type region struct {
	f      *os.File
	at     int64
	writes *int
}

func (r region) ReadAt(b []byte, at int64) (int, error) { return r.f.ReadAt(b, r.at+at) }
func (r region) Sync() error                            { return nil }
func (r region) Drop() error                            { return nil }

// WriteAt writes half of what the power is cut in, on whole sectors: those are written whole or not at all.
func (r region) WriteAt(b []byte, at int64) (int, error) {
	switch *r.writes--; {
	case *r.writes == 0:
		n, _ := r.f.WriteAt(b[:len(b)/2/512*512], r.at+at)
		return n, errCut
	case *r.writes < 0:
		return 0, errCut
	}
	return r.f.WriteAt(b, r.at+at)
}

// openFile opens the stick in a file, on which so many writes are possible.
func openFile(t *testing.T, path string, writes *int) *Stick {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	table, err := gpt.ReadPrimary(f)
	require.NoError(t, err)
	part := func(name string) Partition {
		p, ok := table.Find(name)
		require.True(t, ok, name)
		return Partition{region{f, p.Offset(), writes}, p.Size()}
	}
	s := &Stick{ESP: part(stick.PartitionESP), Slots: map[stick.Slot]Slot{}}
	for _, which := range []stick.Slot{stick.SlotA, stick.SlotB} {
		s.Slots[which] = Slot{part(which.Boot()), part(which.Root())}
	}
	return s
}

const endless = 1 << 30

// bootOnce does what grub.cfg does, and says which slot is started and whether that is a trial. The slot must be whole.
func bootOnce(t *testing.T, path string) (stick.Slot, bool) {
	t.Helper()
	writes := endless
	s := openFile(t, path, &writes)
	e, err := s.Environment()
	require.NoError(t, err, "GRUB finds its memory")
	slot, trial := e.Slot, e.Try != ""
	if trial {
		slot = e.Try
		require.NoError(t, s.SetEnvironment(stick.Environment{Slot: e.Slot}))
	}

	root := s.Slots[slot].Root
	_, err = rootSize(root)
	require.NoError(t, err, "root of slot %s", slot)
	want, err := Open(versionOf[s.Version(slot)])
	require.NoError(t, err, "slot %s", slot)
	defer want.Close()
	require.NoError(t, checkSlot(t.Context(), s.Slots[slot].Boot, root, want), "slot %s is whole", slot)
	return slot, trial
}

// versionOf is the image of each version of a test.
var versionOf = map[string]string{}

// TestAPowerCutAtAnyWrite starts what it started before until the last write, and the new version once after it. The
// update is then run again, and goes through.
func TestAPowerCutAtAnyWrite(t *testing.T) {
	old, image := makeImage(t, "1.0.0", 700), makeImage(t, "1.1.0", 650, withPlace)
	signed := []byte("untrusted comment: signature\n")
	versionOf["1.0.0"], versionOf["1.1.0"] = old, image
	next, err := Open(image)
	require.NoError(t, err)
	defer next.Close()

	run := func(path string, writes int) error {
		return Write(context.Background(), next, openFile(t, path, &writes), stick.SlotA, signed, func(string, int64, int64) {})
	}
	for cut := 1; ; cut++ {
		path := disktest.CopyImage(t, old)
		err := run(path, cut)
		slot, trial := bootOnce(t, path)
		if err == nil {
			assert.Equal(t, stick.SlotB, slot)
			assert.True(t, trial)
			slot, trial = bootOnce(t, path)
			assert.Equal(t, stick.SlotA, slot, "nobody kept it")
			assert.False(t, trial)
			require.Greater(t, cut, 30, "so many writes there are at least")
			return
		}
		require.ErrorIs(t, err, errCut)
		require.Equal(t, stick.SlotA, slot, "after %d writes", cut)
		require.False(t, trial, "after %d writes", cut)

		if cut%7 == 0 {
			require.NoError(t, run(path, endless), "again after %d writes", cut)
			slot, _ = bootOnce(t, path)
			require.Equal(t, stick.SlotB, slot)
		}
	}
}

// TestAVersionInTheSlotIsNotStartedWhileItIsOverwritten although it was to be tried.
func TestAVersionInTheSlotIsNotStartedWhileItIsOverwritten(t *testing.T) {
	old, image := makeImage(t, "1.0.0", 70), makeImage(t, "1.1.0", 60)
	versionOf["1.0.0"], versionOf["1.1.0"] = old, image
	next, err := Open(image)
	require.NoError(t, err)
	defer next.Close()
	path := disktest.CopyImage(t, old)
	for _, e := range []stick.Environment{{Slot: stick.SlotA, Try: stick.SlotB}, {Slot: stick.SlotB}} {
		writes := endless
		s := openFile(t, path, &writes)
		require.NoError(t, s.SetEnvironment(e))
		writes = 3
		require.ErrorIs(t, Write(t.Context(), next, s, stick.SlotA, nil, func(string, int64, int64) {}), errCut)
		slot, _ := bootOnce(t, path)
		assert.Equal(t, stick.SlotA, slot)
	}
}

// newUpdater is the appliance of a stick in a file that runs from a slot.
func newUpdater(t *testing.T, path, version string, slot stick.Slot, trial bool, dir, bootID string) *Updater {
	open := func() (*Stick, func(), error) {
		writes := endless
		return openFile(t, path, &writes), func() {}, nil
	}
	return &Updater{
		Log: slog.New(slog.DiscardHandler), Dir: dir, Run: t.TempDir(), BootID: bootID,
		Boot: stick.BootInfo{Version: version, Slot: slot, Trial: trial}, Open: open, Read: open,
		Keys:   func() (signature.Keys, error) { return nil, nil },
		Owners: func() ([]*x509.Certificate, error) { return nil, nil },
	}
}

// TestAnUpdateInTheBackground says how far it is and how it ended; a second one waits.
func TestAnUpdateInTheBackground(t *testing.T) {
	old, image := makeImage(t, "1.0.0", 70), makeImage(t, "1.1.0", 60)
	u := newUpdater(t, disktest.CopyImage(t, old), "1.0.0", stick.SlotA, false, t.TempDir(), "boot 1")
	open, opened, goOn := u.Open, make(chan struct{}), make(chan struct{})
	u.Open = func() (*Stick, func(), error) {
		close(opened)
		<-goOn
		return open()
	}
	b := &Background{Updater: u}
	assert.ErrorContains(t, b.Begin(old+"-gone", Options{}), "open image")
	require.NoError(t, b.Begin(image, Options{}))
	<-opened
	assert.True(t, b.State().IsRunning)
	assert.ErrorContains(t, b.Begin(image, Options{}), "another update is being written")
	close(goOn)
	require.Eventually(t, func() bool { return !b.State().IsRunning }, 10*time.Minute, 10*time.Millisecond)
	assert.Empty(t, b.State().Error)
	status, err := u.Status()
	require.NoError(t, err)
	assert.Equal(t, Waiting, status.Outcome)

	u.Open = func() (*Stick, func(), error) { return nil, nil, errCut }
	require.NoError(t, b.Begin(image, Options{}))
	require.Eventually(t, func() bool { return b.State().Error == errCut.Error() }, 10*time.Minute, 10*time.Millisecond)
}

// TestTheLifeOfAnUpdate: written, tried, kept; the next one back into the first slot is not ready, and falls back.
func TestTheLifeOfAnUpdate(t *testing.T) {
	old, image := makeImage(t, "1.0.0", 70), makeImage(t, "1.1.0", 60)
	versionOf["1.0.0"], versionOf["1.1.0"] = old, image
	path, dir := disktest.CopyImage(t, old), t.TempDir()
	nothing := func(string, int64, int64) {}

	u := newUpdater(t, path, "1.0.0", stick.SlotA, false, dir, "boot 1")
	r, err := u.Preview(image, Options{})
	require.NoError(t, err)
	assert.Equal(t, []string{"1.0.0", "1.1.0", "b"}, []string{r.From, r.To, string(r.Slot)})
	assert.NoFileExists(t, filepath.Join(dir, FileName), "nothing is begun")
	_, err = newUpdater(t, path, "1.2.0", stick.SlotA, false, dir, "boot 1").Preview(image, Options{})
	assert.ErrorContains(t, err, "1.1.0 is older than the running 1.2.0")
	r, err = u.Update(t.Context(), image, Options{}, nothing)
	require.NoError(t, err)
	assert.Equal(t, "1.1.0", r.To)
	require.NoError(t, u.follow(true, ""))
	assert.Contains(t, u.Note(), "version 1.1.0 is written to slot b and is tried at the next start")
	lock, err := u.lock()
	require.NoError(t, err)
	_, err = u.Update(t.Context(), image, Options{}, nothing)
	assert.ErrorContains(t, err, "another update runs")
	lock.Close()

	slot, trial := bootOnce(t, path)
	u = newUpdater(t, path, "1.1.0", slot, trial, dir, "boot 2")
	require.NoError(t, u.follow(false, "links-up: waits"))
	assert.Contains(t, u.Note(), "version 1.1.0 is on trial in slot b")
	_, err = u.Update(t.Context(), old, Options{Downgrade: true}, nothing)
	assert.ErrorContains(t, err, "on trial itself")
	require.NoError(t, u.follow(true, "ready"))
	assert.Empty(t, u.Note())
	assert.FileExists(t, filepath.Join(u.Run, "kept"))
	slot, trial = bootOnce(t, path)
	assert.Equal(t, stick.SlotB, slot)
	assert.False(t, trial)

	u = newUpdater(t, path, "1.1.0", stick.SlotB, false, dir, "boot 3")
	_, err = u.Update(t.Context(), old, Options{}, nothing)
	assert.ErrorContains(t, err, "1.0.0 is older than the running 1.1.0")
	_, err = u.Update(t.Context(), old, Options{Downgrade: true}, nothing)
	require.NoError(t, err)
	slot, trial = bootOnce(t, path)
	assert.Equal(t, stick.SlotA, slot)
	u = newUpdater(t, path, "1.0.0", slot, trial, dir, "boot 4")
	require.NoError(t, u.follow(false, "control-plane: waits"))

	slot, trial = bootOnce(t, path)
	assert.Equal(t, stick.SlotB, slot, "it was not ready")
	u = newUpdater(t, path, "1.1.0", slot, trial, dir, "boot 5")
	require.NoError(t, u.follow(true, "ready"))
	assert.Equal(t, "version 1.0.0 was tried, was not ready in time, and 1.1.0 runs again; it had come to: control-plane: waits", u.Note())
	status, err := u.Status()
	require.NoError(t, err)
	assert.Equal(t, FellBack, status.Outcome)
	assert.Equal(t, map[stick.Slot]string{stick.SlotA: "1.0.0", stick.SlotB: "1.1.0"}, status.Slots)
}

func TestJudge(t *testing.T) {
	written := Attempt{Slot: stick.SlotB, BootID: "1", Written: true}
	for _, c := range []struct {
		name    string
		r       Attempt
		e       stick.Environment
		running stick.Slot
		bootID  string
		want    Outcome
	}{
		{"no update", Attempt{}, stick.Environment{Slot: "a"}, "a", "1", None},
		{"cut", Attempt{Slot: "b", BootID: "1"}, stick.Environment{Slot: "a"}, "a", "2", Cut},
		{"before the start", written, stick.Environment{Slot: "a", Try: "b"}, "a", "1", Waiting},
		{"GRUB cannot write", written, stick.Environment{Slot: "a", Try: "b"}, "a", "2", Refused},
		{"on trial", written, stick.Environment{Slot: "a"}, "b", "2", OnTrial},
		{"kept", written, stick.Environment{Slot: "b"}, "b", "2", Kept},
		{"fell back", written, stick.Environment{Slot: "a"}, "a", "3", FellBack},
		{"cut before the record, tried", Attempt{Slot: "b", BootID: "1", Tried: true}, stick.Environment{Slot: "a"}, "a", "3", FellBack},
	} {
		assert.Equal(t, c.want, Judge(c.r, c.e, c.running, c.bootID), c.name)
	}
}

func TestRefuse(t *testing.T) {
	for _, c := range []struct {
		running, version, want string
		downgrade              bool
	}{
		{running: "1.0.0", version: "1.0.0"},
		{running: "1.0.0-dev+aa", version: "1.0.0-dev+bb-dirty"},
		{running: "1.0.0-dev+aa", version: "1.0.0"},
		{running: "1.0.0", version: "1.0.0-dev+aa", want: "1.0.0-dev+aa is older than the running 1.0.0"},
		{running: "1.10.0", version: "1.9.0", want: "is older"},
		{running: "1.10.0", version: "1.9.0", downgrade: true},
		{running: "1.0.0", version: "newest", want: "cannot be told"},
		{running: "1.0.0", version: "newest", downgrade: true},
	} {
		err := Refuse(Running{Version: c.running, Slot: stick.SlotA}, c.version, c.downgrade)
		if c.want == "" {
			assert.NoError(t, err, c)
		} else {
			assert.ErrorContains(t, err, c.want, c)
		}
	}
}

// TestWhatIsNoImageIsRefused before anything is written.
func TestWhatIsNoImageIsRefused(t *testing.T) {
	stickPath := disktest.CopyImage(t, makeImage(t, "1.0.0", 70))
	before, err := os.ReadFile(stickPath)
	require.NoError(t, err)
	drop := func(name string) func(*disk.Stick) {
		return func(s *disk.Stick) {
			s.Slot = slices.DeleteFunc(s.Slot, func(f disk.File) bool { return f.Path == name })
		}
	}
	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(text, bytes.Repeat([]byte("text"), 1000), 0o600))
	damaged := makeImage(t, "1.1.0", 70)
	table := func(f *os.File) *gpt.Table {
		table, err := gpt.ReadPrimary(f)
		require.NoError(t, err)
		return table
	}
	f, err := os.OpenFile(damaged, os.O_RDWR, 0)
	require.NoError(t, err)
	root, _ := table(f).Find(stick.PartitionRootA)
	_, err = f.WriteAt([]byte("x"), root.Offset()+5000)
	require.NoError(t, errors.Join(err, f.Close()))
	for path, want := range map[string]string{
		text:       "is no image of Firstlight that can be updated to",
		"/nowhere": "open image: open /nowhere: no such file or directory",
		damaged:    "is damaged: block at byte 4096 of the root (data) and 0 more differ from their hashes; fetch it again",
		makeImage(t, "1.1.0", 70, drop(stick.SlotConfigName)): "there is no such file",
		makeImage(t, "1.1.0", 70, drop(stick.KernelName)):     "there is no such file",
		makeImage(t, "1.1.0", 700):                            "MiB in ROOT-B, which has 1: write the stick with `firstlight flash`, which keeps DATA",
	} {
		u := newUpdater(t, stickPath, "1.0.0", stick.SlotA, false, t.TempDir(), "1")
		_, err := u.Update(t.Context(), path, Options{}, func(string, int64, int64) {})
		assert.ErrorContains(t, err, want)
	}
	after, err := os.ReadFile(stickPath)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(before, after), "a refusal writes nothing")

	_, err = (&Updater{}).Update(t.Context(), text, Options{}, nil)
	assert.ErrorContains(t, err, "write it again with `firstlight flash`")
}
