package stick

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// EnvironmentPath is the boot loader's memory on the ESP, and EnvironmentSize its length in bytes. The file is written
// in its place, by GRUB and by the daemon, and never grows: no table of the file system changes.
const (
	EnvironmentPath = "/EFI/debian/grubenv"
	EnvironmentSize = 1024
)

// EnvironmentSector is how much of the file ever changes: what it says fits into the first sector, and one sector is
// written whole or not at all.
const EnvironmentSector = 512

// environmentHeader begins every environment block (GRUB manual, "The GRUB environment block").
const environmentHeader = "# GRUB Environment Block\n"

// Environment is what the boot loader remembers.
type Environment struct {
	Slot Slot // that is started
	Try  Slot // that is started once instead, "" for none. GRUB takes it out before it starts the slot
}

// Encode gives the block.
func (e Environment) Encode() []byte {
	text := environmentHeader + "slot=" + string(e.Slot) + "\n"
	if e.Try != "" {
		text += "try=" + string(e.Try) + "\n"
	}
	return append([]byte(text), bytes.Repeat([]byte("#"), EnvironmentSize-len(text))...)
}

// ParseEnvironment reads a block that Encode or GRUB has written. As in grub.cfg, a slot that it does not name is a. As
// GRUB does, it takes no line that does not end: that of a sector of which a power cut left the beginning.
func ParseEnvironment(block []byte) (Environment, error) {
	text, ok := strings.CutPrefix(string(block), environmentHeader)
	if !ok || len(block) != EnvironmentSize {
		return Environment{}, errors.New("no environment block of GRUB, which has 1024 bytes")
	}

	e := Environment{Slot: SlotA}
	for line := range strings.Lines(text) {
		name, value, set := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if !set || strings.HasPrefix(line, "#") || !strings.HasSuffix(line, "\n") {
			continue
		}

		slot := Slot(value)
		switch {
		case name != "slot" && name != "try":
			// Not ours.
		case name == "try" && (slot == "" || slot == SlotA || slot == SlotB):
			e.Try = slot
		case name == "slot" && (slot == SlotA || slot == SlotB):
			e.Slot = slot
		default:
			return Environment{}, fmt.Errorf("environment block: %s=%q is neither %s nor %s", name, value, SlotA, SlotB)
		}
	}

	return e, nil
}
