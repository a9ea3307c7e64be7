// Package host makes the facts of the appliance that have nothing to do with Kubernetes:
// where its state is, what its owner wants, who it is, what time it is, which network is
// which and who may log in. Every stage here asks the running system, never a note.
package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// Host is the box the daemon runs on. Its zero value with Log set is the appliance
// itself; Root moves every file for tests.
type Host struct {
	Log  *slog.Logger
	Root string // put before every path; "" on the appliance

	// Guest says that the machine is someone else's: its name, links and clock stay as they are.
	Guest bool

	// Run executes a program and returns what it printed. Nil: really.
	Run func(ctx context.Context, name string, args ...string) (string, error)

	// OnSite is given every site that was read, with defaults, before its stage is done. May be nil.
	OnSite func(*site.Site)

	// Query asks one time server; nil: over the network.
	Query func(server string, timeout time.Duration) (Offset, error)

	// Move moves the clock; nil: really. An error that is unix.EPERM says that the clock is another system's.
	Move func(ahead time.Duration) error

	mu    sync.Mutex
	site  *site.Site
	whole *site.Site // site with its defaults
	raw   *site.Site // that whole was made of
	text  []byte     // that site was read from
	stale bool       // read the site again
	notes map[string]string
	clock clock
	nets  networks
}

// Site is what the owner wants, as last read and with defaults filled in. Before the site
// was read it is the site that says nothing. Whoever asks gets the same one, and changes nothing in it: it is asked for
// at every packet, and to fill in a thousand nodes takes a thousand allocations.
func (h *Host) Site() *site.Site {
	raw := h.rawSite()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.raw != raw {
		h.whole, h.raw = raw.WithDefaults(), raw
	}
	return h.whole
}

// Document is the text that Site was read from, which is not to be changed; nil before one was read, and without one.
func (h *Host) Document() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text
}

func (h *Host) rawSite() *site.Site {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.site == nil {
		return &site.Site{}
	}

	return h.site
}

// Reload makes the stages look at their sources anew: the site, the time servers, links
// whose role was not certain. The error names every mistake of the site as it is now; until they are
// mended the appliance goes on with what it read before.
func (h *Host) Reload() error {
	h.mu.Lock()
	h.stale = true
	h.clock.asked = time.Time{}
	h.nets.probes = nil
	h.mu.Unlock()
	_, _, _, _, err := h.readSite()
	return err
}

// Notes are sentences for people about what nothing waits for, in a stable order.
func (h *Host) Notes() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []string
	for _, topic := range []string{"storage", "site", "clock", "devices", "ssh"} {
		if n := h.notes[topic]; n != "" {
			all = append(all, n)
		}
	}

	// Read again each time: it changes with firstlightd key-file.
	if record, err := stick.Load[stick.StorageInfo](h.path(stick.StorageInfoFile)); err == nil {
		for _, n := range []string{describeSeal(record), record.BootNote} {
			if n != "" {
				all = append(all, n)
			}
		}
	}

	return append(all, h.nets.notes...)
}

// setNote replaces what is said about a topic; "" takes it back.
func (h *Host) setNote(topic, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.notes == nil {
		h.notes = map[string]string{}
	}

	h.notes[topic] = text
}

func (h *Host) path(p string) string { return filepath.Join("/", h.Root, p) }

func (h *Host) dataPath(name string) string { return h.path(filepath.Join(stick.DataDir, name)) }

func (h *Host) run(ctx context.Context, name string, args ...string) (string, error) {
	if h.Run != nil {
		return h.Run(ctx, name, args...)
	}

	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute) // a unit that hangs must not hold the plan
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return text, fmt.Errorf("run %s %s: %w: %s", name, strings.Join(args, " "), err, text)
	}

	return text, nil
}

// DataDone holds when state has its place. State in memory is allowed, loudly; a DATA
// partition that cannot be used is not: what this appliance has done before is on it.
func (h *Host) DataDone(context.Context) error {
	record, err := stick.Load[stick.StorageInfo](h.path(stick.StorageInfoFile))
	switch {
	case errors.Is(err, os.ErrNotExist):
		if _, err := os.Stat(h.path(stick.BootInfoFile)); err == nil {
			return bringup.Wait("firstlight-storage.service to mount %s", stick.DataDir)
		}
		// Not started from a stick: state is kept as long as this file system is. A guest's owner chose that one.
		if h.Guest {
			break
		}
		h.setNote("storage", "Not started from a stick: state is kept in "+stick.DataDir+" of this system.")
	case err != nil:
		return err
	case record.State == stick.StorageBroken:
		return bringup.Permanent(fmt.Errorf(
			"data partition %s cannot be used: %s; what was done before is on it: try the stick at another port, or write it again with --forget to begin from nothing", record.Device, record.Reason))
	case record.State == stick.StorageLocked:
		return bringup.Permanent(errors.New(record.Reason))
	case record.State == stick.StorageVolatile:
		h.setNote("storage", "State is kept in memory and lost at power off: "+record.Reason)
	default:
		h.setNote("storage", "")
	}
	return h.checkWritable(h.dataPath("."))
}

// checkWritable proves that a file in dir reaches the medium.
func (h *Host) checkWritable(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	return writeFile(filepath.Join(dir, ".writable"), []byte("\n"), 0o600)
}

// writeFile replaces path as a whole or not at all, in a folder that may have to be made, and returns when
// it is on the medium.
func writeFile(path string, data []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return atomicfile.Write(path, data, mode)
}
