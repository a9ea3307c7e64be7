package stickupdate

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/fat"
	"firstlight.dev/firstlight/assets/secureboot"
	"firstlight.dev/firstlight/assets/signature"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/image/disk/disktest"
)

// What an appliance does, as drive.begin is told.
const (
	phaseUpdate   = "update"
	phaseWritten  = "written, no restart"
	phaseBoot     = "boot of the trial"
	phaseTrial    = "trial"
	phaseKeep     = "keep"
	phaseKept     = "kept"
	phaseFallBack = "fall back"
)

// phases are those in which the power is cut, as drive.phase names them, and what may be started after it: the version
// before, the next one on trial, or the next one as kept.
var phases = []struct {
	name                string
	before, trial, kept bool
}{
	{"forget the slot", true, false, false},
	{"write the slot", true, false, false},
	{"read the slot back", true, false, false},
	{"choose the trial", true, true, false},
	{"record", true, true, false},
	{phaseWritten, false, true, false},
	{phaseBoot, true, true, false},
	{phaseTrial, true, false, false},
	{phaseKeep, true, false, true},
	{phaseKept, false, false, true},
	{phaseFallBack, true, false, false},
}

// life is that of an appliance from start to start, with three versions for its two slots.
type life struct {
	t      *testing.T
	drive  *drive
	dir    string // DATA
	images map[string]*Image
	key    signature.PrivateKey // of the images
	owners []*x509.Certificate  // whose GRUB starts the slots; none: anyone's

	u     *Updater // of the version that runs
	boots int
}

// newLife starts a stick that was written with the first image; all are signed for updates.
func newLife(t *testing.T, random *rand.Rand, owners []*x509.Certificate, paths ...string) *life {
	t.Helper()
	l := &life{t: t, dir: t.TempDir(), images: map[string]*Image{}, key: newKey(t), owners: owners}
	for _, path := range paths {
		signImage(t, l.key, path)
		i, err := Open(path)
		require.NoError(t, err)
		t.Cleanup(func() { i.Close() })
		l.images[i.Config.Version] = i
	}
	l.drive = newDrive(t, disktest.CopyImage(t, paths[0]), l.dir, random)
	require.NoError(t, l.start())
	return l
}

// start does what grub.cfg does with its memory, and mounts DATA. What is started must be whole.
func (l *life) start() error {
	l.drive.running = ""
	if !l.drive.isOff && l.u != nil {
		if err := l.drive.flush(""); err != nil { // as systemd does before it restarts the machine
			return err
		}
	}
	esp := l.drive.stick().ESP
	volume, err := fat.Open(esp)
	if err != nil {
		return fmt.Errorf("GRUB opens the ESP: %w", err)
	}
	block, err := volume.ReadFile(stick.EnvironmentPath)
	if err != nil {
		return fmt.Errorf("GRUB reads its memory: %w", err)
	}
	e, err := stick.ParseEnvironment(block)
	if err != nil {
		return fmt.Errorf("GRUB reads its memory: %w", err)
	}

	slot := e.Slot
	if e.Try != "" {
		slot = e.Try
		block = append(bytes.Replace(block, []byte("try="+e.Try+"\n"), []byte("try=\n"), 1), '#')
		if _, err := esp.WriteAt(block, l.drive.memory); err != nil {
			return fmt.Errorf("GRUB takes the trial out: %w", err)
		}
	}
	if err := esp.Sync(); err != nil { // as the journal of DATA does, with all that the drive has
		return fmt.Errorf("DATA is mounted: %w", err)
	}

	version, err := l.checkStarted(slot)
	if err != nil {
		return err
	}
	l.boots++
	l.u = newUpdater(l.t, "", version, slot, e.Try != "", l.dir, strconv.Itoa(l.boots))
	l.u.Open = func() (*Stick, func(), error) { return l.drive.stick(), func() {}, nil }
	l.u.Read = l.u.Open
	l.u.Keys = func() (signature.Keys, error) { return signature.Keys{l.key.Public()}, nil }
	l.drive.running = slot
	return nil
}

// checkStarted checks all that GRUB, the kernel and firstlight-init read of a slot, on the medium.
func (l *life) checkStarted(slot stick.Slot) (version string, err error) {
	boot := l.drive.medium(slot.Boot())
	volume, err := fat.Open(boot)
	if err != nil {
		return "", fmt.Errorf("slot %s is started, and %w", slot, err)
	}
	config, err := readConfig(volume)
	if err != nil {
		return "", fmt.Errorf("slot %s is started, and %w", slot, err)
	}
	want, ok := l.images[config.Version]
	if !ok {
		return "", fmt.Errorf("slot %s is started, and has version %q", slot, config.Version)
	}
	root := io.NewSectionReader(l.drive.medium(slot.Root()), 0, want.root.Size())
	if err := checkSlot(l.t.Context(), boot, root, want); err != nil {
		return "", fmt.Errorf("slot %s is started, and not whole: %w", slot, err)
	}
	if len(l.owners) > 0 {
		if err := secureboot.CheckSlot(volume.ReadFile, l.owners); err != nil {
			return "", fmt.Errorf("slot %s is started, and refused: %w", slot, err)
		}
	}
	return config.Version, nil
}

// next is a version that is in neither slot, so that each byte of an update matters.
func (l *life) next() string {
	there := ""
	if volume, err := fat.Open(l.drive.medium(l.u.Boot.Slot.Other().Boot())); err == nil {
		config, _ := readConfig(volume) // what is torn is none
		there = config.Version
	}
	for _, version := range slices.Sorted(maps.Keys(l.images)) {
		if version != l.u.Boot.Version && version != there {
			return version
		}
	}
	return ""
}

func (l *life) update(version string) error {
	o := Options{Downgrade: true}
	_, err := l.u.Update(l.t.Context(), l.images[version].Path, o, func(string, int64, int64) {})
	return err
}

// live updates to a version, which is tried, and kept or not.
func (l *life) live(version string, isReady bool) error {
	l.drive.begin(phaseUpdate)
	if err := l.update(version); err != nil {
		return err
	}
	l.drive.begin(phaseWritten)
	if _, err := l.u.Status(); err != nil {
		return err
	}
	l.drive.begin(phaseBoot)
	if err := l.start(); err != nil {
		return err
	}
	l.drive.begin(phaseTrial)
	if err := l.u.follow(false, "control-plane: waits"); err != nil {
		return err
	}
	if isReady {
		l.drive.begin(phaseKeep)
		if err := l.u.follow(true, "ready"); err != nil {
			return err
		}
		l.drive.begin(phaseKept)
		return l.u.follow(true, "ready")
	}
	l.drive.begin(phaseFallBack)
	if err := l.start(); err != nil {
		return err
	}
	return l.u.follow(true, "ready")
}

// plan is a life without a cut: the moments at which the power could be.
func (l *life) plan(isReady bool) ([]moment, error) {
	l.drive.seen = nil
	err := l.live(l.next(), isReady)
	return l.drive.seen, err
}

// cut has the power cut before an operation of a life, and starts the appliance. The error says what was lost.
func (l *life) cut(operation int, isReady bool, how losses) (lost int64, err error) {
	before, next := l.u.Boot.Version, l.next()
	l.drive.left = operation
	err = l.live(next, isReady)
	if !l.drive.isOff {
		return 0, fmt.Errorf("the power was not cut: %w", err)
	}
	if lost, err = l.drive.switchOn(how); err != nil {
		return lost, err
	}
	if err := l.start(); err != nil {
		return lost, err
	}

	for _, phase := range phases {
		if phase.name != l.drive.cutAt.phase {
			continue
		}
		isBefore, isTrial := l.u.Boot.Version == before, l.u.Boot.Trial
		isAsItMustBe := isBefore && !isTrial && phase.before || !isBefore && isTrial && phase.trial ||
			!isBefore && !isTrial && phase.kept
		if !isAsItMustBe {
			return lost, fmt.Errorf("%s is started (trial: %t) after %s", l.u.Boot.Version, isTrial, before)
		}
	}
	if _, err := Load(l.dir); err != nil {
		return lost, err
	}
	if _, err := l.u.Status(); err != nil {
		return lost, err
	}
	return lost, l.end(next)
}

// end runs the update again until the version is kept.
func (l *life) end(version string) error {
	for l.u.Boot.Version != version || l.u.runningVersion().Trial {
		if l.u.Boot.Version == version {
			if err := l.u.follow(true, "ready"); err != nil {
				return err
			}
			continue
		}
		if err := errors.Join(l.update(version), l.start()); err != nil {
			return err
		}
	}
	if err := l.start(); err != nil {
		return err
	}
	status, err := l.u.Status()
	if err != nil {
		return err
	}
	if l.u.Boot.Version != version || l.u.Boot.Trial || status.Last.To != version || status.Outcome != Kept {
		return fmt.Errorf("at the end %s runs (trial: %t): %s", l.u.Boot.Version, l.u.Boot.Trial, status.Text)
	}
	if len(l.drive.strays) > 0 {
		return fmt.Errorf("written to %s", l.drive.strays)
	}
	return nil
}

// cutIn is one more cut at a random moment of a phase, half of them at moments where something is not on the medium.
func (l *life) cutIn(phase string, onlyDirty bool, how losses, plans map[bool][]moment) (int64, error) {
	isReady := phase != phaseFallBack
	var at, dirty []int
	for i, m := range plans[isReady] {
		if m.phase == phase {
			at = append(at, i)
			if m.isDirty {
				dirty = append(dirty, i)
			}
		}
	}
	if onlyDirty && len(dirty) > 0 {
		at = dirty
	}
	return l.cut(at[l.drive.random.IntN(len(at))], isReady, how)
}

// cutAtRandom cuts the power n times, in each phase in turn, and prints what came of it.
func (l *life) cutAtRandom(n int) {
	t := l.t
	plans := map[bool][]moment{}
	for _, isReady := range []bool{false, true} {
		plan, err := l.plan(isReady)
		require.NoError(t, err)
		plans[isReady] = plan
	}
	cuts, gone, failed := map[string]map[losses]int{}, map[string]int64{}, 0
	for i := range n {
		phase, how := phases[i%len(phases)].name, []losses{allIsLost, lastIsTorn, someAreThere}[i/len(phases)%3]
		lost, err := l.cutIn(phase, i%2 == 0, how, plans)
		at := l.drive.cutAt.phase
		if !assert.NoError(t, err, "cut %d, in %q, what was not synced is %s", i, at, how) {
			failed++
			break // what is on the stick now says nothing about the next cut
		}
		if cuts[at] == nil {
			cuts[at] = map[losses]int{}
		}
		cuts[at][how]++
		gone[at] += lost
	}

	t.Logf("%-20s %5s %5s %9s  %s", "cut while", "lost", "torn", "scattered", "bytes that were written and gone")
	for _, phase := range phases {
		c := cuts[phase.name]
		assert.True(t, failed > 0 || len(c) > 0, "no cut while: %s", phase.name)
		t.Logf("%-20s %5d %5d %9d  %d", phase.name, c[allIsLost], c[lastIsTorn], c[someAreThere], gone[phase.name])
	}
	t.Logf("%d cuts, %d operations in an update, %d starts; %d lost", n, len(plans[true]), l.boots, failed)
}

// seed is the one of FIRSTLIGHT_SEED, or a new one; it is printed.
func seed(t *testing.T) *rand.Rand {
	t.Helper()
	n := uint64(time.Now().UnixNano())
	if text := os.Getenv("FIRSTLIGHT_SEED"); text != "" {
		var err error
		n, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("FIRSTLIGHT_SEED=%d", n)
	return rand.New(rand.NewPCG(n, 1))
}

// TestThirtyPowerCuts at random moments of the life of an update: no cut leaves a stick that starts anything but a
// whole version, a record that cannot be read, or an update that does not end when it is run again.
func TestThirtyPowerCuts(t *testing.T) {
	l := newLife(t, seed(t), nil, makeImages(t)...)
	l.cutAtRandom(30)
}

func makeImages(t *testing.T) (paths []string) {
	t.Helper()
	for _, version := range []string{"1.0.0", "1.1.0", "1.2.0"} {
		paths = append(paths, makeImage(t, version, 700, withPlace))
	}
	return paths
}

// TestADriveThatLiesIsFound: what is asked for above does not hold on a drive that has not synced what it says.
func TestADriveThatLiesIsFound(t *testing.T) {
	l := newLife(t, seed(t), nil, makeImages(t)...)
	plan, err := l.plan(true)
	require.NoError(t, err)
	l.drive.isLiar = true
	last := 0 // before the machine restarts
	for i, m := range plan {
		if m.phase == "choose the trial" {
			last = i
		}
	}
	for range 30 { // in half of them the sector is lost that names the slot
		if _, err = l.cut(last, true, someAreThere); err != nil {
			break
		}
	}
	require.ErrorContains(t, err, "is started, and")
}
