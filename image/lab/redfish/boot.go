package redfish

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/image/lab/bmc"
)

// Properties of ComputerSystem.Boot and their values (DSP0268).
const (
	propertyTarget  = "BootSourceOverrideTarget"
	propertyEnabled = "BootSourceOverrideEnabled"
	propertyMode    = "BootSourceOverrideMode"

	targetNone     = "None"
	enabledNever   = "Disabled"
	enabledOnce    = "Once"
	enabledForever = "Continuous"
	modeUEFI       = "UEFI"
	modeLegacy     = "Legacy"
)

// Values of ResetType (DSP0268): the buttons that a machine of the lab has.
const (
	resetOn       = "On"
	resetOff      = "ForceOff"
	resetShutDown = "GracefulShutdown"
	resetRestart  = "ForceRestart"
)

// devices are what a machine may be told to boot from, as package bmc names it.
var devices = map[string]string{
	targetNone: bmc.BootNone,
	"Hdd":      bmc.BootNone, // which begins with the disks
	"Pxe":      bmc.BootNetwork,
	"Cd":       bmc.BootMedia,
}

func targets() []string { return []string{targetNone, "Hdd", "Pxe", "Cd"} }

func resetTypes() []string { return []string{resetOn, resetOff, resetShutDown, resetRestart} }

// boot is what overrides the order in which the firmware boots.
type boot struct {
	Target  string // one of targets
	Enabled string // for no start, the next one, or all
}

// next is the device that the machine starts from now, and what overrides its later starts.
func (o boot) next() (device string, rest boot) {
	if o.Enabled == enabledNever {
		return bmc.BootNone, o
	}
	if o.Enabled == enabledOnce {
		return devices[o.Target], boot{Target: targetNone, Enabled: enabledNever}
	}

	return devices[o.Target], o
}

// bootChange is what a client wants of the system's Boot; nil leaves it as it is.
type bootChange struct {
	Target  *string `json:"BootSourceOverrideTarget"`
	Enabled *string `json:"BootSourceOverrideEnabled"`
	Mode    *string `json:"BootSourceOverrideMode"`
}

// change applies what a client wants. The mode is that of the firmware, which a machine of the lab has for good. The
// error is for the client.
func (o boot) change(want bootChange, mode string) (boot, error) {
	for _, property := range []struct {
		name    string
		value   *string
		allowed []string
	}{
		{propertyTarget, want.Target, targets()},
		{propertyEnabled, want.Enabled, []string{enabledNever, enabledOnce, enabledForever}},
		{propertyMode, want.Mode, []string{mode}},
	} {
		if property.value != nil && !slices.Contains(property.allowed, *property.value) {
			return o, fmt.Errorf("the value %q of the property %s is not among %s",
				*property.value, property.name, strings.Join(property.allowed, ", "))
		}
	}

	if want.Target != nil {
		o.Target = *want.Target
	}

	if want.Enabled != nil {
		o.Enabled = *want.Enabled
	}

	return o, nil
}

// bootFile is what overrides the order in which the firmware boots: like a BMC's, it outlives a power cut.
const bootFile = "boot.json"

func loadBoot(dir string) (boot, error) {
	text, err := os.ReadFile(filepath.Join(dir, bootFile))
	if errors.Is(err, fs.ErrNotExist) {
		return boot{Target: targetNone, Enabled: enabledNever}, nil
	}
	if err != nil {
		return boot{}, err
	}

	var o boot
	if err := json.Unmarshal(text, &o); err != nil {
		return boot{}, fmt.Errorf("read %s: %w", bootFile, err)
	}

	return o, nil
}

// saveBoot is b.boot from now on. b.mu is held.
func (b *BMC) saveBoot(o boot) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(b.config.Dir, bootFile), text, 0o644); err != nil {
		return err
	}

	b.boot = o
	return nil
}

func (b *BMC) mode() string {
	if b.config.UEFI {
		return modeUEFI
	}
	return modeLegacy
}

// reset presses a button. b.mu is held.
func (b *BMC) reset(button string) error {
	switch button {
	case resetOff:
		return b.machine.SwitchOff()
	case resetShutDown:
		return b.machine.ShutDown()
	case resetRestart:
		if err := b.machine.SwitchOff(); err != nil {
			return err
		}
	}

	if b.machine.IsOn() { // an override is for a start
		return nil
	}

	device, rest := b.boot.next()
	if err := b.machine.SwitchOn(device); err != nil {
		return err
	}

	return b.saveBoot(rest)
}
