package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"firstlight.dev/firstlight/assets/extent"
	"firstlight.dev/firstlight/assets/stick"
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

	err = copySparse(out, file)
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("assemble %s: %w", inside, err)
	}

	return nil
}

func copySparse(out *os.File, in io.Reader) error {
	buffer, zeros := make([]byte, 1<<16), make([]byte, 1<<16)
	for at := int64(0); ; {
		n, err := io.ReadFull(in, buffer)
		if n > 0 && !bytes.Equal(buffer[:n], zeros[:n]) {
			if _, err := out.WriteAt(buffer[:n], at); err != nil {
				return err
			}
		}

		at += int64(n)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return out.Truncate(at)
		}
		if err != nil {
			return err
		}
	}
}
