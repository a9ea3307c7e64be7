// Package drivers checks that kernel modules are complete: whatever one of them needs is there too. depmod
// says nothing when it is not, and the driver then fails on the one computer that has the device.
package drivers

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Check reads every module below dir, a directory such as /usr/lib/modules/6.12, and names those that need
// one that is neither there nor built into the kernel.
func Check(dir fs.FS) error {
	builtin, err := fs.ReadFile(dir, "modules.builtin")
	if err != nil {
		return fmt.Errorf("check drivers: %w", err)
	}

	there := map[string]bool{}
	for name := range strings.FieldsSeq(string(builtin)) {
		there[ModuleName(name)] = true
	}

	var files []string
	err = fs.WalkDir(dir, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.Contains(path.Base(name), ".ko") {
			files = append(files, name)
			there[ModuleName(name)] = true
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("check drivers: %w", err)
	}
	if len(files) == 0 {
		return errors.New("check drivers: there are none")
	}

	return checkFiles(dir, files, there)
}

func checkFiles(dir fs.FS, files []string, there map[string]bool) error {
	var mu sync.Mutex
	var missing []string
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, file := range files {
		group.Go(func() error {
			needs, err := readNeeds(dir, file)
			if err != nil {
				return fmt.Errorf("check driver %s: %w", file, err)
			}

			for _, need := range needs {
				if !there[need] {
					mu.Lock()
					missing = append(missing, fmt.Sprintf("%s needs %s", file, need))
					mu.Unlock()
				}
			}

			return nil
		})
	}

	if err := group.Wait(); err != nil {
		return err
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return fmt.Errorf("drivers are not complete; leave out both or none: %s", strings.Join(missing, ", "))
	}

	return nil
}

// readNeeds returns the modules that one depends on, by the kernel's names (scripts/mod/modpost.c, depends).
func readNeeds(dir fs.FS, file string) ([]string, error) {
	info, err := ReadInfo(dir, file)
	if err != nil {
		return nil, err
	}

	if list := strings.Join(info["depends"], ","); list != "" {
		return strings.Split(CanonicalName(list), ","), nil
	}

	return nil, nil
}
