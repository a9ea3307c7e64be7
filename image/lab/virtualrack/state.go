package virtualrack

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/image/lab/accelerator"
	"firstlight.dev/firstlight/image/lab/process"
)

// Files of a rack's directory.
const (
	rackFile      = "rack.json"    // what the rack is
	runningFile   = "running.json" // which processes it is at present
	eventsFile    = "events.jsonl" // what happened
	siteFile      = "site.yaml"
	lockFile      = "lock"    // held by the supervisor
	controlSocket = "control" // where it answers
	supervisorLog = "supervisor.log"
	machinesDir   = "machines"
	portsDir      = "ports"
	sshDir        = "ssh"
)

// rackDoc is rack.json: an order and the secrets that were minted for it.
type rackDoc struct {
	Order    Order     `json:"order"`
	Password string    `json:"password"` // of the BMCs
	Made     time.Time `json:"made"`
	Run      Run       `json:"run"`
}

// Run is what was decided for the time from one `up` to the next `down`; the next `up` decides anew.
type Run struct {
	Accel         accelerator.Choice `json:"accel"`              // of every machine
	TimeoutFactor float64            `json:"patience,omitempty"` // see Fit; 0 is 1
}

// ScaleTimeout is how long something may take in this run that is given so long on the README's computer.
func (r Run) ScaleTimeout(usual time.Duration) time.Duration {
	return time.Duration(max(1, r.TimeoutFactor) * float64(usual))
}

// startedProcess is a process that the rack has started.
type startedProcess struct {
	Name string `json:"name"`
	process.ID
}

// runningFileDoc is running.json.
type runningFileDoc struct {
	Supervisor process.ID       `json:"supervisor"`
	Children   []startedProcess `json:"children"`
}

// NoRack says that a directory holds none.
var NoRack = errors.New("there is no rack; `firstlight lab up` makes one")

func readRackDoc(dir string) (rackDoc, error) {
	var m rackDoc
	err := readJSON(filepath.Join(dir, rackFile), &m)
	if errors.Is(err, fs.ErrNotExist) {
		return m, fmt.Errorf("%s: %w", dir, NoRack)
	}

	m.Order.BMC = cmp.Or(m.Order.BMC, AllIPMI) // racks of before anyone could ask
	return m, err
}

func readJSON(path string, into any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}

	return nil
}

// writeJSON replaces the file as a whole: whoever is killed leaves the old one.
func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return atomicfile.Write(path, append(b, '\n'), 0o600)
}

// supervisorTimeout is how long a supervisor may take to end when it is asked.
const supervisorTimeout = 30 * time.Second

// TearDown ends what the rack in dir has started and nothing else, also what a crash left behind.
// It says what it ended. Nothing running is no error.
func TearDown(dir string) (ended []string, err error) {
	var r runningFileDoc
	if err := readJSON(filepath.Join(dir, runningFile), &r); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("end rack: %w", err)
	}

	if r.Supervisor.Alive() {
		ended = append(ended, fmt.Sprintf("supervisor (%d)", r.Supervisor.PID))
	}

	for _, c := range r.Children {
		if c.Alive() {
			ended = append(ended, fmt.Sprintf("%s (%d)", c.Name, c.PID))
		}
	}

	// The supervisor first: it would start nothing anew, but it can end the rest in order.
	if err := r.Supervisor.Terminate(supervisorTimeout); err != nil {
		return ended, fmt.Errorf("end rack: %w", err)
	}

	for _, c := range r.Children {
		if err := c.Terminate(0); err != nil {
			return ended, fmt.Errorf("end rack: %s: %w", c.Name, err)
		}
	}

	if err := os.Remove(filepath.Join(dir, runningFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return ended, fmt.Errorf("end rack: %w", err)
	}

	return ended, nil
}

// isRackFile tells whether a name in a rack's directory is the rack's.
func isRackFile(name string) bool {
	if ok, _ := filepath.Match("*-????????-??????.pcap", name); ok { // of a network, and when it began
		return true
	}

	if hidden, ok := strings.CutPrefix(name, "."); ok { // a file that was being written, see package whole
		name = strings.TrimSuffix(hidden, ".new")
	}

	switch name {
	case rackFile, runningFile, eventsFile, siteFile, lockFile, controlSocket, supervisorLog, machinesDir, portsDir, sshDir, stickImage,
		systemImage, seedImage:
		return true
	}

	return false
}

// checkVacant refuses a directory in which something else lies: a rack would write among it, and be
// removed from among it. What a rack left that was not made to its end, the image first, is made anew.
func checkVacant(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}

	var others []string
	begun := false
	for _, e := range entries {
		begun = begun || e.Name() == stickImage
		if !isRackFile(e.Name()) {
			others = append(others, e.Name())
		}
	}

	if len(entries) == 0 || begun && len(others) == 0 {
		return nil
	}

	if len(others) == 0 {
		others = []string{entries[0].Name()}
	}

	return fmt.Errorf(
		"%s is not empty and holds no rack, but %s; name a new or an empty directory with --dir", dir, others[0],
	)
}

// Remove deletes a rack that is down, with its disks, and its directory if nothing else lies
// there. It deletes nothing of a directory in which there is no rack.
func Remove(dir string) error {
	if _, err := readRackDoc(dir); err != nil {
		return err
	}

	var r runningFileDoc
	if err := readJSON(filepath.Join(dir, runningFile), &r); err == nil {
		return fmt.Errorf("remove rack in %s: it is not down", dir)
	}

	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("remove rack: %w", err)
	}

	others := 0
	for _, e := range entries {
		switch {
		case !isRackFile(e.Name()):
			others++
		case e.Name() != rackFile:
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return fmt.Errorf("remove rack: %w", err)
			}
		}
	}

	// Last: a rack whose removal was cut off is still one.
	if err := os.Remove(filepath.Join(dir, rackFile)); err != nil {
		return fmt.Errorf("remove rack: %w", err)
	}
	if others > 0 {
		return nil
	}
	if err := os.Remove(dir); err != nil {
		return fmt.Errorf("remove rack: %w", err)
	}

	return nil
}
