package initramfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"firstlight.dev/firstlight/image/firmware"
	"firstlight.dev/firstlight/image/tree"
)

// Files in the directory that WriteWithKernel makes.
const (
	KernelFile    = "vmlinuz"
	InitramfsFile = "initramfs.img"
)

// WriteWithKernel makes a directory with the kernel that a glob finds in a root and the initramfs that fits it.
// init is the file of firstlight-init.
func WriteWithKernel(root *tree.Tree, kernel, init, dir string) error {
	found, err := root.OnlyFile(kernel)
	if err != nil {
		return err
	}

	content, err := root.ReadFile(found)
	if err != nil {
		return err
	}

	program, err := os.ReadFile(init)
	if err != nil {
		return fmt.Errorf("make initramfs: %w", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("make initramfs: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, KernelFile), content, 0o644); err != nil {
		return fmt.Errorf("take kernel: %w", err)
	}

	release := strings.TrimPrefix(path.Base(found), "vmlinuz-")
	source := Source{
		Init:     program,
		Release:  release,
		Modules:  root.FS("/usr/lib/modules/" + release),
		Firmware: func(name string) (map[string][]byte, error) { return firmware.Files(root, name) },
	}
	if root.Get(firmware.MicrocodePath) != nil {
		if source.Microcode, err = root.ReadFile(firmware.MicrocodePath); err != nil {
			return fmt.Errorf("take microcode: %w", err)
		}
	}

	return writeFile(filepath.Join(dir, InitramfsFile), func(w io.Writer) error {
		_, err := Build(w, source)
		return err
	})
}

// WriteTree writes a whole root to a file, as archives one behind the other, which the kernel unpacks one over the
// other (Linux, Documentation/driver-api/early-userspace/buffer-format.rst): first, as they are, the archive of
// microcode and the files that are compressed already, and then the rest, compressed. What lies as it is can be
// shared with a root that has the same files.
func WriteTree(root *tree.Tree, file string) error {
	return writeFile(file, func(w io.Writer) error {
		counted := &counter{w: w}
		if root.Get(firmware.MicrocodePath) != nil {
			microcode, err := root.ReadFile(firmware.MicrocodePath)
			if err != nil {
				return err
			}
			if _, err := counted.Write(microcode); err != nil {
				return err
			}
		}

		modules, rest := root.Divide(isCompressed)
		rest.Remove(firmware.MicrocodePath)
		if err := modules.WriteCpio(counted); err != nil {
			return err
		}
		if _, err := counted.Write(make([]byte, (padding-counted.n%padding)%padding)); err != nil {
			return err
		}

		z, err := newCompressor(w, zstd.SpeedBestCompression)
		if err != nil {
			return err
		}

		return errors.Join(rest.WriteCpio(z), z.Close())
	})
}

func writeFile(file string, write func(io.Writer) error) error {
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("make initramfs: %w", err)
	}
	return errors.Join(write(f), f.Close())
}

// newCompressor has one worker: with several the block boundaries, and so the bytes, depend on timing.
// The kernel's decompressor takes windows of up to 8 MiB.
func newCompressor(w io.Writer, level zstd.EncoderLevel) (*zstd.Encoder, error) {
	return zstd.NewWriter(w, zstd.WithEncoderLevel(level), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(8<<20))
}

// isCompressed picks the kernel's modules as Debian has them, and firmware.
func isCompressed(name string) bool {
	return strings.HasSuffix(name, ".ko.xz") ||
		strings.HasPrefix(path.Join("/", name), firmware.Dir+"/") && strings.HasSuffix(name, ".xz")
}

// padding is where the second archive may begin: the kernel wants 4, other programs 512.
const padding = 512

// counter counts what is written.
type counter struct {
	w io.Writer
	n int
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += n
	return n, err
}
