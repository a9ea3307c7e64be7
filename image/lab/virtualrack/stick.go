package virtualrack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/lab"
)

// stickDone is left beside the appliance's overlay once the site is on it.
const stickDone = "site-is-on-the-stick"

// writeStick makes the appliance's stick: an overlay of the image with the site on its SITE
// partition. Done once; the stick then lives its own life.
func writeStick(ctx context.Context, m *lab.Machine, document string) error {
	c := m.Config()
	done := filepath.Join(c.Dir, stickDone)
	if _, err := os.Stat(done); err == nil {
		return nil
	}

	overlay := filepath.Join(c.Dir, "disk0.qcow2")
	if err := os.Remove(overlay); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write stick: %w", err)
	}
	if _, _, err := m.Prepare(); err != nil {
		return fmt.Errorf("write stick: %w", err)
	}

	image, err := os.Open(c.Disks[0].Image)
	if err != nil {
		return fmt.Errorf("write stick: %w", err)
	}
	defer image.Close()

	part, err := os.OpenFile(filepath.Join(c.Dir, "site.fat"), os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("write stick: %w", err)
	}
	defer part.Close()
	defer os.Remove(part.Name())

	file := disk.File{
		Path: "site.yaml",
		Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(document)), nil },
	}
	at, err := disk.CopyFAT(ctx, image, stick.PartitionSite, part, file)
	if err != nil {
		return fmt.Errorf("write stick: %w", err)
	}

	info, err := part.Stat()
	if err != nil {
		return fmt.Errorf("write stick: %w", err)
	}

	order := fmt.Sprintf("write -q -s %s %d %d", part.Name(), at, info.Size())
	if out, err := exec.CommandContext(
		ctx, "qemu-io", "-f", "qcow2", "-c", order, overlay,
	).CombinedOutput(); err != nil {
		return fmt.Errorf("write stick: qemu-io %s: %w: %s", order, err, out)
	}

	return os.WriteFile(done, nil, 0o600)
}
