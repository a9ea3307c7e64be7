package install

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/image/lab/container"
	"firstlight.dev/firstlight/image/lab/process"
	"firstlight.dev/firstlight/image/lab/try"
)

// Files of an update, in Dir, besides the root.
const (
	nextName     = "root.next.img"     // the new root, before its first start
	previousName = "root.previous.img" // the one before, while the new one is on trial
)

// TrialPatience is how long an appliance may take to come to Ready with a new root, as on a stick.
const TrialPatience = 30 * time.Minute

// Version is a version of the appliance that is or was installed.
type Version struct {
	Version  string `json:"version"` // of the image
	RootHash string `json:"rootHash"`
}

// Failure is an update that was taken back.
type Failure struct {
	Version
	Reason string `json:"reason"` // for people
}

// updateSteps replaces the root of a complete installation, in this order: the new root is whole before the receipt says
// that it is to be tried, and the unit tries it when it starts.
func (i Installation) updateSteps(o Order, r Receipt) []step {
	all := i.steps(o, r)
	copied := all[3:5] // the program and the unit
	next := step{
		does: fmt.Sprintf("copy the root of version %s, %d MiB, to %s", o.Root.Version, o.Root.Bytes>>20,
			filepath.Join(Dir, nextName)),
		done: func(ctx context.Context) (bool, error) {
			if i.isOnTrial(o) {
				return true, nil
			}
			err := checkRoot(ctx, i.inDir(nextName), o.Root.Hash)
			if errors.Is(err, os.ErrNotExist) || errors.Is(err, errDamaged) {
				return false, nil
			}
			return err == nil, err
		},
		do: func(ctx context.Context) error {
			if err := removeFile(i.inDir(nextName)); err != nil { // of another version: there is room for one
				return err
			}
			return copyRoot(ctx, o.Root, i.inDir(nextName))
		},
	}

	return append(append([]step{next}, copied...), step{
		does: fmt.Sprintf("write down that version %s is to be tried", o.Root.Version),
		done: func(context.Context) (bool, error) {
			now, err := i.Receipt()
			return now.Trial != nil && now.Trial.RootHash == o.Root.Hash, err
		},
		do: func(context.Context) error {
			now, err := i.Receipt()
			if err != nil {
				return err
			}
			if now.Trial == nil { // what an earlier trial left is not the root before this one
				if err := removeFile(i.inDir(previousName)); err != nil {
					return err
				}
			}
			now.Trial, now.Failed = &Version{o.Root.Version, o.Root.Hash}, nil
			return i.writeReceipt(now)
		},
	}, step{
		does: "restart the appliance, which tries it",
		done: func(context.Context) (bool, error) { return i.isOnTrial(o), nil },
		do: func(context.Context) error {
			if err := i.Systemctl("daemon-reload"); err != nil {
				return err
			}
			err := i.Systemctl("restart", UnitName)
			if err != nil && !exists(i.inDir(nextName)) {
				return nil // it was tried, and the receipt says or will say what became of it
			}
			return err
		},
	})
}

// nextMiB is how much of the disk the copy of an update has that was interrupted.
func (i Installation) nextMiB() (mib int) {
	for _, path := range []string{i.inDir(nextName), temporary(i.inDir(nextName))} {
		var s unix.Stat_t
		if unix.Lstat(path, &s) == nil {
			mib += int(s.Blocks * 512 >> 20) // blocks are of 512 bytes (stat(2))
		}
	}
	return mib
}

// isOnTrial reports whether the order's root was started and it is not decided whether it stays.
func (i Installation) isOnTrial(o Order) bool {
	r, err := i.Receipt()
	return err == nil && r.Trial != nil && r.Trial.RootHash == o.Root.Hash && exists(i.inDir(previousName)) &&
		!exists(i.inDir(nextName))
}

// startAction is what is done about an update before the appliance is started.
type startAction int

const (
	startAsIs    startAction = iota
	startTrial               // the new root takes the place of the root, which is kept
	startGoBack              // the start before was a trial, and ended before the root was kept
	startForget              // the new root was taken back before, or never was there
	startRelease             // the root before is not needed any more
)

// decideStart says what is done, by what the receipt says and which files there are. A trial is one start.
func decideStart(isTrial, hasNext, hasPrevious bool) startAction {
	switch {
	case isTrial && hasNext:
		return startTrial
	case isTrial && hasPrevious:
		return startGoBack
	case isTrial:
		return startForget
	case hasPrevious:
		return startRelease
	}
	return startAsIs
}

// prepareStart does it, and reports whether the start is a trial. Each change is one of a name: whoever is cut off leaves
// a whole root, and the next start continues.
func (i Installation) prepareStart() (isTrial bool, err error) {
	r, err := i.Receipt()
	if err != nil {
		return false, err
	}

	root, next, previous := i.inDir(rootName), i.inDir(nextName), i.inDir(previousName)
	switch decideStart(r.Trial != nil, exists(next), exists(previous)) {
	case startTrial:
		// One that is there stays: it was linked before a cut, or what is in its place is itself on trial.
		if err := os.Link(root, previous); err != nil && !errors.Is(err, os.ErrExist) {
			return false, fmt.Errorf("keep the root before: %w", err)
		}
		if err := errors.Join(os.Rename(next, root), atomicfile.SyncDir(i.path(Dir))); err != nil {
			return false, fmt.Errorf("try the new root: %w", err)
		}
		return true, nil
	case startGoBack:
		return false, i.goBack(r, "its start ended before it was ready: a restart, a power cut, or it broke")
	case startForget:
		r.Trial = nil
		return false, i.writeReceipt(r)
	case startRelease:
		return false, removeFile(previous)
	}
	return false, nil
}

// goBack has the root before in place again.
func (i Installation) goBack(r Receipt, reason string) error {
	err := errors.Join(os.Rename(i.inDir(previousName), i.inDir(rootName)), atomicfile.SyncDir(i.path(Dir)))
	if err != nil {
		return fmt.Errorf("take the root before: %w", err)
	}
	r.Failed, r.Trial = &Failure{*r.Trial, reason}, nil
	return i.writeReceipt(r)
}

// keep ends a trial: the new root stays.
func (i Installation) keep() error {
	r, err := i.Receipt()
	if err != nil || r.Trial == nil {
		return err
	}
	r.Version, r.RootHash, r.Trial, r.Failed = r.Trial.Version, r.Trial.RootHash, nil, nil
	if err := i.writeReceipt(r); err != nil {
		return err
	}
	return removeFile(i.inDir(previousName))
}

// removeFile removes a file that may have been removed before.
func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// endTrial takes the root before, for the next start.
func (i Installation) endTrial(reason string) error {
	r, err := i.Receipt()
	if err != nil || r.Trial == nil {
		return err
	}
	return i.goBack(r, reason)
}

// readyInterval is how often it is asked whether an appliance on trial is ready.
const readyInterval = 2 * time.Second

// watchTrial keeps the root that is on trial when the appliance is ready with it. failure says why it shall not stay; it is
// "" also where ctx ended first, after which the next start says so.
func (i Installation) watchTrial(ctx context.Context, appliance *process.Child, log *slog.Logger) (failure string) {
	log.Info("a new version is on trial", "patience", TrialPatience)
	late := time.After(TrialPatience)
	said := "it did not answer"
	for {
		isReady, summary := askReady(ctx, appliance.ID.PID)
		if isReady {
			if err := i.keep(); err != nil {
				return err.Error()
			}
			log.Info("the new version is kept")
			return ""
		}
		said = cmp.Or(summary, said)
		select {
		case <-time.After(readyInterval):
		case <-ctx.Done():
			return ""
		case <-appliance.Done():
			return fmt.Sprintf("it ended before it was ready: %v", appliance.Err())
		case <-late:
			return fmt.Sprintf("it was not ready within %s: %s", TrialPatience, said)
		}
	}
}

// askReady asks the appliance whose first process that is whether it is ready, and what it does or waits for.
func askReady(ctx context.Context, pid int) (isReady bool, summary string) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	out, err := container.Command(ctx, pid, "firstlightd", "status", "--output", "json").Output()
	var d status.Document
	if err != nil || json.Unmarshal(out, &d) != nil {
		return false, ""
	}
	return try.IsReady(d), d.Summary
}

// AwaitUpdate returns when it is decided whether the root that is on trial stays. The error says why it does not.
func (i Installation) AwaitUpdate(ctx context.Context, o Order) error {
	for {
		r, err := i.Receipt()
		switch {
		case err != nil:
			return err
		case r.RootHash == o.Root.Hash:
			return nil
		case r.Trial == nil && r.Failed != nil && r.Failed.RootHash == o.Root.Hash:
			return fmt.Errorf("version %s was tried and does not stay: %s; version %s runs again", r.Failed.Version.Version,
				r.Failed.Reason, r.Version)
		case r.Trial == nil:
			return fmt.Errorf("version %s is not tried any more; version %s is installed", o.Root.Version, r.Version)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("stopped looking: %w; the update continues, and the same command looks again", context.Cause(ctx))
		case <-time.After(time.Second):
		}
	}
}
