package main

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// credentialOf is who a unit's User= is.
func credentialOf(name string) (*syscall.Credential, error) {
	who, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}

	uid, err := strconv.ParseUint(who.Uid, 10, 32)
	if err != nil {
		return nil, err
	}

	gid, err := strconv.ParseUint(who.Gid, 10, 32)
	if err != nil {
		return nil, err
	}

	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// makeDirs makes the unit's directories and gives them to its user, with all that is in them if they are another's.
func (u *unit) makeDirs() error {
	for _, dir := range u.dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}

		for top, mode := range u.dirModes {
			if strings.HasPrefix(dir, top+"/") {
				if err := os.Chmod(dir, mode); err != nil {
					return err
				}
			}
		}

		if u.user == "" || u.user == "root" {
			continue
		}

		who, err := credentialOf(u.user)
		if err != nil {
			return err
		}
		if err := giveTo(dir, who); err != nil {
			return err
		}
	}

	return nil
}

// giveTo makes a directory somebody's with all that is in it, itself last; one that is that already stays as it is.
func giveTo(dir string, who *syscall.Credential) error {
	var now syscall.Stat_t
	if err := syscall.Lstat(dir, &now); err != nil || now.Uid == who.Uid && now.Gid == who.Gid {
		return err
	}

	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		return os.Lchown(path, int(who.Uid), int(who.Gid))
	})
	return errorsFirst(err, os.Lchown(dir, int(who.Uid), int(who.Gid)))
}

func exitCode(s syscall.WaitStatus) int {
	if s.Signaled() {
		return 128 + int(s.Signal())
	}
	return s.ExitStatus()
}

// descendants are all processes below pid, found in /proc.
func descendants(pid int) []int {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}

		after := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if len(after) > 1 {
			parent, _ := strconv.Atoi(after[1])
			children[parent] = append(children[parent], child)
		}
	}

	var all []int
	for todo := []int{pid}; len(todo) > 0; todo = todo[1:] {
		all = append(all, children[todo[0]]...)
		todo = append(todo, children[todo[0]]...)
	}

	return all
}
