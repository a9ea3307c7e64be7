package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/image/cache"
	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/recipe"
	"firstlight.dev/firstlight/image/tree"
)

// initramfsArtifact is a whole root as initramfs: cpio, zstd.
func (b *build) initramfsArtifact(ctx context.Context, a *recipe.Artifact) (cache.Item, error) {
	root := b.r.Root(a.Root)
	in, err := b.rootInputs(root)
	if err != nil {
		return cache.Item{}, err
	}
	return b.makePart(ctx, "artifact", a.Name, in, func(out string) error {
		t, err := b.rootTree(root)
		if err != nil {
			return err
		}
		f, err := os.Create(out)
		if err != nil {
			return fmt.Errorf("make artifact %s: %w", a.Name, err)
		}
		if err := errors.Join(writeInitramfs(f, t), f.Close()); err != nil {
			return fmt.Errorf("make artifact %s: %w", a.Name, err)
		}
		return nil
	})
}

// writeInitramfs writes a tree as two archives one behind the other, which the kernel unpacks one over the
// other (Linux, Documentation/driver-api/early-userspace/buffer-format.rst): first, as they are, the files that
// are compressed already, and then the rest, compressed. What lies as it is can be shared with a root that has
// the same files.
func writeInitramfs(w io.Writer, t *tree.Tree) error {
	packed, rest := t.Divide(isPacked)
	counted := &counter{w: w}
	if err := packed.WriteCpio(counted); err != nil {
		return err
	}
	if _, err := counted.Write(make([]byte, (cpioPadding-counted.n%cpioPadding)%cpioPadding)); err != nil {
		return err
	}
	// One worker: with several the bytes depend on timing. The kernel takes windows of up to 8 MiB.
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(8<<20))
	if err != nil {
		return err
	}
	return errors.Join(rest.WriteCpio(z), z.Close())
}

// isPacked tells the kernel's modules as Debian has them.
func isPacked(name string) bool { return strings.HasSuffix(name, ".ko.xz") }

// cpioPadding is where the second archive may begin: the kernel wants 4, other programs 512.
const cpioPadding = 512

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

// espSize is what a node's disk has besides its root: both tables, BIOS boot and ESP.
const espSize = 48 << 20

// diskArtifact is a whole root as a disk that boots by BIOS and UEFI. The root has its
// own kernel and initramfs, as Debian's packages make them.
func (b *build) diskArtifact(ctx context.Context, a *recipe.Artifact) (cache.Item, error) {
	root := b.r.Root(a.Root)
	in, err := b.rootInputs(root)
	if err != nil {
		return cache.Item{}, err
	}
	code, err := b.codeDigest(codeOfDisks)
	if err != nil {
		return cache.Item{}, err
	}
	settings, err := json.Marshal([]string{a.Size, a.CmdLine})
	if err != nil {
		return cache.Item{}, err
	}
	in["tools"], in["boot loaders"] = b.packages[b.r.Stick.Tools].Digest, b.packages[b.r.Stick.Boot].Digest
	in["its settings"], in["the code that writes disks"] = cache.Key(string(settings)), code
	return b.makePart(ctx, "artifact", a.Name, in, func(out string) error { return b.writeNodeDisk(ctx, a, root, out) })
}

func (b *build) writeNodeDisk(ctx context.Context, a *recipe.Artifact, root *recipe.Root, out string) error {
	size, err := recipe.ParseBytes(a.Size)
	if err != nil {
		return a.Errorf("%v", err)
	}
	if size <= 2*espSize {
		return a.Errorf("size %s leaves no room for a root; give more than %d MiB", a.Size, 2*espSize>>20)
	}
	t, err := b.rootTree(root)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(out), "disk-")
	if err != nil {
		return fmt.Errorf("make artifact %s: %w", a.Name, err)
	}
	tar, ext4 := filepath.Join(dir, "root.tar"), filepath.Join(dir, "root.ext4")
	if err := writeTar(t, tar); err != nil {
		return err
	}
	options := disk.Ext4Options{Label: "ROOT", UUID: uuid("root", a.Name), HashSeed: uuid("hash seed", a.Name), Size: size - espSize, Stamp: time.Unix(b.l.Epoch, 0)}
	if err := disk.Ext4(ctx, b.tool("sbin/mke2fs"), tar, ext4, options); err != nil {
		return err
	}
	config, err := nodeGrubConfig(t, options.UUID, a.CmdLine)
	if err != nil {
		return a.Errorf("%v", err)
	}
	esp := append(b.bootFiles(), disk.File{Path: stick.GrubConfigPath[1:], Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(config)), nil }})
	boot, core, err := b.biosGrub(ctx)
	if err != nil {
		return err
	}
	layout, err := disk.Node{ESP: esp, Root: ext4, Boot: boot, Core: core, Size: size}.Layout()
	if err != nil {
		return err
	}
	return disk.Write(ctx, out, layout)
}

// nodeGrubConfig is what GRUB reads on the ESP: it goes to the root's own configuration
// if there is one, else it starts the root's one kernel.
func nodeGrubConfig(t *tree.Tree, rootUUID, cmdline string) ([]byte, error) {
	text := fmt.Sprintf("search --no-floppy --fs-uuid --set=root %s\n", rootUUID)
	if t.Get("/boot/grub/grub.cfg") != nil {
		return []byte(text + "set prefix=($root)/boot/grub\nconfigfile /boot/grub/grub.cfg\n"), nil
	}
	kernel, err := onlyFile(t, "/boot/vmlinuz-*")
	if err != nil {
		return nil, err
	}
	initrd, err := onlyFile(t, "/boot/initrd.img-*")
	if err != nil {
		return nil, err
	}
	text += fmt.Sprintf("linux %s root=UUID=%s %s\ninitrd %s\nboot\n", path.Join("/", kernel), rootUUID, cmdline, path.Join("/", initrd))
	return []byte(text), nil
}

// uuid derives an identity that is the same in every build (RFC 9562 §5.8, version 8).
func uuid(what, name string) string {
	h := sha256.Sum256([]byte("firstlight " + what + " " + name))
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16])
}
