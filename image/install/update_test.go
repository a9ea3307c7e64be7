package install

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/container"
	"firstlight.dev/firstlight/image/lab/process"
)

// rootIs is the version whose root is in place, and whole.
func (h *host) rootIs(roots ...Root) string {
	h.t.Helper()
	for _, r := range roots {
		if checkRoot(h.t.Context(), h.prefix+Dir+"/"+rootName, r.Hash) == nil {
			return r.Version
		}
	}
	return "none that is whole"
}

func (h *host) receipt() Receipt {
	h.t.Helper()
	r, err := h.installation().Receipt()
	require.NoError(h.t, err)
	return r
}

// boots starts the unit as the machine does after a power cut.
func (h *host) boots() (isTrial bool) {
	h.t.Helper()
	isTrial, err := h.installation().prepareStart()
	require.NoError(h.t, err)
	h.active = true
	return isTrial
}

// TestAnUpdateIsTriedOnceAndKept if it is ready; the receipt, the root and the files say the same then.
func TestAnUpdateIsTriedOnceAndKept(t *testing.T) {
	h := newHost(t)
	old, next := newRoot(t, "1"), newRoot(t, "2")
	h.install(old)
	thesis := h.prefix + Dir + "/" + dataDir + "/thesis"
	require.NoError(t, os.MkdirAll(h.prefix+Dir+"/"+dataDir, 0o755))
	require.NoError(t, os.WriteFile(thesis, []byte("kept"), 0o600))

	d := h.decide(next)
	require.Empty(t, d.Refusals)
	require.True(t, d.Update)
	require.NoError(t, h.installation().Install(t.Context(), d))
	assert.Equal(t, "2", h.rootIs(old, next))
	assert.Equal(t, "1", h.receipt().Version, "it is on trial")
	assert.Empty(t, h.decide(next).Steps, "the same command waits")
	assert.Contains(t, h.decide(newRoot(t, "3")).Refusals[0], "version 2, which is on trial, is installed already")
	assert.Contains(t, h.decide(old).Refusals[0], "version 2, which is on trial, is installed already")

	require.NoError(t, h.installation().keep())
	assert.Equal(t, "2", h.receipt().Version)
	assert.Nil(t, h.receipt().Trial)
	assert.NoFileExists(t, h.prefix+Dir+"/"+previousName)
	assert.FileExists(t, thesis)
	assert.False(t, h.boots())
	assert.Equal(t, "2", h.rootIs(old, next))
	require.NoError(t, h.installation().AwaitUpdate(t.Context(), Order{Root: next}))
	d = h.decide(next)
	assert.False(t, d.Update)
	assert.Empty(t, d.Steps)
}

// TestAPowerCutAtAnyStepOfAnUpdate leaves a whole root, the old one or the new one. The next start is of the old one unless
// the new one was never tried, and the same command does what is left.
func TestAPowerCutAtAnyStepOfAnUpdate(t *testing.T) {
	old, next := newRoot(t, "1"), newRoot(t, "2")
	h := newHost(t)
	h.install(old)
	require.NoError(t, os.WriteFile(h.program, []byte("the program of version 2"), 0o755))
	steps := h.decide(next).Steps
	require.Len(t, steps, 4)
	for _, step := range slices.Concat(steps, []string{""}) {
		h.until(step, func() error { return h.installation().Install(t.Context(), h.decide(next)) })
		whole := h.rootIs(old, next)
		assert.Equal(t, map[bool]string{true: "2", false: "1"}[step == ""], whole, "cut before: %s", step)
		isTried := h.boots()
		switch {
		case h.receipt().Failed != nil:
			assert.Equal(t, "2", h.receipt().Failed.Version.Version)
			assert.Equal(t, "1", h.rootIs(old, next), "cut after: %s", step)
		case isTried:
			assert.Equal(t, "2", h.rootIs(old, next))
			require.NoError(t, h.installation().endTrial("the test says so"))
		}
		assert.Equal(t, "1", h.rootIs(old, next))
		assert.Equal(t, "1", h.receipt().Version)
		assert.Nil(t, h.receipt().Trial)
	}
	assert.ErrorContains(t, h.installation().AwaitUpdate(t.Context(), Order{Root: next}),
		"version 2 was tried and does not stay: its start ended before it was ready: a restart, a power cut, or it broke; "+
			"version 1 runs again")

	require.NoError(t, h.installation().Install(t.Context(), h.decide(next)))
	require.NoError(t, h.installation().keep())
	assert.Equal(t, "2", h.rootIs(old, next))
	before := h.files()
	require.NoError(t, h.installation().Uninstall(false))
	assert.Less(t, len(h.files()), len(before))
	assert.NoDirExists(t, h.prefix+Dir)
}

// TestACutBetweenTwoNames of what the unit does to the files: every state that may be left is continued.
func TestACutBetweenTwoNames(t *testing.T) {
	for _, c := range []struct {
		isTrial, hasNext, hasPrevious bool
		does                          startAction
	}{
		{false, false, false, startAsIs},
		{false, true, false, startAsIs}, // the command copies it at this moment
		{false, false, true, startRelease},
		{false, true, true, startRelease},
		{true, true, false, startTrial},
		{true, true, true, startTrial}, // cut before the new root had its name
		{true, false, true, startGoBack},
		{true, false, false, startForget}, // cut before the receipt said that the root before is in place
	} {
		assert.Equal(t, c.does, decideStart(c.isTrial, c.hasNext, c.hasPrevious), "%+v", c)
	}
}

// TestACutBetweenTwoNamesLeavesAWholeRoot: each state that a cut leaves of what the unit does is made of real files. The
// start after it, and the one after that, are of a whole root, and the receipt says which.
func TestACutBetweenTwoNamesLeavesAWholeRoot(t *testing.T) {
	old, next := newRoot(t, "1"), newRoot(t, "2")
	for _, c := range []struct {
		name  string
		cut   func(h *host, root, next, previous string) error // what was done until then
		boots []string                                         // versions of the next two starts
	}{
		{"before the trial", func(*host, string, string, string) error { return nil }, []string{"2", "1"}},
		{"the root before is linked", func(_ *host, root, _, previous string) error {
			return os.Link(root, previous)
		}, []string{"2", "1"}},
		{"the new root has the name", func(h *host, _, _, _ string) error {
			_, err := h.installation().prepareStart()
			return err
		}, []string{"1", "1"}},
		{"the root before has its name again", func(h *host, root, _, previous string) error {
			_, err := h.installation().prepareStart()
			return errors.Join(err, os.Rename(previous, root))
		}, []string{"1", "1"}},
		{"the receipt says that it is kept", func(h *host, root, _, previous string) error {
			_, err := h.installation().prepareStart()
			aside := previous + ".aside"
			return errors.Join(err, os.Link(previous, aside), h.installation().keep(), os.Rename(aside, previous))
		}, []string{"2", "2"}},
	} {
		h := newHost(t)
		h.install(old)
		h.until("restart the appliance", func() error { return h.installation().Install(t.Context(), h.decide(next)) })
		dir := h.prefix + Dir + "/"
		require.NoError(t, c.cut(h, dir+rootName, dir+nextName, dir+previousName), c.name)

		for _, want := range c.boots {
			isTrial := h.boots()
			assert.Equal(t, want, h.rootIs(old, next), c.name)
			r := h.receipt()
			assert.Equal(t, isTrial, r.Trial != nil, c.name)
			if !isTrial {
				assert.Equal(t, want, r.Version, c.name)
			}
		}
		assert.False(t, h.boots(), c.name)
		require.NoError(t, h.installation().Install(t.Context(), h.decide(next)), "again after: %s", c.name)
		require.NoError(t, h.installation().keep())
		assert.Equal(t, "2", h.rootIs(old, next), c.name)
		assert.Equal(t, "2", h.receipt().Version, c.name)
	}
}

// TestADamagedImageIsNotTried: the installation stays as it is.
func TestADamagedImageIsNotTried(t *testing.T) {
	h := newHost(t)
	old, next := newRoot(t, "1"), newRoot(t, "2")
	h.install(old)
	next.content.(*memory).bytes[5000] ^= 1
	assert.ErrorContains(t, h.installation().Install(t.Context(), h.decide(next)), "the image is not sound")
	assert.NoFileExists(t, h.prefix+Dir+"/"+nextName)
	assert.Nil(t, h.receipt().Trial)
	assert.False(t, h.boots())
	assert.Equal(t, "1", h.rootIs(old))
}

// TestATrialThatEndsIsAFailure, and one whose unit is stopped is decided by the next start.
func TestATrialThatEndsIsAFailure(t *testing.T) {
	h := newHost(t)
	h.install(newRoot(t, "1"))
	log := slogDiscard()
	ended := startChild(t, "true")
	<-ended.Done()
	assert.Contains(t, h.installation().watchTrial(t.Context(), ended, log), "it ended before it was ready")

	lives := startChild(t, "sleep", "infinity")
	defer lives.Kill()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.Empty(t, h.installation().watchTrial(ctx, lives, log))
}

func TestUpdatesAreRefusedWithWhatToDo(t *testing.T) {
	of := func(version string, mib int64) Order { return Order{Root: Root{Version: version, Bytes: mib << 20}} }
	for _, c := range []struct {
		machine Machine
		receipt Receipt
		order   Order
		says    string
	}{
		{order: of("1.10.0", 100)},
		{order: of("1.11.0", 100)},
		{machine: Machine{OtherProgram: true}, receipt: Receipt{OwnProgram: true}, order: of("2.0.0", 100)},
		{
			order: of("1.9.0", 100),
			says: "1.9.0 is older than the running 1.10.0, which may have changed what is on DATA; " +
				"--downgrade takes it all the same",
		},
		{order: of("newest", 100), says: "cannot be told; --downgrade takes it all the same"},
		{order: Order{Root: of("1.9.0", 100).Root, Downgrade: true}},
		{order: of("1.9.0", 100), receipt: Receipt{Trial: &Version{Version: "1.9.0"}}}, // someone asked for it
	} {
		c.machine.DiskMiB = 2 * spareMiB
		c.receipt.Version = "1.10.0"
		got := strings.Join(updateRefusals(c.machine, c.receipt, c.order), "\n")
		assert.Contains(t, got, c.says)
		assert.Equal(t, c.says == "", got == "")
	}
	assert.Contains(t, updateRefusals(Machine{Host: container.Host{DiskMiB: 600}}, Receipt{Version: "1", OwnProgram: true}, of("1", 559))[0],
		"600 MiB are free below /var/lib/firstlight, 1071 are needed")
	assert.Empty(t, updateRefusals(Machine{Host: container.Host{DiskMiB: 1}}, Receipt{OwnProgram: true, Trial: &Version{}}, of("1", 559)), "it is copied")
}

func startChild(t *testing.T, words ...string) *process.Child {
	t.Helper()
	child, err := process.Start(exec.Command(words[0], words[1:]...))
	require.NoError(t, err)
	return child
}

func slogDiscard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// TestARootOnTrialIsNotTheOneBefore: a second command that copied the new root as well has the unit try it again.
func TestARootOnTrialIsNotTheOneBefore(t *testing.T) {
	h := newHost(t)
	old, next := newRoot(t, "1"), newRoot(t, "2")
	h.install(old)
	first, second := h.decide(next), h.decide(next)
	require.NoError(t, h.installation().Install(t.Context(), first))
	require.NoError(t, h.installation().Install(t.Context(), second))
	require.NoError(t, h.installation().endTrial("the test says so"))
	assert.Equal(t, "1", h.rootIs(old, next))

	// What a kept root left when it was cut off is not taken for the root before the next one.
	require.NoError(t, h.installation().Install(t.Context(), h.decide(next)))
	require.NoError(t, h.installation().keep())
	require.NoError(t, copyRoot(t.Context(), old, h.prefix+Dir+"/"+previousName))
	third := newRoot(t, "3")
	require.NoError(t, h.installation().Install(t.Context(), h.decide(third)))
	require.NoError(t, h.installation().endTrial("the test says so"))
	assert.Equal(t, "2", h.rootIs(old, next, third))
}

func TestTwoCommandsAreNotRunAtOnce(t *testing.T) {
	h := newHost(t)
	h.install(newRoot(t, "1"))
	unlock, err := h.installation().Lock()
	require.NoError(t, err)
	_, err = h.installation().Lock()
	assert.ErrorContains(t, err, "another command installs, updates or uninstalls")
	before := h.files()
	assert.ErrorContains(t, h.installation().Uninstall(false), "another command")
	assert.Equal(t, before, h.files())
	unlock()
	require.NoError(t, h.installation().Uninstall(false))
}

// TestWhatAnInterruptedUpdateCopiedIsNotCountedTwice: where there is room for one more root, the same command continues.
func TestWhatAnInterruptedUpdateCopiedIsNotCountedTwice(t *testing.T) {
	h := newHost(t)
	h.install(newRoot(t, "1"))
	for _, path := range []string{nextName, "." + nextName + ".new"} {
		require.NoError(t, os.WriteFile(h.prefix+Dir+"/"+path, make([]byte, 3<<20), 0o600))
	}
	assert.Equal(t, 6, h.installation().nextMiB())

	next := newRoot(t, "2")
	require.NoError(t, h.installation().Install(t.Context(), h.decide(next)))
	assert.Equal(t, "2", h.rootIs(next), "what was there is of another version")
	assert.Zero(t, h.installation().nextMiB())
}
