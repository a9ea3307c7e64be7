package accelerator

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"firstlight.dev/firstlight/image/lab/process"
)

// The trial ends QEMU through its isa-debug-exit: what is written there, shifted left, plus one, is its exit code.
const (
	exitPort  = 0xf4
	exitValue = 0x20
	exitCode  = exitValue<<1 | 1
)

const sectorSize = 512

// bootSector is the trial's program, a boot sector: it does rounds of work and ends QEMU. A round is what code
// does that is no arithmetic alone, and what costs an emulator something: it calls, returns, and
// changes memory.
func bootSector(rounds uint32) []byte {
	b := []byte{
		0xfa,       // cli
		0x31, 0xc0, // xor ax, ax
		0x8e, 0xd8, // mov ds, ax
		0x8e, 0xd0, // mov ss, ax
		0xbc, 0x00, 0x70, // mov sp, 0x7000: not in this program's page, which an emulator translates anew when it changes
		0xbb, 0x00, 0x50, // mov bx, 0x5000: free as well
		0x66, 0xb9, // mov ecx, rounds
	}
	b = binary.LittleEndian.AppendUint32(b, rounds)
	return append(append(b,
		0x66, 0x85, 0xc9, // again: test ecx, ecx
		0x74, 0x07, // jz done
		0xe8, 0x0b, 0x00, // call work
		0x66, 0x49, // dec ecx
		0xeb, 0xf4, // jmp again
		0xb0, exitValue, // done: mov al, exitValue
		0xe6, exitPort, // out exitPort, al
		0xf4,       // halt: hlt
		0xeb, 0xfd, // jmp halt
		0x66, 0x01, 0x0f, // work: add [bx], ecx
		0x80, 0xc3, 0x04, // add bl, 4
		0xc3, // ret
	), make([]byte, sectorSize)...)
}

// diskImage is a disk that boots the program. SeaBIOS reads none that is as small as a sector.
func diskImage(rounds uint32) []byte {
	disk := make([]byte, 1<<20)
	copy(disk, bootSector(rounds)[:sectorSize-2])
	copy(disk[sectorSize-2:], []byte{0x55, 0xaa})
	return disk
}

// run starts a machine as the lab's are, of two processors, has it do rounds of work, and returns how long that
// took from its start to its end. The machine is gone when it returns.
func (k Kind) run(ctx context.Context, rounds uint32) (time.Duration, error) {
	dir, err := os.MkdirTemp("", "firstlight-trial-")
	if err != nil {
		return 0, fmt.Errorf("try a machine: %w", err)
	}
	defer os.RemoveAll(dir)

	disk := filepath.Join(dir, "disk")
	if err := os.WriteFile(disk, diskImage(rounds), 0o600); err != nil {
		return 0, fmt.Errorf("try a machine: %w", err)
	}

	var said bytes.Buffer
	cmd := exec.Command("qemu-system-x86_64", append(k.Args(), "-machine", "q35", "-smp", "2", "-m", "64",
		"-display", "none", "-monitor", "none", "-no-user-config", "-nodefaults", "-vga", "none", "-nic", "none",
		"-device", fmt.Sprintf("isa-debug-exit,iobase=%#x,iosize=1", exitPort),
		"-drive", "if=none,id=disk,format=raw,file="+strings.ReplaceAll(
			disk, ",", ",,",
		), "-device", "virtio-blk-pci,drive=disk,bootindex=1")...)
	cmd.Stdout, cmd.Stderr = &said, &said
	began := time.Now()
	machine, err := process.Start(cmd)
	if err != nil {
		return 0, err
	}
	defer machine.Kill()

	select {
	case <-machine.Done():
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}

	var exit *exec.ExitError
	if errors.As(machine.Err(), &exit) && exit.ExitCode() == exitCode {
		return time.Since(began), nil
	}

	return 0, fmt.Errorf("QEMU ended with %v: %s", machine.Err(), firstLine(said.String()))
}

// firstLine is the first line that is no warning.
func firstLine(text string) string {
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "warning: ") {
			return strings.TrimSpace(line)
		}
	}
	return "it said nothing"
}
