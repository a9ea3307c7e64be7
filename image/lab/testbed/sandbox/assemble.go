package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"firstlight.dev/firstlight/assets/extent"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/image/disk"
)

// Assemble writes a file of the sandbox, which may be kept without its shared extents, to a file of this machine.
// Where it has zeros the file has holes.
func (b *Sandbox) Assemble(inside, to string) error {
	file, err := extent.Open(os.DirFS(b.Path(stick.LowerDir)), strings.TrimPrefix(inside, "/"))
	if err != nil {
		return fmt.Errorf("assemble %s: %w", inside, err)
	}
	defer file.Close()

	out, err := os.Create(to)
	if err != nil {
		return fmt.Errorf("assemble %s: %w", inside, err)
	}

	size, err := disk.CopySparse(context.Background(), out, file)
	if err == nil {
		err = out.Truncate(size)
	}
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("assemble %s: %w", inside, err)
	}

	return nil
}
