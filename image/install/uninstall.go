package install

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// removal is a part of an uninstallation.
type removal struct {
	does   string // for people
	needed bool
	do     func() error
}

// temporary is the file that an interrupted write of path leaves (atomicfile).
func temporary(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
}

// removals takes an installation away, in this order: the interfaces are back when the unit has stopped, and what says
// that there is an installation goes last.
func (i Installation) removals(r Receipt, keepData bool) []removal {
	remove := func(path string) removal {
		whole, cut := i.path(path), i.path(temporary(path))
		return removal{"remove " + path, exists(whole) || exists(cut), func() error {
			return errors.Join(os.RemoveAll(cut), os.RemoveAll(whole))
		}}
	}

	all := []removal{{
		does:   "stop and disable " + UnitName + "; the interfaces are the machine's again",
		needed: exists(i.path(unitPath)) || exists(i.path(wantsPath)),
		do: func() error {
			if !exists(i.path(unitPath)) { // the unit was removed, and its link was not
				return os.Remove(i.path(wantsPath))
			}
			return errors.Join(i.Systemctl("stop", UnitName), i.Systemctl("disable", UnitName))
		},
	}, remove(unitPath), {
		does:   "have systemd forget it",
		needed: true,
		do: func() error {
			_ = i.Systemctl("reset-failed", UnitName) // it is known only if it failed
			return i.Systemctl("daemon-reload")
		},
	}}

	for _, name := range []string{planName, mountDir, nextName, previousName, rootName} {
		all = append(all, remove(Dir+"/"+name))
	}
	if !keepData {
		all = append(all, remove(Dir+"/"+dataDir), remove(Dir+"/"+siteDir))
	}
	if r.OwnProgram {
		all = append(all, remove(ProgramPath))
	}
	all = append(all, remove(Dir+"/"+receiptName))
	if !keepData && !isMountRoot(i.path(Dir)) { // a disk of its own was mounted there before
		all = append(all, removal{"remove " + Dir, exists(i.path(Dir)), func() error { return os.Remove(i.path(Dir)) }})
	}

	return all
}

// Uninstall takes the installation away, also one that was begun only, and gives the machine back what it had. With
// keepData, DATA and the site stay, for an installation to come. It may be interrupted and run again.
func (i Installation) Uninstall(keepData bool) error {
	unlock, err := i.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	all, err := i.decideRemovals(keepData)
	if err != nil {
		return err
	}

	for _, one := range all {
		i.report("%s", one.does)
		if err := one.do(); err != nil {
			return fmt.Errorf("%s: %w", one.does, err)
		}
	}
	return nil
}

// Removals is what Uninstall would do, in order.
func (i Installation) Removals(keepData bool) (does []string, err error) {
	all, err := i.decideRemovals(keepData)
	for _, one := range all {
		does = append(does, one.does)
	}
	return does, err
}

func (i Installation) decideRemovals(keepData bool) (needed []removal, err error) {
	r, err := i.Receipt()
	if errors.Is(err, ErrNone) && !keepData && i.isLeftover() || errors.Is(err, errReceipt) { // the program stays
		err = nil
	}
	if err != nil {
		return nil, err
	}

	names := []string{mountDir}
	if !keepData {
		names = append(names, dataDir, siteDir)
	}
	for _, name := range names {
		mount, err := findMount(i.inDir(name))
		if err != nil {
			return nil, err
		}
		if mount != "" {
			return nil, fmt.Errorf("something is mounted at %s, and its files would be removed; unmount it, then run again; "+
				"nothing is changed", mount)
		}
	}

	for _, one := range i.removals(r, keepData) {
		if one.needed {
			needed = append(needed, one)
		}
	}
	return needed, nil
}

// isLeftover reports whether there is a directory without a receipt that holds nothing but what an uninstallation left:
// it was interrupted at its last step, or its data was kept.
func (i Installation) isLeftover() bool {
	info, err := os.Stat(i.path(Dir))
	return err == nil && info.IsDir() && i.findForeign() == "" && info.Mode().Perm()&fs.FileMode(0o077) == 0
}
