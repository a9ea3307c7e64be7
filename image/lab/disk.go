package lab

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// drive is the file behind a Disk.
type drive struct{ path, format string }

// prepareDisk returns the file a machine writes to. An overlay that is already there is
// kept: it is the same disk at the next start.
func prepareDisk(dir string, i int, d Disk) (drive, error) {
	if d.Direct {
		return drive{d.Image, "raw"}, nil
	}

	path := filepath.Join(dir, fmt.Sprintf("disk%d.qcow2", i))
	if _, err := os.Stat(path); err == nil {
		return drive{path, "qcow2"}, nil
	}

	args := []string{"create", "-q", "-f", "qcow2"}
	if d.Image != "" {
		image, err := filepath.Abs(d.Image)
		if err != nil {
			return drive{}, fmt.Errorf("prepare disk %s: %w", d.Image, err)
		}
		args = append(args, "-F", "raw", "-b", image)
	}

	args = append(args, path)
	if d.Bytes > 0 {
		args = append(args, strconv.FormatInt(d.Bytes, 10))
	}

	if out, err := exec.Command("qemu-img", args...).CombinedOutput(); err != nil {
		return drive{}, fmt.Errorf("prepare disk %s: qemu-img: %w: %s", d.Image, err, out)
	}

	return drive{path, "qcow2"}, nil
}

// firmwareDirs is where distributions keep OVMF.
var firmwareDirs = []string{"/usr/share/OVMF", "/usr/share/ovmf", "/usr/share/edk2/x64"}

// prepareFirmware finds OVMF and gives the machine its own variables, kept between
// starts. Nothing to do for BIOS.
func prepareFirmware(dir string, f Firmware) (firmwareFiles, error) {
	found, err := findFirmware(f)
	if err != nil || found.Code == "" {
		return found, err
	}

	own := filepath.Join(dir, "vars.fd")
	if err := copyOnce(found.Vars, own); err != nil {
		return firmwareFiles{}, err
	}

	found.Vars = own
	return found, nil
}

// findFirmware is where a firmware is installed; empty for BIOS, which QEMU brings along.
func findFirmware(f Firmware) (firmwareFiles, error) {
	var code, vars string
	switch f {
	case BIOS:
		return firmwareFiles{}, nil
	case UEFI:
		code, vars = "OVMF_CODE_4M.fd", "OVMF_VARS_4M.fd"
	case SecureBoot:
		code, vars = "OVMF_CODE_4M.ms.fd", "OVMF_VARS_4M.ms.fd"
	case SetupMode:
		code, vars = "OVMF_CODE_4M.secboot.fd", "OVMF_VARS_4M.fd"
	default:
		return firmwareFiles{}, fmt.Errorf(
			"prepare firmware: %q is not known; use %s, %s, %s or %s", f, BIOS, UEFI, SecureBoot, SetupMode,
		)
	}

	for _, d := range firmwareDirs {
		if _, err := os.Stat(filepath.Join(d, code)); err == nil {
			return firmwareFiles{Code: filepath.Join(d, code), Vars: filepath.Join(d, vars)}, nil
		}
	}

	return firmwareFiles{}, fmt.Errorf(
		"prepare firmware: %s is in none of %v; install the package ovmf", code, firmwareDirs,
	)
}

// CheckFirmware tells whether machines with this firmware can start: its error says what to install.
func CheckFirmware(f Firmware) error {
	_, err := findFirmware(f)
	return err
}

// copyOnce copies from to to unless to is there.
func copyOnce(from, to string) error {
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	defer dst.Close()

	src, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	defer src.Close()

	if _, err := io.Copy(dst, src); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}

	return dst.Close()
}
