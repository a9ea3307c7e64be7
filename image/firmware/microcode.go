package firmware

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/u-root/u-root/pkg/cpio"

	"firstlight.dev/firstlight/image/tree"
)

// MicrocodePath is the archive of microcode in a root. It goes, as it is, in front of an initramfs: the kernel reads
// it before it starts the other processors (Linux, Documentation/arch/x86/microcode.rst, early load microcode).
const MicrocodePath = Dir + "/microcode.cpio"

// makers are the kernel's files of microcode, and what Debian's packages have for each.
var makers = []struct {
	file, glob string
	divide     func(content []byte) ([][]byte, error) // into updates; nil: a file is one
}{
	{"kernel/x86/microcode/AuthenticAMD.bin", Dir + "/amd-ucode/microcode_amd*.bin", nil},
	{"kernel/x86/microcode/GenuineIntel.bin", Dir + "/intel-ucode/*", divideIntel},
}

// cpioHeader is the size of a record before its name (cpio(5), new ASCII format), in bytes.
const cpioHeader = 110

// alignment is where microcode begins in memory: Intel's processors take it in units of 16 bytes (SDM volume 3A,
// section 11.11.6), and the kernel hands it to the first one where the boot loader put the archive.
const alignment = 16

// microcode returns an uncompressed cpio archive of all microcode in packages; nil if there is none. What is there
// several times, for several processors, is in the archive once: each update says itself what it is for.
func microcode(packages *tree.Tree) ([]byte, error) {
	var b bytes.Buffer
	w := cpio.Newc.Writer(&b)
	ino := uint64(0)
	write := func(r cpio.Record) error {
		ino++
		r = cpio.MakeReproducible(r)
		r.Ino = ino // equal numbers would be taken for hard links
		return w.WriteRecord(r)
	}

	for _, dir := range []string{"kernel", "kernel/x86", "kernel/x86/microcode"} {
		if err := write(cpio.Directory(dir, 0o755)); err != nil {
			return nil, fmt.Errorf("write microcode: %w", err)
		}
	}

	found := false
	for _, maker := range makers {
		content, err := joinOnce(packages, maker.glob, maker.divide)
		if err != nil {
			return nil, fmt.Errorf("write microcode: %w", err)
		}
		if len(content) == 0 {
			continue
		}

		found = true
		name := alignedName(maker.file, b.Len())
		if err := write(cpio.StaticFile(name, string(content), 0o644)); err != nil {
			return nil, fmt.Errorf("write microcode: %w", err)
		}
	}

	if !found {
		return nil, nil
	}
	if err := cpio.WriteTrailer(w); err != nil {
		return nil, fmt.Errorf("write microcode: %w", err)
	}

	// What follows in an initramfs begins where other programs, too, look for it.
	const block = 512
	b.Write(make([]byte, (block-b.Len()%block)%block))
	return b.Bytes(), nil
}

// alignedName returns a file's name with as many zero bytes at its end that its content, in a record at offset at,
// is aligned. The kernel, and whoever reads names as C does, sees the name alone.
func alignedName(name string, at int) string {
	begin := at + cpioHeader + len(name) + 1
	return name + strings.Repeat("\x00", (alignment-begin%alignment)%alignment)
}

// joinOnce joins the updates in the files that a glob finds, each once, in the order of the files' names.
func joinOnce(t *tree.Tree, glob string, divide func([]byte) ([][]byte, error)) ([]byte, error) {
	var joined []byte
	seen := map[string]bool{}
	for _, p := range t.Paths(glob) {
		content, err := t.ReadFile(p)
		if err != nil {
			return nil, err
		}

		updates := [][]byte{content}
		if divide != nil {
			if updates, err = divide(content); err != nil {
				return nil, fmt.Errorf("%s: %w", p, err)
			}
		}

		for _, update := range updates {
			if !seen[string(update)] {
				seen[string(update)] = true
				joined = append(joined, update...)
			}
		}
	}
	return joined, nil
}

// Intel's updates begin with a header that says how long the update is (SDM volume 3A, section 11.11.1).
const (
	intelHeader   = 48   // bytes
	intelDataSize = 28   // offset of the size of the data, in bytes; 0: the update has intelTotal bytes
	intelAllSize  = 32   // offset of the size of header, data and table of signatures, in bytes
	intelTotal    = 2048 // bytes of an update that does not say its size
)

// divideIntel divides a file into its updates.
func divideIntel(content []byte) (updates [][]byte, err error) {
	for len(content) > 0 {
		if len(content) < intelHeader {
			return nil, fmt.Errorf("its last %d bytes are no update of microcode", len(content))
		}

		size := uint32(intelTotal)
		if binary.LittleEndian.Uint32(content[intelDataSize:]) != 0 {
			size = binary.LittleEndian.Uint32(content[intelAllSize:])
		}
		if size < intelHeader || int64(size) > int64(len(content)) {
			return nil, fmt.Errorf("an update of microcode is to have %d bytes, and %d follow", size, len(content))
		}

		updates = append(updates, content[:size])
		content = content[size:]
	}
	return updates, nil
}
