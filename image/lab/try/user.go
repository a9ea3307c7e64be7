package try

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/image/lab/container"
	"firstlight.dev/firstlight/image/lab/process"
	"firstlight.dev/firstlight/image/lab/userns"
	"firstlight.dev/firstlight/image/rootfs"
)

// Without root a rack is in a user namespace, with its supervisor: root there is the user who made it. The kernel mounts
// no squashfs for him, so the image's root is unpacked in the rack's directory; control groups are below one that he was
// given.

// supervisorGroup is the control group of the supervisor itself where the tree is of version 2: the group that hands
// controllers down may hold no process.
const supervisorGroup = "supervisor"

// CheckOwner refuses whoever may not enter the rack: it is of who made it, alone.
func (r Rack) CheckOwner() error {
	info, err := os.Stat(r.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find rack: %w", err)
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; int(owner) != os.Geteuid() {
		return fmt.Errorf("%s is of user %d, and so is a rack in it; call firstlight as that user, or name another "+
			"directory with --dir", r.Dir, owner)
	}
	return nil
}

// asRoot runs words as root of a user namespace in which the rack's files belong to root and those that only root may change.
// They end with this process, also when it is killed. again is the command line of this program by which userns.Main is
// reached.
func asRoot(ctx context.Context, again []string, words ...string) error {
	wrapped := userns.Wrap(again, words...)
	var said bytes.Buffer
	cmd := exec.Command(wrapped[0], wrapped[1:]...)
	cmd.Stdout, cmd.Stderr = &said, &said
	child, err := process.Start(cmd)
	if err != nil {
		return fmt.Errorf("%s: %w", words[0], err)
	}

	select {
	case <-child.Done():
	case <-ctx.Done():
		child.Kill()
	}
	if err := child.Err(); err != nil {
		return fmt.Errorf("%s: %w: %s", words[0], err, strings.TrimSpace(said.String()))
	}
	return nil
}

// lockFiles keeps other calls of the command from unpacking and removing the rack's files meanwhile. The lock ends when
// the file is closed, and with this process.
func (r Rack) lockFiles() (*os.File, error) {
	dir, err := os.Open(r.Dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		dir.Close()
		return nil, fmt.Errorf("another firstlight try unpacks or removes the rack in %s: %w", r.Dir, err)
	}
	return dir, nil
}

// IsUnpacked reports whether the rack's root can be started from: unpacked, or mounted where it is in the image.
func (r Rack) IsUnpacked() (bool, error) {
	made, err := r.read()
	if err != nil || !made.Unpacked {
		return err == nil, err
	}
	_, err = os.Stat(r.path(rootDir))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Unpack unpacks the root of the image, for a rack that cannot mount it. One that was interrupted begins again.
func (r Rack) Unpack(ctx context.Context, again []string) error {
	lock, err := r.lockFiles()
	if err != nil {
		return fmt.Errorf("unpack root: %w", err)
	}
	defer lock.Close()
	if isUnpacked, err := r.IsUnpacked(); err != nil || isUnpacked { // by another call, before this one had the lock
		return err
	}
	made, err := r.read()
	if err != nil {
		return err
	}

	file, offset, err := container.FindRoot(made.Order.Image)
	if err != nil {
		return fmt.Errorf("unpack root: %w", err)
	}

	// Devices are left out: nobody makes one in a user namespace, and wherever one is asked for, /dev is another.
	part := r.path(partDir)
	if err := asRoot(ctx, again, "rm", "-rf", "--one-file-system", part); err != nil {
		return fmt.Errorf("unpack root: %w", err)
	}
	if err := asRoot(ctx, again, "unsquashfs", "-quiet", "-no-progress", "-offset", fmt.Sprint(offset), "-dest", part,
		"-exclude-list", "dev/*", strings.TrimPrefix(rootfs.ImagesDir, "/")+"/layers/*/fs/dev/*", ";", file); err != nil {
		// What is there may be what has filled the disk.
		rest := asRoot(context.WithoutCancel(ctx), again, "rm", "-rf", "--one-file-system", part)
		return fmt.Errorf("unpack root of %s: %w", file, errors.Join(err, rest))
	}
	// Its name says that it is whole, also after a power cut.
	if err := asRoot(ctx, again, "sync", "--file-system", part); err != nil {
		return fmt.Errorf("unpack root: %w", err)
	}
	if err := os.Rename(part, r.path(rootDir)); err != nil {
		return fmt.Errorf("unpack root: %w", err)
	}

	return nil
}

// removeFiles removes files of the rack, also those of IDs that only its user namespace has.
func (r Rack) removeFiles(ctx context.Context, again []string, names []string) error {
	made, err := r.read()
	if err != nil {
		return err
	}

	words := []string{"rm", "-rf", "--one-file-system", "--"}
	for _, name := range names {
		words = append(words, filepath.Join(r.Dir, name))
	}
	if made.Unpacked && len(names) > 0 {
		return asRoot(ctx, again, words...)
	}

	for _, path := range words[4:] {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

// superviseWords is the command line of the supervisor of a rack without root: where control groups are of version 2,
// the user's systemd gives it one with the right to make others.
func superviseWords(supervise []string) ([]string, error) {
	if os.Geteuid() == 0 {
		return supervise, nil
	}

	_, isOnlyUnified, err := container.OwnCgroups()
	if err != nil || !isOnlyUnified {
		return supervise, err
	}
	return append([]string{
		"systemd-run", "--user", "--scope", "--quiet", "--collect", "--property=Delegate=yes", "--",
	}, supervise...), nil
}

// superviseEnvironment is that of superviseWords: who became the user by su or sudo has no word of where his systemd
// listens (XDG_RUNTIME_DIR), which pam_systemd(8) says to who logs in.
func superviseEnvironment(id int, own []string) []string {
	const name = "XDG_RUNTIME_DIR="
	if id == 0 || slices.ContainsFunc(own, func(v string) bool { return strings.HasPrefix(v, name+"/") }) {
		return own
	}
	return append(slices.Clone(own), name+"/run/user/"+strconv.Itoa(id))
}

// SuperviseAsUser holds a rack of an ordinary user: it runs supervise, which must call Supervise, as root of a user
// namespace. again is the command line of this program by which userns.Main is reached.
func SuperviseAsUser(again []string, supervise ...string) error {
	own, isOnlyUnified, err := container.OwnCgroups()
	if err != nil {
		return err
	}
	if isOnlyUnified {
		if err := container.EnterCgroups(supervisorGroup, own...); err != nil {
			return err
		}
	}

	return userns.Main(again, userns.StageMake, supervise)
}

// cgroupParents are the groups below which the rack's are: for root none, which stands for the trees' roots.
func cgroupParents() ([]string, error) {
	if !userns.IsInside() {
		return nil, nil
	}

	own, isOnlyUnified, err := container.OwnCgroups()
	if err != nil || !isOnlyUnified {
		return own, err
	}
	for i := range own {
		own[i] = filepath.Dir(own[i]) // this process is in supervisorGroup
	}
	return own, nil
}
