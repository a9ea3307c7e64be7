// Package install makes the file tree of a root from its locked packages, as one tar archive. It is apart from
// package debian, and knows nothing of the recipe, because whatever it imports decides about trees that take
// minutes to make.
package install

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"firstlight.dev/firstlight/image/debian"
	"firstlight.dev/firstlight/image/drivers"
	"firstlight.dev/firstlight/image/tree"
)

// Root is what a root's tree is made from.
type Root struct {
	Name     string
	Suite    string
	Packages []debian.Package
	Files    map[string]string // .deb by SHA256
	Exclude  []string          // dpkg path patterns
	Include  []string
	Hooks    []string // shell scripts run inside the tree
	Firmware string   // a tar of firmware, which is there before the kernel is installed; empty for none
	Epoch    int64    // no file is younger
	Log      io.Writer
}

// hostTraces is what mmdebstrap, dpkg and maintainer scripts leave of this machine
// and this hour: no secret and no trace of the build gets onto the stick.
var hostTraces = []string{
	"/etc/hostname", "/etc/resolv.conf", "/etc/apt/sources.list", "/etc/ssh/ssh_host_*", "/etc/machine-id",
	"/var/lib/dbus/machine-id", "/etc/nvme/hostid", "/etc/nvme/hostnqn", "/var/lib/systemd/random-seed",
	"/var/cache/ldconfig/aux-cache", "/var/lib/apt/lists/**", "/var/cache/apt/**", "/var/cache/debconf/*-old",
	"/var/lib/dpkg/*-old", "/var/log/*.log", "/var/log/apt/**", "/run/**", "/tmp/**",
}

// RemoveTraces removes what the build left of this machine in a tree.
func RemoveTraces(t *tree.Tree) {
	for _, glob := range hostTraces {
		t.Remove(glob)
	}
}

// Install writes the tree that mmdebstrap makes to out. What is installed must be what is locked.
func (r Root) Install(ctx context.Context, out string) error {
	if err := r.bootstrap(ctx, out+".raw"); err != nil {
		return err
	}

	t := tree.New(r.Epoch)
	if err := t.AddTar(out+".raw", "packages"); err != nil {
		return err
	}
	if err := r.check(t); err != nil {
		return fmt.Errorf("install root %s: %w", r.Name, err)
	}

	RemoveTraces(t) // keys that scripts minted here must not even be in the cache
	return t.WriteTarFile(out)
}

// check holds the installed tree to the lock, and its drivers to what they need of each other.
func (r Root) check(t *tree.Tree) error {
	status, err := t.ReadFile("/var/lib/dpkg/status")
	if err != nil {
		return err
	}

	installed := debian.ParseInstalled(status)
	for _, p := range r.Packages {
		if installed[p.Name] != p.Version {
			return fmt.Errorf("%s is %q and locked is %s", p.Name, installed[p.Name], p.Version)
		}
		delete(installed, p.Name)
	}

	for _, name := range slices.Sorted(maps.Keys(installed)) {
		return fmt.Errorf("%s %s got in and is not locked", name, installed[name])
	}

	for _, dir := range t.Paths("/usr/lib/modules/*") {
		if err := drivers.Check(t.FS(dir)); err != nil {
			return err
		}
	}

	return nil
}

// Unpack writes the tree of the packages unpacked over each other to out. No script runs.
func (r Root) Unpack(ctx context.Context, out string) error {
	dir, err := os.MkdirTemp("", "firstlight-unpack-")
	if err != nil {
		return fmt.Errorf("unpack root %s: %w", r.Name, err)
	}
	defer os.RemoveAll(dir)

	t := tree.New(r.Epoch)
	for _, p := range debian.SortBaseFirst(r.Packages) {
		tar := filepath.Join(dir, p.SHA256)
		if err := debian.DataTar(ctx, r.Files[p.SHA256], tar); err != nil {
			return err
		}
		if err := t.UnpackTar(tar, "package "+p.Name); err != nil {
			return err
		}
	}

	t.Filter(func(p string) bool { return !debian.IsExcluded("/"+p, r.Exclude, r.Include) })
	return t.WriteTarFile(out)
}
