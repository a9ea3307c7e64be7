// Package devpush puts programs that a developer has pushed over those of the appliance's root, until it restarts, and
// takes them away again. The root is read-only and stays as it is: each program is a file in a tmpfs, and a mount over
// the root's shows it in its place.
package devpush

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/devpush"
	"firstlight.dev/firstlight/assets/stick"
)

// Dir is the tmpfs with what was pushed. It is there once something was.
const Dir = stick.RunDir + "/pushed"

// recordName is the file in Dir that lists what was pushed.
const recordName = "pushed.json"

// Push is one file that is over one of the root's.
type Push struct {
	Programs []string  `json:"programs"` // names of devpush.Program that run it
	Revision string    `json:"revision"` // COMMIT, or COMMIT+dirty
	Time     time.Time `json:"time"`
	SHA256   string    `json:"sha256"`
	Folder   string    `json:"folder"` // in Dir, with the file
	Path     string    `json:"path"`   // of the file in Folder
	Target   string    `json:"target"` // the root's file, or the folder of its layer, that it is mounted over
	Image    string    `json:"image,omitempty"`
}

// File is the program that was pushed.
func (p Push) File() string { return filepath.Join(p.Folder, p.Path) }

// isShown reports whether the program is in the place of the root's.
func (p Push) isShown() bool {
	if p.Image != "" {
		return isMountRoot(p.Target)
	}
	return isSame(p.File(), p.Target)
}

func isSame(a, b string) bool {
	infoA, err := os.Stat(a)
	if err != nil {
		return false
	}
	infoB, err := os.Stat(b)
	return err == nil && os.SameFile(infoA, infoB)
}

// Describe says it in a sentence.
func (p Push) Describe() string {
	return fmt.Sprintf("This appliance runs %s of %s, pushed at %s, until it restarts; firstlight dev push --undo "+
		"takes that back.", strings.Join(p.Programs, ", "), p.Revision, p.Time.UTC().Format("2006-01-02 15:04:05 UTC"))
}

// Appliance is the one that programs are pushed into. New is that of this machine.
type Appliance struct {
	Dir       string // as the constant says
	FindLayer func(image string) (dir string, err error)
	Run       func(ctx context.Context, program string, args ...string) (out string, err error)
	Answers   func(ctx context.Context, since time.Time) error // nil if the daemon answers that was started since
	Report    func(text string)                                // is told each step, for people; may be nil
	Patience  time.Duration                                    // for what was restarted to run again
}

// List is what is in the place of the root's programs now, in the order in which it was pushed first.
func List() ([]Push, error) { return Appliance{Dir: Dir}.List() }

// List is what is in the place of the root's programs now. Whatever the record says, only what is mounted counts.
func (a Appliance) List() ([]Push, error) {
	text, err := os.ReadFile(filepath.Join(a.Dir, recordName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what was pushed: %w", err)
	}

	var all []Push
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("read %s: %w", filepath.Join(a.Dir, recordName), err)
	}
	return slices.DeleteFunc(all, func(p Push) bool { return !p.isShown() }), nil
}

func (a Appliance) write(all []Push) error {
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(a.Dir, recordName), append(text, '\n'), 0o644)
}

// RunningDigest is the sha256 of this process's program if that was pushed, and "" if it is the root's.
func RunningDigest() string {
	all, err := List()
	if err != nil {
		return ""
	}
	for _, p := range all {
		if isSame("/proc/self/exe", p.File()) {
			return p.SHA256
		}
	}
	return ""
}

// isMountRoot reports whether something is mounted at path.
func isMountRoot(path string) bool {
	var s unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, 0, &s)
	return err == nil && s.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// target is what a program is mounted over: its file on the root, without links, or the files of its image's layer.
func (a Appliance) target(p devpush.Program) (string, error) {
	if p.Image != "" {
		return a.FindLayer(p.Image)
	}
	return filepath.EvalSymlinks(p.Path)
}

// find is the program of a name that was pushed: the list may be another version's.
func find(names []string) (all []devpush.Program) {
	for _, name := range names {
		if p, err := devpush.Find(name); err == nil {
			all = append(all, p)
		}
	}
	return all
}
