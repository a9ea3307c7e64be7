package container

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// OwnCgroups are the directories of the groups that this process is in, one for each tree that an appliance would have:
// those of version 1, or the one of version 2 where there is no other. An ordinary user makes groups below them if they
// were given to him. IsOnlyUnified is true for the latter.
func OwnCgroups() (dirs []string, isOnlyUnified bool, err error) {
	all, err := findHierarchies()
	if err != nil {
		return nil, false, err
	}

	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, false, fmt.Errorf("find own control groups: %w", err)
	}

	return all.ownDirs(string(text)), len(all.v1) == 0 && all.unified != "", nil
}

// ownDirs reads them from /proc/PID/cgroup (cgroups(7)).
func (h hierarchies) ownDirs(text string) []string {
	var dirs []string
	for line := range strings.Lines(text) {
		words := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(words) != 3 {
			continue
		}
		if words[1] == "" {
			if len(h.v1) == 0 && h.unified != "" {
				dirs = append(dirs, filepath.Join(h.unified, words[2]))
			}
			continue
		}

		first, _, _ := strings.Cut(words[1], ",")
		for mount, options := range h.v1 {
			if slices.Contains(strings.Split(options, ","), first) {
				dirs = append(dirs, filepath.Join(mount, words[2]))
			}
		}
	}

	slices.Sort(dirs)
	return dirs
}

// FirstForeignCgroup is the first of these groups that this process may not make others below, "" if it may everywhere.
func FirstForeignCgroup(dirs []string) string {
	for _, dir := range dirs {
		if unix.Access(dir, unix.W_OK) != nil || unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK) != nil {
			return dir
		}
	}
	return ""
}

// enterBelow moves this process into a group of that name below each parent. A parent of version 2 hands its controllers
// down, for which no process may be left in it but this one.
func enterBelow(name string, parents []string) error {
	for _, dir := range parents {
		isUnified := hasControllers(dir)
		if err := enterCgroup(dir, name, isUnified); err != nil {
			return err
		}
		if isUnified {
			handDown(dir)
		}
	}
	return nil
}

// hasControllers tells a group of version 2.
func hasControllers(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "cgroup.controllers"))
	return err == nil
}

func findBelow(name string, parents []string) []string {
	var found []string
	for _, dir := range parents {
		if own := filepath.Join(dir, name); isDir(own) {
			found = append(found, own)
		}
	}
	return found
}
