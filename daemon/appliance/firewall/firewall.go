// Package firewall is the appliance's packet filter: what may enter it from each network, and what it forwards from one
// to another. It is one nftables table, made from the list of listeners and the site. docs/security.md shows the list.
package firewall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// loadedName is the file, in memory, that says what was loaded and how the kernel lists it. The kernel lists a table
// in words of its own, so this is how a rule that somebody changed is noticed, also by a daemon that was restarted.
const loadedName = stick.RunDir + "/firewall.json"

// nftTimeout ends an nft that hangs; it takes milliseconds.
const nftTimeout = time.Minute

// Firewall keeps the table loaded that belongs to the site.
type Firewall struct {
	Site func() *site.Site // with its defaults
	Root string            // put before the path of its file; "" on the appliance

	isLoaded atomic.Bool
}

// loaded is what the file holds.
type loaded struct {
	Rules   string `json:"rules"`   // as nft was given them
	Listing string `json:"listing"` // as the kernel listed them then
}

// CheckLoaded holds when the kernel has the table as the site wants it, and nobody has changed it since.
func (f *Firewall) CheckLoaded(ctx context.Context) (err error) {
	defer func() { f.isLoaded.Store(err == nil) }()
	have, err := f.read()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("no packet filter was loaded since the machine started")
	case err != nil:
		return err
	case have.Rules != newRules(f.Site()).render():
		return errors.New("the packet filter is that of another site")
	}

	listing, err := list(ctx)
	if err != nil {
		return err
	}
	if listing != have.Listing {
		return fmt.Errorf("the table %s is not as it was loaded", Table)
	}

	return nil
}

// Load replaces the table. Packets meet the old one or the new one, never none.
func (f *Firewall) Load(ctx context.Context, _ bringup.Report) error {
	text := newRules(f.Site()).render()
	if _, err := nft(ctx, text, "--file", "-"); err != nil {
		return err
	}

	listing, err := list(ctx)
	if err != nil {
		return err
	}

	if err := os.MkdirAll(filepath.Dir(f.path()), 0o755); err != nil {
		return fmt.Errorf("make folder of %s: %w", f.path(), err)
	}

	b, err := json.Marshal(loaded{Rules: text, Listing: listing})
	if err != nil {
		return fmt.Errorf("encode packet filter: %w", err)
	}

	return atomicfile.Write(f.path(), b, 0o600)
}

// read reads what was loaded. A file that is cut short counts as none: the table is loaded again then.
func (f *Firewall) read() (l loaded, err error) {
	b, err := os.ReadFile(f.path())
	if err == nil && json.Unmarshal(b, &l) != nil {
		err = fs.ErrNotExist
	}

	if err != nil {
		return loaded{}, fmt.Errorf("read the loaded packet filter: %w", err)
	}

	return l, nil
}

// Status is which table is loaded, and what the site lets through besides the list of listeners.
func (f *Firewall) Status() *status.Firewall {
	return &status.Firewall{Table: Table, Loaded: f.isLoaded.Load(), Allowed: newRules(f.Site()).allowed}
}

func (f *Firewall) path() string { return filepath.Join("/", f.Root, loadedName) }

// list is the table as the kernel has it, without its counters.
func list(ctx context.Context) (string, error) {
	return nft(ctx, "", append([]string{"--stateless", "list", "table"}, strings.Fields(Table)...)...)
}

// nft runs the program with a text on its standard input.
func nft(ctx context.Context, input string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, nftTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nft", args...)
	cmd.Stdin = strings.NewReader(input)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("run nft %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}

	return string(out), nil
}
