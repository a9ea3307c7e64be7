package devpush

import (
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/devpush"
)

// sizeOfAll is how much memory everything that was pushed may take, as an option of tmpfs.
const sizeOfAll = "size=1g"

// Order is what a developer pushes: one file, for all programs that are named.
type Order struct {
	Programs []string // names of devpush.Program, all with the same file
	Revision string   // of the sources, for people
	SHA256   string   // of the file
}

// Put takes a file, compressed by zstd, puts it over the root's, and restarts what runs it. Programs that were pushed
// before and have the same file are restarted, too: no two files are run from one place. If a restart fails, the program
// stays pushed; Undo takes it away.
func (a Appliance) Put(ctx context.Context, o Order, file io.Reader) (Push, error) {
	programs, err := o.resolve()
	if err != nil {
		return Push{}, err
	}
	target, err := a.target(programs[0])
	if err != nil {
		return Push{}, fmt.Errorf("find %s on the root: %w", o.Programs[0], err)
	}
	unlock, err := a.lock()
	if err != nil {
		return Push{}, err
	}
	defer unlock()
	if err := a.makeDir(); err != nil {
		return Push{}, err
	}

	all, err := a.List()
	if err != nil {
		return Push{}, err
	}
	if err := a.sweep(all); err != nil {
		return Push{}, err
	}
	p := Push{
		Programs: o.Programs,
		Revision: o.Revision,
		Time:     time.Now().Truncate(time.Second),
		SHA256:   o.SHA256,
		Target:   target,
		Image:    programs[0].Image,
	}
	if p.Folder, err = a.receive(file, o.SHA256, programs[0]); err != nil {
		return Push{}, fmt.Errorf("receive %s: %w; nothing is changed", o.Programs[0], err)
	}
	p.Path = programs[0].Path

	before := slices.IndexFunc(all, func(q Push) bool { return q.Target == target })
	var old Push
	if before >= 0 {
		old = all[before]
		for _, name := range old.Programs {
			if !slices.Contains(p.Programs, name) {
				p.Programs = append(p.Programs, name)
			}
		}
	}
	if err := a.replace(all, before, p); err != nil {
		return Push{}, err // the next push removes the file
	}
	err = a.restart(ctx, find(p.Programs), p.File())
	if before >= 0 {
		err = errors.Join(err, os.RemoveAll(old.Folder)) // what runs it still has it
	}
	return p, err
}

// Check says what is wrong with the programs of an order.
func (o Order) Check() error {
	_, err := o.resolve()
	return err
}

// resolve are the programs of an order.
func (o Order) resolve() (all []devpush.Program, err error) {
	if len(o.Programs) == 0 {
		return nil, errors.New("no program is named")
	}
	for _, name := range o.Programs {
		p, err := devpush.Find(name)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
		if p.Path != all[0].Path || p.Image != all[0].Image {
			return nil, fmt.Errorf("%s and %s are two programs; push one after the other", all[0].Name, name)
		}
	}
	return all, nil
}

// replace mounts a push, in the place of the one of that index if there was one, and writes it down.
func (a Appliance) replace(all []Push, before int, p Push) error {
	if before >= 0 {
		if err := unmount(all[before].Target); err != nil {
			return err
		}
		all = slices.Delete(all, before, before+1)
	}
	// What is written down and not mounted does not count.
	if err := a.write(append(all, p)); err != nil {
		return err
	}
	return p.mount()
}

// makeDir makes the tmpfs, where all of the appliance sees it.
func (a Appliance) makeDir() error {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return err
	}
	if first, err := os.Readlink("/proc/1/ns/mnt"); err != nil || own != first {
		return errors.New("this process does not have the appliance's own mounts; log in to it as root")
	}
	if isMountRoot(a.Dir) {
		return nil
	}

	if err := os.MkdirAll(a.Dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", a.Dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,"+sizeOfAll); err != nil {
		return fmt.Errorf("make a place for what is pushed: mount %s: %w", a.Dir, err)
	}
	return nil
}

// lock keeps others from pushing. What is locked is the folder of Dir: the first two would mount a tmpfs each.
func (a Appliance) lock() (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(a.Dir), 0o755); err != nil {
		return nil, err
	}
	dir, err := os.Open(filepath.Dir(a.Dir))
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		dir.Close()
		return nil, errors.New("somebody else pushes a program into this appliance at this moment; try again")
	}
	return func() { _ = dir.Close() }, nil
}

// sweep removes the folders of pushes that were killed, which would fill the tmpfs. What runs a file of one still has it.
func (a Appliance) sweep(all []Push) error {
	entries, err := os.ReadDir(a.Dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		folder := filepath.Join(a.Dir, e.Name())
		if e.IsDir() && !slices.ContainsFunc(all, func(p Push) bool { return p.Folder == folder }) {
			errs = append(errs, os.RemoveAll(folder))
		}
	}
	return errors.Join(errs...)
}

// receive writes the program to a folder of its own in Dir, at the path that it has in its layer.
func (a Appliance) receive(file io.Reader, digest string, p devpush.Program) (folder string, err error) {
	if len(digest) != 2*sha256.Size {
		return "", fmt.Errorf("%q is no sha256", digest)
	}
	folder, err = os.MkdirTemp(a.Dir, p.Build+"-")
	if err != nil {
		return "", err
	}

	name := filepath.Join(folder, p.Path)
	err = os.Chmod(folder, 0o755) // it is the root of containers
	if err == nil {
		err = os.MkdirAll(filepath.Dir(name), 0o755)
	}
	if err == nil {
		err = decompress(name, file, digest)
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(folder))
	}
	return folder, nil
}

// decompress writes a program that has to have that digest and to be one for this machine.
func decompress(name string, file io.Reader, digest string) error {
	decoder, err := zstd.NewReader(file)
	if err != nil {
		return err
	}
	defer decoder.Close()

	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(f, sum), decoder); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != digest {
		return fmt.Errorf("its sha256 is %s, and not %s", got, digest)
	}

	program, err := elf.NewFile(f)
	if err != nil || program.Machine != elf.EM_X86_64 {
		return errors.New("it is no program for amd64")
	}
	return f.Chmod(0o755) // whatever the umask is
}

// mount shows the program in the place of the root's. That of a layer is shown by an overlay over the layer's files: the
// overlay of a container does not see what is mounted inside a layer, and does see what its folder is.
func (p Push) mount() error {
	var err error
	if p.Image == "" {
		err = unix.Mount(p.File(), p.Target, "", unix.MS_BIND, "")
		if err == nil {
			err = unix.Mount("", p.Target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
		}
	} else {
		layers := fmt.Sprintf("lowerdir=%s:%s", p.Folder, p.Target)
		err = unix.Mount("overlay", p.Target, "overlay", unix.MS_RDONLY, layers)
	}
	if err != nil {
		return fmt.Errorf("show %s at %s: %w", p.File(), p.Target, err)
	}
	return nil
}

func unmount(target string) error {
	if err := unix.Unmount(target, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("take away what is mounted at %s: %w", target, err)
	}
	return nil
}

// Undo takes away all that was pushed, and restarts what ran it. What was taken away is returned.
func (a Appliance) Undo(ctx context.Context) ([]Push, error) {
	if !isMountRoot(a.Dir) {
		return nil, nil
	}
	unlock, err := a.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()

	all, err := a.List()
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if err := unmount(p.Target); err != nil {
			return nil, err
		}
	}
	if err := a.write(nil); err != nil {
		return all, err
	}

	var errs []error
	for _, p := range all {
		errs = append(errs, a.restart(ctx, find(p.Programs), p.Target), os.RemoveAll(p.Folder))
	}
	return all, errors.Join(errs...)
}
