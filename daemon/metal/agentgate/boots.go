package agentgate

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/pxe"
)

// tokenBytes is how long a token is, before it is written in base64.
const tokenBytes = 32

// Most boots that are remembered: of machines that a host stands for, and of unknown ones. A flood of made-up
// machines ends only boots of its own kind, the oldest first.
const (
	maxKnown   = 8192
	maxUnknown = 512
)

// saveDelay is how long changes are gathered before they are written to DATA. A power cut in that time ends no
// agent's work: the machine is still loading its ramdisk, from the appliance that has lost its power.
const saveDelay = time.Second

// Boot is what was served to a machine. The newest of a machine counts: who is given another script has started again.
type Boot struct {
	Digest string     `json:"digest"`         // SHA-256 of its token, hex: the token itself is kept nowhere
	MAC    string     `json:"mac"`            // lower case, with colons
	Addr   netip.Addr `json:"address"`        // that the script was sent to
	Host   string     `json:"host,omitempty"` // "": no host had this MAC, so it may post an inventory and nothing else
	UUID   string     `json:"uuid,omitempty"` // of Ironic's node; "" until it is known
	Time   time.Time  `json:"time"`

	called time.Time // its agent last called, since the daemon started
}

// Boots remembers what was served to whom, also across restarts of the daemon and of the appliance: an agent in the
// middle of its work continues.
type Boots struct {
	Path string // of the file on DATA; its folder is made
	Log  *slog.Logger

	mu       sync.Mutex
	loaded   bool
	byMAC    map[string]*Boot
	byDigest map[string]*Boot
	changed  bool
}

// Mint remembers that a script is sent to a machine and returns the token that goes with it. host and uuid are those
// of the host with this MAC, "" if there is none.
func (b *Boots) Mint(m pxe.Machine, host, uuid string) (pxe.Secret, error) {
	random := make([]byte, tokenBytes)
	if _, err := rand.Read(random); err != nil {
		return "", err
	}

	token := base64.RawURLEncoding.EncodeToString(random)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.load()
	b.add(&Boot{
		Digest: digestOf(token),
		MAC:    m.MAC.String(),
		Addr:   m.Addr.Unmap(),
		Host:   host,
		UUID:   uuid,
		Time:   time.Now().UTC(),
	})
	b.changed = true
	return pxe.Secret(token), nil
}

// Find returns the boot of a token, if it is the newest of its machine.
func (b *Boots) Find(token string) (Boot, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.load()
	boot, ok := b.byDigest[digestOf(token)]
	if !ok {
		return Boot{}, false
	}

	boot.called = time.Now()
	return *boot, true
}

// CalledAt is when something last called with the token of a machine's newest boot, since the daemon started; zero if
// nothing did.
func (b *Boots) CalledAt(mac string) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.load()
	if boot := b.byMAC[mac]; boot != nil {
		return boot.called
	}
	return time.Time{}
}

// bind notes which of Ironic's nodes a boot is of, once that is known.
func (b *Boots) bind(boot Boot, uuid string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if have, ok := b.byDigest[boot.Digest]; ok && have.UUID == "" {
		have.UUID, b.changed = uuid, true
	}
}

// Run writes changes to DATA until ctx ends, and then once more. What cannot be written is tried again.
func (b *Boots) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return b.save()
		case <-time.After(saveDelay):
		}

		if err := b.save(); err != nil {
			b.Log.Error("boots of agents are not kept: after a restart they would be refused", "error", err)
		}
	}
}

func (b *Boots) save() error {
	b.mu.Lock()
	if !b.changed {
		b.mu.Unlock()
		return nil
	}

	b.changed = false
	text, err := json.Marshal(b.list())
	b.mu.Unlock()
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Dir(b.Path), 0o700), atomicfile.Write(b.Path, text, 0o600))
	}

	if err != nil {
		b.mu.Lock()
		b.changed = true
		b.mu.Unlock()
		return fmt.Errorf("save boots: %w", err)
	}

	return nil
}

// list is all boots, the oldest first. b.mu is held.
func (b *Boots) list() []Boot {
	all := make([]Boot, 0, len(b.byMAC))
	for _, boot := range b.byMAC {
		all = append(all, *boot)
	}

	slices.SortFunc(all, func(x, y Boot) int { return cmp.Or(x.Time.Compare(y.Time), cmp.Compare(x.MAC, y.MAC)) })
	return all
}

// load reads what is on DATA, once. A file that cannot be read admits nobody: agents of these boots are refused, and
// their machines booted again when Ironic has waited long enough. b.mu is held.
func (b *Boots) load() {
	if b.loaded {
		return
	}

	b.loaded, b.byMAC, b.byDigest = true, map[string]*Boot{}, map[string]*Boot{}
	text, err := os.ReadFile(b.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}

	var all []Boot
	if err == nil {
		err = json.Unmarshal(text, &all)
	}

	if err != nil {
		b.Log.Error("boots of agents cannot be read: those that are running are refused", "file", b.Path, "error", err)
		return
	}

	for i := range all {
		b.add(&all[i])
	}
}

// add puts a boot in the place of its machine's last one. b.mu is held.
func (b *Boots) add(boot *Boot) {
	b.remove(b.byMAC[boot.MAC])
	limit, count, oldest := maxKnown, 0, (*Boot)(nil)
	if boot.Host == "" {
		limit = maxUnknown
	}

	for _, other := range b.byMAC {
		if (other.Host == "") != (boot.Host == "") {
			continue
		}
		if count++; oldest == nil || other.Time.Before(oldest.Time) {
			oldest = other
		}
	}

	if count >= limit {
		b.remove(oldest)
	}

	b.byMAC[boot.MAC], b.byDigest[boot.Digest] = boot, boot
}

func (b *Boots) remove(boot *Boot) {
	if boot != nil {
		delete(b.byMAC, boot.MAC)
		delete(b.byDigest, boot.Digest)
	}
}

// digestOf is how a token is kept and looked up: what is compared is not what is secret.
func digestOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}
