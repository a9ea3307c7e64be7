// Package install puts the appliance onto a Linux machine that has a system of its own: the stick's root runs there
// with its systemd in namespaces, as one unit of the machine's systemd, and has the network interfaces that the site
// names.
//
// Installing and uninstalling are lists of steps (steps.go), each of which holds or is made to hold, so that both may
// be interrupted anywhere and run again. What would harm is refused before the first (check.go). The unit's process
// (Supervise) moves the interfaces into the appliance's network and back.
package install

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/site"
)

// Where an installation is on its machine, and nowhere else.
const (
	Dir         = "/var/lib/firstlight"
	ProgramPath = "/usr/local/bin/firstlight"
	UnitName    = "firstlight.service"
	unitPath    = "/etc/systemd/system/" + UnitName
	wantsPath   = "/etc/systemd/system/multi-user.target.wants/" + UnitName // what systemctl enable makes
	runDir      = "/run/firstlight"                                         // RuntimeDirectory of the unit
)

// Names in Dir.
const (
	receiptName = "install.json"
	rootName    = "root.img" // the root's squashfs, and its hash tree behind it
	siteDir     = "site"     // what the appliance reads as SITE
	siteName    = "site.yaml"
	dataDir     = "data"  // the appliance's DATA
	mountDir    = "mount" // mount points, in the appliance's namespace only
	planName    = "container.json"
)

// Order is what shall be installed.
type Order struct {
	Root Root   // of the image
	Site []byte // site.yaml, which was checked; nil for the one that is installed
	NICs []NIC  // that the site names

	Program string // absolute path of this program

	Downgrade bool // take an older version as well
}

// NIC is an interface that the appliance gets.
type NIC struct {
	Name string `json:"name"`
	MAC  string `json:"mac"`
	PCI  string `json:"pci,omitempty"` // as in Link
}

// Receipt is install.json: what was installed, or begun to be. It is written before all else and removed last.
type Receipt struct {
	Version    string `json:"version"` // of the image
	RootHash   string `json:"rootHash"`
	SiteSHA256 string `json:"siteSHA256"` // of the document that was given
	NICs       []NIC  `json:"nics"`
	OwnProgram bool   `json:"ownProgram"` // the file at ProgramPath was not there before
	Complete   bool   `json:"complete"`   // all steps were done

	Trial  *Version `json:"trial,omitempty"`  // that replaces this one, if it comes to Ready
	Failed *Failure `json:"failed,omitempty"` // the last that did not
}

// isUpdate reports whether an order has another root than is installed.
func (r Receipt) isUpdate(o Order) bool { return r.Complete && r.RootHash != o.Root.Hash }

// difference says in which way an order is another one than was begun, and cannot be; "" if it is none. Another root is
// an update of an installation that is complete.
func (r Receipt) difference(o Order) string {
	switch {
	case r.RootHash != o.Root.Hash && !r.Complete:
		return fmt.Sprintf("version %s with another root", r.Version)
	case r.Trial != nil && r.Trial.RootHash != o.Root.Hash: // also not the one before
		return fmt.Sprintf("version %s, which is on trial,", r.Trial.Version)
	case o.Site != nil && r.SiteSHA256 != digest(o.Site):
		return "another site.yaml"
	}
	return ""
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Installation is an installation on a machine. The zero value with Systemctl is that of this machine.
type Installation struct {
	Prefix    string                     // put before every path; "" but in tests
	Systemctl func(args ...string) error // runs systemctl
	Report    func(text string)          // is given each step before it is done; may be nil
}

// ErrNone says that nothing is installed.
var ErrNone = errors.New("no appliance is installed on this machine; `firstlight install` installs one")

// errReceipt is of a receipt that cannot be read: nobody knows what was installed, but that something was.
var errReceipt = errors.New("it is damaged; firstlight uninstall --keep-data, then install again")

// Receipt is what was installed, or begun to be; ErrNone if nothing was.
func (i Installation) Receipt() (Receipt, error) {
	var r Receipt
	text, err := os.ReadFile(i.inDir(receiptName))
	if errors.Is(err, fs.ErrNotExist) {
		return r, ErrNone
	}
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return Receipt{}, fmt.Errorf("read %s: %w: %w", i.inDir(receiptName), err, errReceipt)
	}
	return r, nil
}

// Lock keeps others from installing, updating and uninstalling until it is unlocked or the process ends. It leaves nothing
// behind.
func (i Installation) Lock() (unlock func(), err error) {
	dir, err := os.Open(i.path(filepath.Dir(Dir)))
	if err != nil {
		return nil, err
	}
	for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) { // one that was killed may be ending
		err = unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || time.Since(begun) > 2*time.Second {
			break
		}
	}
	if err != nil {
		dir.Close()
		return nil, errors.New("another command installs, updates or uninstalls an appliance at this moment; run this one " +
			"again when that has ended; nothing is changed")
	}
	return func() { _ = dir.Close() }, nil
}

func (i Installation) writeReceipt(r Receipt) error {
	return writeJSON(i.inDir(receiptName), r)
}

func (i Installation) path(p string) string     { return filepath.Join(i.Prefix, p) }
func (i Installation) inDir(name string) string { return i.path(filepath.Join(Dir, name)) }

func (i Installation) report(format string, args ...any) {
	if i.Report != nil {
		i.Report(fmt.Sprintf(format, args...))
	}
}

// writeJSON replaces the file as a whole: whoever is killed leaves the old one.
func writeJSON(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return atomicfile.Write(path, append(text, '\n'), 0o600)
}

// namedInterfaces are the interfaces that the site names, each with the setting that does.
func namedInterfaces(s *site.Site) (all []namedInterface) {
	for _, role := range site.Roles() {
		n := s.Networks.Role(role)
		switch {
		case n == nil:
		case n.Bond != nil:
			for k, one := range n.Bond.Interfaces {
				all = append(all, namedInterface{fmt.Sprintf("networks.%s.bond.interfaces[%d]", role, k), one})
			}
		case !n.Interface.IsZero():
			all = append(all, namedInterface{"networks." + role + ".interface", n.Interface})
		}
	}
	return all
}

type namedInterface struct {
	setting string
	site.Interface
}
