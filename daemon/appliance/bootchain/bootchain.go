// Package bootchain looks at what checks the appliance's boot before its root does: the firmware with its keys, and what
// on the stick those keys have signed. It writes the owner's keys into firmware that has none, when the site asks for it.
package bootchain

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/fat"
	"firstlight.dev/firstlight/assets/secureboot"
	"firstlight.dev/firstlight/assets/stick"
)

// Variables is where Linux has the firmware's variables.
const Variables = "/sys/firmware/efi/efivars"

// attributesSize is what a file there begins with: the variable's attributes.
const attributesSize = 4

// Firmware is what the firmware says of itself.
type Firmware struct {
	UEFI     bool // else BIOS, and nothing else is said
	Hidden   bool // its variables are not there: nothing else is known
	Enforced bool // it starts only what a key of db has signed
	Setup    bool // it has no PK: whoever runs may write its keys
	Trusted  []*x509.Certificate
	Digests  int // of programs that it starts besides
}

// ReadFirmware reads that from dir, Variables on a real machine.
func ReadFirmware(dir string) (Firmware, error) {
	f := Firmware{}
	enforced, err := readVariable(dir, secureboot.Enforced)
	if errors.Is(err, fs.ErrNotExist) {
		// A BIOS has no such directory; UEFI before Secure Boot has no such variable, and others: efivarfs that is not
		// mounted, or a kernel without the firmware's services, has none at all.
		_, err := os.Stat(filepath.Dir(dir))
		f.UEFI = err == nil
		variables, err := os.ReadDir(dir)
		f.Hidden = f.UEFI && (err != nil || len(variables) == 0)
		return f, nil
	}
	if err != nil {
		return f, err
	}
	setup, err := readVariable(dir, secureboot.SetupMode)
	if err != nil {
		return f, err
	}

	f.UEFI, f.Enforced, f.Setup = true, isOne(enforced), isOne(setup)
	db, err := readVariable(dir, secureboot.DB)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err == nil {
		f.Trusted, f.Digests, err = secureboot.ParseDatabase(db)
	}
	if err != nil {
		return f, fmt.Errorf("read the firmware's keys: %w", err)
	}
	return f, nil
}

func isOne(b []byte) bool { return len(b) == 1 && b[0] == 1 }

func readVariable(dir string, v secureboot.Variable) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(dir, v.FileName()))
	if err != nil {
		return nil, fmt.Errorf("read the firmware's variable %s: %w", v.Name, err)
	}
	if len(b) < attributesSize {
		return nil, fmt.Errorf("read the firmware's variable %s: it has no attributes", v.Name)
	}
	return b[attributesSize:], nil
}

// Stick is what on the stick concerns the owner's keys.
type Stick struct {
	Updates map[string][]byte   // what the variables PK, KEK and db become; none: no owner has signed the image
	Owner   []*x509.Certificate // of db
	Refused error               // why firmware that trusts Owner alone would not start the stick; nil if it would
}

// ReadStick reads ESP and boot partition of the slot that is started.
func ReadStick(esp, boot io.ReaderAt) (Stick, error) {
	s := Stick{Updates: map[string][]byte{}}
	volume, err := fat.Open(esp)
	if err != nil {
		return s, fmt.Errorf("read %s: %w", stick.PartitionESP, err)
	}
	for _, v := range []secureboot.Variable{secureboot.PK, secureboot.KEK, secureboot.DB} {
		update, err := volume.ReadFile(strings.TrimPrefix(stick.KeysDir, "/") + "/" + v.Name + ".auth")
		if err != nil {
			return Stick{}, nil // an image that nobody signed
		}
		s.Updates[v.Name] = update
	}

	content, err := secureboot.Content(s.Updates[secureboot.DB.Name])
	if err != nil {
		return s, err
	}
	if s.Owner, err = secureboot.ParseLists(content); err != nil {
		return s, err
	}

	loader, err := volume.ReadFile(strings.TrimPrefix(stick.LoaderPath, "/"))
	if err == nil {
		err = secureboot.Verify(stick.LoaderPath, loader, s.Owner)
	}
	if err == nil {
		var slot *fat.Volume
		if slot, err = fat.Open(boot); err == nil {
			err = secureboot.CheckSlot(slot.ReadFile, s.Owner)
		}
	}
	s.Refused = err
	return s, nil
}

// OpenStick reads it from the stick that this machine was started from.
func OpenStick(boot stick.BootInfo) (Stick, error) {
	var files [2]*os.File
	for i, name := range []string{stick.PartitionESP, boot.Slot.Boot()} {
		p, ok := boot.Partition(name)
		if !ok {
			return Stick{}, fmt.Errorf("%s has no partition %s", boot.Disk.Path, name)
		}
		f, err := os.Open(p.Path)
		if err != nil {
			return Stick{}, err
		}
		defer f.Close()
		files[i] = f
	}
	return ReadStick(files[0], files[1])
}

// trustsOwner reports whether the firmware trusts the stick's owner, and whom else.
func (f Firmware) trustsOwner(s Stick) (owner bool, others []string) {
	for _, c := range f.Trusted {
		isOwner := false
		for _, o := range s.Owner {
			isOwner = isOwner || c.Equal(o)
		}
		if isOwner {
			owner = true
		} else {
			others = append(others, c.Subject.CommonName)
		}
	}
	return owner, others
}

// IsWhole reports whether the owner's keys check all that starts before the root.
func IsWhole(f Firmware, s Stick) bool {
	owner, _ := f.trustsOwner(s)
	return f.Enforced && owner
}

// Describe says in a sentence what checks the boot before the root does, and what nothing checks.
func Describe(f Firmware, s Stick) string {
	const rest = "; the root is checked, against a hash that nothing vouches for."
	owner, others := f.trustsOwner(s)
	switch {
	case f.Hidden:
		return "Started by UEFI, whose variables cannot be read (efivarfs is not mounted, or the kernel was told to do " +
			"without): whether Secure Boot is on, and with whose keys, is not known" + rest
	case !f.UEFI:
		return "Started by BIOS: nothing checks GRUB, its configuration, kernel, command line and initramfs" + rest
	case !f.Enforced && owner && !f.Setup:
		return "Secure Boot: the firmware has the owner's keys, but is not told to enforce them, or was not restarted: " +
			"nothing checks what starts before the root. Switch Secure Boot on in its setup."
	case !f.Enforced:
		return "Secure Boot is off: nothing checks GRUB, its configuration, kernel, command line and initramfs" + rest
	case !owner:
		return "Secure Boot checks shim, GRUB and kernel; nothing checks GRUB's configuration, command line and initramfs" +
			rest
	case len(others)+f.Digests > 0:
		if f.Digests > 0 {
			others = append(others, "programs by "+commandline.Amount(f.Digests, "digest")+" in db")
		}
		return "Secure Boot checks all that starts by the owner's keys, but the firmware also starts what others sign: " +
			strings.Join(others, ", ") + ". Whoever has the stick can have it start such a program."
	default:
		return "Secure Boot checks all that starts by the owner's keys, from the firmware to the root."
	}
}

// RequiredOwners are the certificates of which one must have signed what is put into a slot: the owner's, if that owner's GRUB
// starts it; nil if any image starts.
func RequiredOwners(f Firmware, s Stick) []*x509.Certificate {
	if !f.UEFI {
		return nil // GRUB for BIOS checks nothing
	}
	return s.Owner
}

// Plan says whether the owner's keys are written into the firmware. If not, why says what hinders it; "" if there is
// nothing to do. locked reports that DATA is sealed to the firmware's keys as they are, and that nothing else would open
// it; tries is how often they were written since firmware had them after a restart.
func Plan(f Firmware, s Stick, locked bool, tries int) (enroll bool, why string) {
	const not = "The owner's keys are not enrolled: "
	owner, _ := f.trustsOwner(s)
	switch {
	case len(s.Updates) == 0:
		return false, not + "nobody has signed the image that is on the stick; see firstlight sign --secure-boot."
	case !f.UEFI:
		return false, not + "this machine was started by BIOS."
	case f.Hidden:
		return false, not + "the firmware's variables cannot be read."
	case owner && !f.Setup:
		return false, ""
	case !f.Setup:
		return false, not + "the firmware has others. Delete its platform key in its setup (setup mode), and restart."
	case s.Refused != nil:
		return false, fmt.Sprintf("%sthe firmware would not start the stick any more: %v. Write the signed image again.",
			not, s.Refused)
	case locked:
		return false, not + "DATA is sealed to this machine's TPM with the firmware's keys as they are, and would be " +
			"locked. Make a key file (firstlightd key-file), attach its medium, and restart."
	case tries >= MaxTries:
		return false, fmt.Sprintf("%sthe firmware took them %d times, and had none after each restart. Enroll them in its "+
			"setup, or take appliance.secureBoot.enroll out of site.yaml. To try again, remove %s from %s.", not, tries,
			stick.EnrollTriesName, stick.PartitionSite)
	default:
		return true, ""
	}
}

// MaxTries is how often the owner's keys are written, each time with a restart, to firmware that forgets them.
const MaxTries = 3

// Enroll writes the owner's keys into firmware in setup mode: the platform key last, since with that the firmware leaves
// setup mode. Cut before, the next boot begins again; from the next start on the firmware enforces them.
func Enroll(dir string, s Stick) error {
	for _, v := range []secureboot.Variable{secureboot.DB, secureboot.KEK, secureboot.PK} {
		if err := enrollOne(dir, v, s.Updates[v.Name]); err != nil {
			return fmt.Errorf("write the firmware's variable %s: %w", v.Name, err)
		}
	}

	setup, err := readVariable(dir, secureboot.SetupMode)
	if err != nil {
		return err
	}
	if isOne(setup) {
		return errors.New("the firmware has taken the platform key and is in setup mode still")
	}
	return nil
}

// enrollOne writes one variable, unless it is as it shall be since a try before.
func enrollOne(dir string, v secureboot.Variable, update []byte) error {
	content, err := secureboot.Content(update)
	if err != nil {
		return err
	}
	have, err := readVariable(dir, v)
	if err == nil && string(have) == string(content) {
		return nil
	}

	path := filepath.Join(dir, v.FileName())
	if err == nil {
		// The kernel keeps variables from being removed by mistake (efivarfs).
		if f, err := os.Open(path); err == nil {
			_ = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, 0) // if that fails, writing says why
			f.Close()
		}
	}

	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	// One call writes a variable.
	_, err = f.Write(append([]byte{secureboot.Attributes, 0, 0, 0}, update...))
	return errors.Join(err, f.Close())
}
