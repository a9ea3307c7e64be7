package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/luks"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/bootchain"
)

// enroll writes the owner's keys into firmware that has none, if that is asked, and then restarts the machine and does
// not return. Else it says in a sentence what checks this boot. On the stick only the count of tries is written.
func (k Preparer) enroll(ctx context.Context, boot stick.BootInfo, asked bool) (note string, err error) {
	dir := cmp.Or(k.Variables, bootchain.Variables)
	firmware, err := bootchain.ReadFirmware(dir)
	if err != nil {
		return "", err
	}
	s, err := bootchain.OpenStick(boot)
	if err != nil {
		return "", err
	}

	note = bootchain.Describe(firmware, s)
	if !asked {
		return note, nil
	}
	tries := k.readTries()
	enroll, why := bootchain.Plan(firmware, s, firmware.Setup && k.wouldLock(ctx, boot), tries)
	if !enroll {
		if why != "" {
			return note + " " + why, nil
		}
		if tries > 0 { // the firmware has them
			err = k.saveTries(0)
		}
		return note, err
	}
	if err := k.saveTries(tries + 1); err != nil {
		return note + " The owner's keys are not enrolled, since tries cannot be counted: " + err.Error() + ".", err
	}

	k.Log.Info("the owner's keys are written to the firmware", "try", tries+1)
	if err := bootchain.Enroll(dir, s); err != nil {
		return note + " The owner's keys are not enrolled: " + err.Error() + ".", err
	}
	k.Log.Info("the owner's keys are enrolled: the machine restarts, and starts only what they signed")
	return note, k.restart(ctx)
}

// restart does not return on a real machine, unless that fails. No file system is mounted to be written to yet.
func (k Preparer) restart(ctx context.Context) error {
	if k.Restart != nil {
		return k.Restart()
	}
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART); err != nil {
		return fmt.Errorf("restart: %w", err)
	}
	<-ctx.Done()
	return ctx.Err()
}

// wouldLock reports whether other keys in the firmware would lock DATA: whether the TPM opens it, and nothing else that is
// here.
func (k Preparer) wouldLock(ctx context.Context, boot stick.BootInfo) bool {
	part, ok := boot.Partition(stick.PartitionData)
	if !ok {
		return false // it is made after the restart
	}
	if isPlain(part.Path) {
		return false
	}
	v := volume{k: k, device: part.Path}
	h, err := v.header(ctx)
	if err != nil {
		k.Log.Warn("the header of DATA cannot be read; it may be sealed to the TPM", "err", err)
		return true
	}
	if !slices.ContainsFunc(h.Tokens, func(t token) bool { return t.Way == stick.SealTPM }) {
		return false
	}

	r := &keyring{}
	k.findKeyFile(ctx, r, 0)
	_, _, err = v.find(ctx, h.Tokens, r)
	return err != nil
}

// isPlain reports whether an earlier version made DATA, which is not encrypted.
func isPlain(partition string) bool {
	f, err := os.Open(partition)
	if err != nil {
		return false
	}
	defer f.Close()
	_, err = luks.Read(f)
	return errors.Is(err, luks.ErrNone)
}
