// Package try runs a whole rack on one Linux machine without emulating one: the appliance's own root, with its systemd,
// in namespaces, and simulated servers (package simulator) on network namespaces beside it. Kubernetes, Ironic, Metal3
// and all of the appliance's controllers are the real ones; the kernel is this machine's, and the servers have no
// processor, no bytes on their disks and no system.
//
// A rack has a directory, Dir. Start brings it to life in a process of its own, the supervisor (Supervise), whose end
// is the end of all others: nothing of a rack is reachable from the machine's own network namespace but two ports of
// loopback. TearDown ends it, and what a crash left.
package try

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/image/lab"
	"firstlight.dev/firstlight/image/lab/container"
	"firstlight.dev/firstlight/image/lab/process"
)

// Files of a rack's directory.
const (
	rackFile      = "try.json"     // what the rack is
	runningFile   = "running.json" // which processes it is at present
	serversFile   = "servers.json" // the simulated servers, as they are
	stickImage    = "firstlight.img"
	rootDir       = "root"      // the image's root, unpacked; not for root
	partDir       = "root.part" // the same while it is being unpacked
	siteDir       = "site"      // what the appliance reads as SITE
	siteFile      = "site.yaml"
	dataDir       = "data"  // the appliance's DATA
	mountDir      = "mount" // mount points, in the appliance's namespace only
	planFile      = "container.json"
	consoleLog    = "console.log"
	supervisorLog = "supervisor.log"
)

// MaxServers is the most servers of a rack: those that the default range of addresses has room for.
const MaxServers = 50

// Order is what a rack is asked to be.
type Order struct {
	Image   string `json:"image"` // absolute path of the stick's image
	Servers int    `json:"servers"`
	IPv6    bool   `json:"ipv6,omitempty"`   // servers boot by IPv6, and have no IPv4
	Daemon  string `json:"daemon,omitempty"` // absolute path of a firstlightd in place of the image's; "": none
}

// Check refuses an order that no rack can be made of.
func (o Order) Check() error {
	if o.Servers < 0 || o.Servers > MaxServers {
		return fmt.Errorf("%d servers: from 0 to %d can be simulated", o.Servers, MaxServers)
	}
	return nil
}

// rackDoc is try.json.
type rackDoc struct {
	Order    Order     `json:"order"`
	Password string    `json:"password"` // of the BMCs
	Made     time.Time `json:"made"`
	Unpacked bool      `json:"unpacked,omitempty"` // an ordinary user's: its root is unpacked
}

// Processes is running.json.
type Processes struct {
	Supervisor process.ID `json:"supervisor"`
	Appliance  process.ID `json:"appliance"` // its systemd, as this machine numbers it; zero while there is none
	Page       int        `json:"page"`      // port on loopback, leads to the page
	API        int        `json:"api"`       // port on loopback, leads to the API server

	// Cgroups are the directories of the control groups below which the rack's are; none: the roots of all trees.
	Cgroups []string `json:"cgroups,omitempty"`
}

// NoRack says that a directory holds none.
var NoRack = errors.New("there is no rack; `firstlight try` makes one")

// NotRunning says that the rack of a directory is down.
var NotRunning = errors.New("the rack is down; `firstlight try` switches it on")

// Rack is a rack that is there, running or not.
type Rack struct{ Dir string }

// Order is what the rack was asked to be; NoRack if there is none.
func (r Rack) Order() (Order, error) {
	doc, err := r.read()
	return doc.Order, err
}

func (r Rack) read() (rackDoc, error) {
	var doc rackDoc
	err := readJSON(r.path(rackFile), &doc)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%s: %w", r.Dir, NoRack)
	}
	return doc, err
}

// Processes is what the rack consists of now; NotRunning if its supervisor does not live.
func (r Rack) Processes() (Processes, error) {
	var now Processes
	err := readJSON(r.path(runningFile), &now)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !now.Supervisor.Alive() {
		if _, err := r.read(); err != nil {
			return Processes{}, err
		}
		return Processes{}, fmt.Errorf("%s: %w", r.Dir, NotRunning)
	}
	return now, err
}

// Console is the file with what the appliance's systemd says.
func (r Rack) Console() string { return r.path(consoleLog) }

// Log is the supervisor's log.
func (r Rack) Log() string { return r.path(supervisorLog) }

func (r Rack) path(name string) string { return filepath.Join(r.Dir, name) }

// cgroup is the name of the control groups of a user's one running rack.
const cgroup = "firstlight-try"

// Create makes a rack of order in the directory. One that is there is kept; it must be the one that is ordered.
func (r Rack) Create(o Order) error {
	if err := o.Check(); err != nil {
		return fmt.Errorf("make rack: %w", err)
	}

	have, err := r.read()
	if err == nil {
		if have.Order != o {
			return fmt.Errorf("make rack: there is another one in %s: %s; `firstlight try down --remove` removes it",
				r.Dir, describeDifferences(have.Order, o))
		}
		return nil
	}
	if !errors.Is(err, NoRack) {
		return err
	}

	if _, _, err := container.FindRoot(o.Image); err != nil {
		return fmt.Errorf("make rack: %w", err)
	}
	if err := r.checkVacant(); err != nil {
		return fmt.Errorf("make rack: %w", err)
	}

	return r.write(o)
}

// describeDifferences says in which way two orders are not the same.
func describeDifferences(have, want Order) string {
	var all []string
	for _, d := range []struct {
		what       string
		have, want any
	}{
		{"image", have.Image, want.Image},
		{"servers", have.Servers, want.Servers},
		{"ipv6", have.IPv6, want.IPv6},
		{"daemon", have.Daemon, want.Daemon},
	} {
		if d.have != d.want {
			all = append(all, fmt.Sprintf("%s is %v, asked is %v", d.what, d.have, d.want))
		}
	}
	return strings.Join(all, ", ")
}

// write writes the files of a new rack, try.json last: what was cut off before is made again.
func (r Rack) write(o Order) error {
	if err := os.MkdirAll(r.path(siteDir), 0o700); err != nil {
		return fmt.Errorf("make rack: %w", err)
	}
	isUser := os.Geteuid() != 0
	if !isUser { // else its root is unpacked, and no more of it is needed
		if err := lab.LinkImage(o.Image, r.path(stickImage)); err != nil {
			return fmt.Errorf("make rack: %w", err)
		}
	}

	password := make([]byte, 8)
	if _, err := rand.Read(password); err != nil {
		return fmt.Errorf("make rack: %w", err)
	}

	return writeJSON(r.path(rackFile), rackDoc{
		Order:    o,
		Password: hex.EncodeToString(password),
		Made:     time.Now(),
		Unpacked: isUser,
	})
}

// isRackFile tells whether a name in the directory is the rack's.
func isRackFile(name string) bool {
	switch name {
	case rackFile, runningFile, serversFile, stickImage, rootDir, partDir, siteDir, dataDir, mountDir, planFile,
		consoleLog, supervisorLog:
		return true
	}
	return false
}

// checkVacant refuses a directory in which something else lies: it would be removed with the rack. What write leaves
// when it is cut off is nothing else: an empty directory for the site, and then the image, whole or not.
func (r Rack) checkVacant() error {
	entries, err := os.ReadDir(r.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}

	site, err := os.ReadDir(r.path(siteDir))
	isCutOff := err == nil && len(site) == 0
	for _, e := range entries {
		if !isCutOff || e.Name() != siteDir && e.Name() != stickImage {
			return fmt.Errorf("%s is not empty and holds no rack, but %s; name a new or an empty directory with --dir",
				r.Dir, e.Name())
		}
	}

	info, err := os.Stat(r.Dir)
	if err != nil {
		return err
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; info.Mode().Perm()&0o077 != 0 || int(owner) != os.Geteuid() {
		return fmt.Errorf("others than you may look into %s; name a new directory with --dir, or: chown %d %[1]s && "+
			"chmod 700 %[1]s", r.Dir, os.Geteuid())
	}

	return nil
}

func readJSON(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}

	return nil
}

// writeJSON replaces the file as a whole: whoever is killed leaves the old one.
func writeJSON(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return atomicfile.Write(path, append(text, '\n'), 0o600)
}
