package ovn

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// HasNamespace reports whether a path is a network namespace, not what is left of one.
func HasNamespace(path string) bool {
	var s unix.Statfs_t
	return unix.Statfs(path, &s) == nil && s.Type == unix.NSFS_MAGIC
}

// inNamespace calls do on a thread that is in a namespace. The thread ends with it.
func inNamespace(path string, do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: no other goroutine gets this thread
		ns, err := netns.GetFromPath(path)
		if err == nil {
			err = netns.Set(ns)
			_ = ns.Close()
		}
		if err != nil {
			done <- fmt.Errorf("enter namespace %s: %w", path, err)
			return
		}
		done <- do()
	}()
	return <-done
}

// ensureNamespace makes a namespace that stays when all processes in it have ended.
func ensureNamespace(path string) error {
	if HasNamespace(path) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make namespace %s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o444)
	if err != nil {
		return fmt.Errorf("make namespace %s: %w", path, err)
	}
	_ = f.Close()

	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		if err := isolate(); err != nil {
			done <- err
			return
		}
		done <- unix.Mount(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), path, "", unix.MS_BIND, "")
	}()
	if err := <-done; err != nil {
		return fmt.Errorf("make namespace %s: %w", path, err)
	}
	return nil
}

// isolate makes the kernel forward nothing in this namespace, and say nothing by IPv6: a pod that sends to its interface's
// other end itself gets nowhere.
func isolate() error {
	for file, value := range map[string]string{
		"ipv4/ip_forward":                "0",
		"ipv6/conf/all/disable_ipv6":     "1",
		"ipv6/conf/default/disable_ipv6": "1",
	} {
		err := os.WriteFile(filepath.Join("/proc/sys/net", file), []byte(value), 0o644)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a kernel without IPv6
			return err
		}
	}

	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	return err
}

// removeNamespace ends a namespace, and with it all interfaces that are made by programs. Those of devices come back to
// the node.
func removeNamespace(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove namespace %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove namespace %s: %w", path, err)
	}
	return nil
}
