package initrd

import (
	"encoding/hex"
	"fmt"
	"strings"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/stick"
)

// params is what the boot loader told us.
type params struct {
	esp     string // unique GUID of the ESP, lower case
	slot    stick.Slot
	trial   bool   // started for the first time
	verity  string // root hash of the slot's root
	version string // of the image
}

// parseParams reads the kernel command line; ESP and root hash are required.
func parseParams(cmdline string) (params, error) {
	// A boot loader's file that somebody wrote by hand may name neither.
	p := params{version: assets.Version, slot: stick.SlotA}
	for _, word := range strings.Fields(cmdline) {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case stick.ParamESP:
			p.esp = strings.ToLower(value)
		case stick.ParamSlot:
			p.slot = stick.Slot(value)
		case stick.ParamTrial:
			p.trial = true
		case stick.ParamVerity:
			p.verity = strings.ToLower(value)
		case stick.ParamVersion:
			p.version = value
		}
	}

	if _, err := gpt.ParseGUID(p.esp); err != nil {
		return p, fmt.Errorf("kernel parameter %s=%q is not a partition's GUID; the boot loader sets it, see %s on the ESP",
			stick.ParamESP, p.esp, stick.GrubConfigPath)
	}
	if p.slot != stick.SlotA && p.slot != stick.SlotB {
		return p, fmt.Errorf("kernel parameter %s=%q is neither %s nor %s; the boot loader sets it, see %s on the ESP",
			stick.ParamSlot, p.slot, stick.SlotA, stick.SlotB, stick.GrubConfigPath)
	}
	if !isHex(p.verity, 32) {
		return p, fmt.Errorf("kernel parameter %s=%q is not a root hash of 64 digits; the builder writes it to %s on %s",
			stick.ParamVerity, p.verity, stick.SlotConfigName, p.slot.Boot())
	}

	return p, nil
}

// isHex reports whether s is so many bytes in lower-case hexadecimal digits.
func isHex(s string, bytes int) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == bytes && s == strings.ToLower(s)
}
