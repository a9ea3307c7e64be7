package flash

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Find looks up what path leads to: a block device, through links such as those below
// /dev/disk/by-id, or a regular file.
func (w SysFS) Find(name string) (Device, error) {
	real, err := filepath.EvalSymlinks(name)
	if errors.Is(err, fs.ErrNotExist) {
		return Device{}, fmt.Errorf("find device: %s does not exist; firstlight flash --list names the disks of this machine", name)
	}
	if err != nil {
		return Device{}, fmt.Errorf("find device: %w", err)
	}

	info, err := os.Stat(real)
	if err != nil {
		return Device{}, fmt.Errorf("find device: %w", err)
	}

	switch {
	case info.Mode().IsRegular():
		return Device{
			Name:   name,
			Path:   name,
			Model:  "regular file",
			Bytes:  info.Size(),
			Sector: 512,
			File:   true,
		}, nil
	case info.Mode()&fs.ModeDevice != 0 && info.Mode()&fs.ModeCharDevice == 0:
		return w.Device(strings.ReplaceAll(strings.TrimPrefix(real, "/dev/"), "/", "!"))
	}

	return Device{}, fmt.Errorf("find device %s: it is neither a block device nor a regular file", name)
}

// HostSysFS is the machine that this runs on.
func HostSysFS() SysFS { return SysFS{Sys: os.DirFS("/sys"), Proc: os.DirFS("/proc")} }
