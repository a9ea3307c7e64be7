package container

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// CgroupRoot is where control groups are mounted.
const CgroupRoot = "/sys/fs/cgroup"

// controllers are those of version 2 that a kubelet asks for. A group has those that the one above it hands down.
var controllers = []string{"cpuset", "cpu", "io", "memory", "hugetlb", "pids"}

// hierarchies are the trees of control groups of a machine.
type hierarchies struct {
	v1      map[string]string // mount point to options
	unified string            // mount point of version 2; "" if there is none
}

// findHierarchies reads how this machine's control groups are mounted.
func findHierarchies() (hierarchies, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return hierarchies{}, fmt.Errorf("find control groups: %w", err)
	}
	defer f.Close()

	return parseHierarchies(f)
}

// parseHierarchies reads them from /proc/PID/mountinfo (proc_pid_mountinfo(5)).
func parseHierarchies(mountinfo io.Reader) (hierarchies, error) {
	found := hierarchies{v1: map[string]string{}}
	lines := bufio.NewScanner(mountinfo)
	for lines.Scan() {
		left, right, _ := strings.Cut(lines.Text(), " - ")
		a, b := strings.Fields(left), strings.Fields(right)
		if len(a) < 5 || len(b) < 3 {
			continue
		}

		switch b[0] {
		case "cgroup":
			found.v1[a[4]] = strings.TrimPrefix(strings.TrimPrefix(b[2], "rw"), ",")
		case "cgroup2":
			found.unified = a[4]
		}
	}

	return found, lines.Err()
}

// EnterCgroups moves this process into a group of that name in every tree, made if absent: below parents, or below the
// trees' roots if there are none. The name may be a path.
func EnterCgroups(name string, parents ...string) error {
	if len(parents) > 0 {
		return enterBelow(name, parents)
	}

	all, err := findHierarchies()
	if err != nil {
		return err
	}

	dirs := make([]string, 0, len(all.v1)+1)
	for dir := range all.v1 {
		dirs = append(dirs, dir)
	}
	if all.unified != "" {
		dirs = append(dirs, all.unified)
	}
	if len(all.v1) == 0 && all.unified != "" { // beside version 1, crun refuses a tree that has some
		handDown(filepath.Dir(filepath.Join(all.unified, name)))
	}
	if len(dirs) == 0 {
		return errors.New("enter cgroup: none is mounted")
	}

	for _, dir := range dirs {
		if err := enterCgroup(dir, name, dir == all.unified); err != nil {
			return err
		}
	}

	return nil
}

// handDown lets the groups in one of version 2 have controllers. Those that the kernel lacks, or has in trees
// of version 1, cannot be had here.
func handDown(dir string) {
	for _, c := range controllers {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0)
	}
}

func enterCgroup(dir, name string, isUnified bool) error {
	own := filepath.Join(dir, name)
	if err := os.MkdirAll(own, 0o755); err != nil {
		return fmt.Errorf("make cgroup: %w", err)
	}

	for _, inherit := range []string{"cpuset.cpus", "cpuset.mems"} { // of version 1, where a new group has none
		all, err := os.ReadFile(filepath.Join(dir, inherit))
		if err != nil || isUnified {
			continue
		}
		if err := os.WriteFile(filepath.Join(own, inherit), all, 0); err != nil {
			return fmt.Errorf("give cgroup %s its %s: %w", own, inherit, err)
		}
	}

	if err := os.WriteFile(filepath.Join(own, "cgroup.procs"), []byte("0"), 0); err != nil {
		return fmt.Errorf("enter cgroup: %w", err)
	}

	return nil
}

// MountCgroups mounts this machine's trees of control groups below root, as its processes have them: the groups that a
// namespace of control groups begins with are their roots.
func MountCgroups(root string) error {
	all, err := findHierarchies()
	if err != nil {
		return err
	}

	for dir, options := range all.v1 {
		if strings.HasPrefix(dir, root) {
			continue
		}

		target := root + dir
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("cgroup", target, "cgroup", 0, options); err != nil {
			return fmt.Errorf("mount cgroup %s: %w", options, err)
		}
	}

	// A machine with nothing but version 2 shows it as the whole tree, like systemd does.
	if all.unified != "" && len(all.v1) == 0 {
		if err := unix.Mount("cgroup2", root+CgroupRoot, "cgroup2", 0, ""); err != nil {
			return fmt.Errorf("mount cgroup2: %w", err)
		}
	}

	return nil
}

// FindCgroups are the directories of all groups of that name: below parents, or below the trees' roots if there are none.
func FindCgroups(name string, parents ...string) []string {
	if len(parents) > 0 {
		return findBelow(name, parents)
	}

	found, _ := filepath.Glob(filepath.Join(CgroupRoot, "*", name))
	if own := filepath.Join(CgroupRoot, name); isDir(own) {
		found = append(found, own)
	}
	return found
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// RemoveCgroups removes all groups that FindCgroups finds, deepest first. Processes that were just killed leave theirs a
// little later.
func RemoveCgroups(name string, parents ...string) error {
	var left error
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		left = nil
		for _, root := range FindCgroups(name, parents...) {
			if err := removeCgroup(root); err != nil {
				left = err
			}
		}

		if left == nil || time.Now().After(deadline) {
			return left
		}
	}
}

func removeCgroup(root string) (left error) {
	var dirs []string
	_ = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	for _, dir := range slices.Backward(dirs) {
		if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			left = fmt.Errorf("remove cgroup %s: %w", dir, err)
		}
	}

	return left
}
