package stickupdate

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/signature"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/bootchain"
)

// Updater updates this appliance and says what became of the last update.
type Updater struct {
	Log    *slog.Logger
	Dir    string         // DATA
	Run    string         // tmpfs: the lock, and the file that says that the version is kept
	Boot   stick.BootInfo // of this boot; without a slot if the system was not started from a stick
	BootID string

	// Keys are those that sign the images which are taken; none if any image is. An error says that no one knows.
	Keys func() (signature.Keys, error)

	// Owners are the certificates of which one must have signed what GRUB starts; none if GRUB starts any image.
	Owners func() ([]*x509.Certificate, error)

	// Open opens the stick for this updater alone, Read beside an update that runs; the function closes it.
	Open, Read func() (*Stick, func(), error)

	judged Attempt // of Follow

	mu   sync.Mutex
	note string
}

// New is the updater of the appliance that this program runs on. keys are as in Updater.
func New(log *slog.Logger, bootID string, keys func() (signature.Keys, error)) *Updater {
	boot, _ := stick.Load[stick.BootInfo](stick.BootInfoFile) // a system that was started otherwise has no slot
	return &Updater{
		Log: log, Dir: stick.DataDir, Run: stick.RunDir, Boot: boot, BootID: bootID, Keys: keys,
		Owners: func() ([]*x509.Certificate, error) { return bootOwners(boot, bootchain.Variables) },
		Open:   func() (*Stick, func(), error) { return OpenStick(boot) },
		Read:   func() (*Stick, func(), error) { return ReadStick(boot) },
	}
}

// runningVersion is what runs now.
func (u *Updater) runningVersion() Running {
	_, err := os.Stat(u.keptFile())
	return Running{Version: u.Boot.Version, Slot: u.Boot.Slot, Trial: u.Boot.Trial && err != nil}
}

func (u *Updater) keptFile() string { return filepath.Join(u.Run, filepath.Base(stick.KeptFile)) }

// lock keeps two updates apart; it ends with the process. It is one of fcntl(2), which can be asked for without
// being taken.
func (u *Updater) lock() (*os.File, error) {
	f, err := u.openLock()
	if err != nil {
		return nil, err
	}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		f.Close()
		return nil, errors.New("another update runs; wait for it")
	}
	return f, nil
}

// isLocked reports whether an update runs.
func (u *Updater) isLocked() bool {
	f, err := u.openLock()
	if err != nil {
		return false
	}
	defer f.Close()

	lock := unix.Flock_t{Type: unix.F_WRLCK}
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock) == nil && lock.Type != unix.F_UNLCK
}

func (u *Updater) openLock() (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(u.Run, "update.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the slots: %w", err)
	}
	return f, nil
}

// Options say what else an update may do.
type Options struct {
	Downgrade bool   // take an older version as well
	Signature string // file with the image's signature; "": next to the image, or in it
	Unsigned  bool   // take an image that no key of the site's has signed
}

// Update writes an image into the other slot. Nodes are not touched by it: all that is written is that slot, a sector
// of the boot loader's memory, and a record on DATA.
func (u *Updater) Update(ctx context.Context, path string, o Options, progress Progress) (Attempt, error) {
	if u.Boot.Slot == "" {
		return Attempt{}, errOneSlot
	}
	lock, err := u.lock()
	if err != nil {
		return Attempt{}, err
	}
	defer lock.Close()

	image, t, err := u.openTrusted(path, o)
	if err != nil {
		return Attempt{}, err
	}
	defer image.Close()
	running := u.runningVersion()

	s, closeStick, err := u.Open()
	if err != nil {
		return Attempt{}, err
	}
	defer closeStick()
	if err := checkRoom(image, s.Slots[running.Slot.Other()], running.Slot.Other()); err != nil {
		return Attempt{}, err
	}
	if err := image.Check(ctx); err != nil {
		return Attempt{}, err
	}

	r := u.newAttempt(image, t)
	if err := r.Save(u.Dir); err != nil {
		return r, err
	}
	if err := Write(ctx, image, s, running.Slot, t.text, progress); err != nil {
		return r, err
	}

	r.Written = true
	return r, r.Save(u.Dir)
}

// newAttempt is an update to an image that is about to be written.
func (u *Updater) newAttempt(image *Image, t trust) Attempt {
	running := u.runningVersion()
	return Attempt{
		From:     running.Version,
		To:       image.Config.Version,
		Slot:     running.Slot.Other(),
		Begun:    time.Now().UTC(),
		BootID:   u.BootID,
		SignedBy: t.by,
		Unsigned: t.why,
	}
}

// openTrusted opens an image that this appliance would take: its version, what this machine starts, and whose word it is
// on. Its content is not read yet.
func (u *Updater) openTrusted(path string, o Options) (*Image, trust, error) {
	if u.Boot.Slot == "" {
		return nil, trust{}, errOneSlot
	}
	image, err := Open(path)
	if err != nil {
		return nil, trust{}, err
	}
	t, err := trust{}, Refuse(u.runningVersion(), image.Config.Version, o.Downgrade)
	if err == nil {
		err = u.checkStarts(image)
	}
	if err == nil {
		t, err = u.checkTrust(image, o)
	}
	if err != nil {
		return nil, trust{}, errors.Join(err, image.Close())
	}
	return image, t, nil
}

// Preview says what Update would do with an image, and changes nothing. That its content is whole is checked by Update.
func (u *Updater) Preview(path string, o Options) (Attempt, error) {
	image, t, err := u.openTrusted(path, o)
	if err != nil {
		return Attempt{}, err
	}
	defer image.Close()
	return u.newAttempt(image, t), nil
}

// Status is what the slots hold and what became of the last update.
type Status struct {
	Running stick.Slot            `json:"running"`
	Trial   bool                  `json:"trial,omitempty"` // and is not kept yet
	Starts  stick.Slot            `json:"starts"`          // at the next start
	Slots   map[stick.Slot]string `json:"slots"`           // their versions, "" for an empty one
	Last    Attempt               `json:"last,omitzero"`
	Outcome Outcome               `json:"outcome,omitempty"` // of the last update
	Text    string                `json:"text,omitempty"`    // the same in a sentence
}

// Status reads the stick.
func (u *Updater) Status() (Status, error) {
	if u.Boot.Slot == "" {
		return Status{}, errOneSlot
	}
	s, closeStick, err := u.Read()
	if err != nil {
		return Status{}, err
	}
	defer closeStick()
	e, err := s.Environment()
	if err != nil {
		return Status{}, err
	}
	r, err := Load(u.Dir)
	if err != nil {
		return Status{}, err
	}

	running := u.runningVersion()
	st := Status{Running: running.Slot, Trial: running.Trial, Starts: e.Slot, Slots: map[stick.Slot]string{}, Last: r}
	if e.Try != "" {
		st.Starts = e.Try
	}
	for which := range s.Slots {
		st.Slots[which] = s.Version(which)
	}
	st.Outcome = Judge(r, e, running.Slot, u.BootID)
	if u.isLocked() {
		st.Outcome = Writing
	}
	st.Text = r.Explain(st.Outcome)
	return st, nil
}

// Note is what a person should know of the last update; "" if nothing, as when it is kept.
func (u *Updater) Note() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.note
}

func (u *Updater) setNote(text string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.note = text
}

// lookEvery is how often a version on trial is looked at.
const lookEvery = 5 * time.Second

// Follow keeps a version on trial as soon as the appliance is ready, and says what became of an update. Of a version
// that does not come to Ready, the record keeps what it waited for. data tells whether DATA is mounted; look gives
// whether the appliance is ready, and what it does or waits for.
func (u *Updater) Follow(ctx context.Context, data func() bool, look func() (ready bool, summary string)) error {
	if u.Boot.Slot == "" {
		<-ctx.Done()
		return nil
	}

	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if data() {
			if err := u.follow(look()); err != nil {
				u.setNote("update: " + err.Error())
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// follow looks once.
func (u *Updater) follow(ready bool, summary string) error {
	if u.runningVersion().Trial {
		if ready {
			return u.makeDefault()
		}
		if err := u.saveProgress(summary); err != nil {
			u.Log.Warn("progress of the trial not recorded", "error", err)
		}
	}

	r, err := Load(u.Dir)
	if err != nil || r == u.judged {
		return err // what becomes of it is decided at a start, or by an update, which writes the record
	}
	st, err := u.Status()
	if err != nil {
		return err
	}
	if st.Outcome != Writing {
		u.judged = r
	}
	if st.Outcome == Kept && r.Unsigned == "" {
		st.Text = ""
	}
	u.setNote(st.Text)
	return nil
}

// makeDefault has the stick start the running slot from now on.
func (u *Updater) makeDefault() error {
	s, closeStick, err := u.Open()
	if err != nil {
		return err
	}
	defer closeStick()
	if err := s.SetEnvironment(stick.Environment{Slot: u.Boot.Slot}); err != nil {
		return fmt.Errorf("keep version %s: %w", u.Boot.Version, err)
	}
	if err := os.WriteFile(u.keptFile(), nil, 0o644); err != nil {
		return fmt.Errorf("keep version %s: %w", u.Boot.Version, err)
	}

	u.Log.Info("version kept", "version", u.Boot.Version, "slot", u.Boot.Slot)
	u.setNote("")
	u.judged = Attempt{} // what is to be said of a version that is kept
	return nil
}

// saveProgress records what the version on trial waits for, if that is new.
func (u *Updater) saveProgress(summary string) error {
	r, err := Load(u.Dir)
	if err != nil || r.Slot != u.Boot.Slot || r.Tried && r.Reached == summary {
		return err
	}
	r.Tried, r.Reached = true, summary
	return r.Save(u.Dir)
}
