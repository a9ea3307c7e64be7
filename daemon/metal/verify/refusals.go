package verify

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
)

// Refusals remembers, also across restarts, which BMC refused which password: a daemon that
// starts over and over must not lock an account. It is the one note in this package that
// decides something, and all it decides is to ask nobody. The passwords themselves are not
// in it, only a keyed digest.
type Refusals struct {
	Path string // on DATA
	Log  *slog.Logger

	mu   sync.Mutex
	file *refusals
}

type refusals struct {
	Salt  string             `json:"salt"`
	Nodes map[string]refusal `json:"nodes"`
}

type refusal struct {
	Key  string `json:"key"`
	Text string `json:"text"` // what the BMC was found to say
}

// Key stands for what a BMC is asked with.
func (r *Refusals) Key(b site.BMC) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	mac := hmac.New(sha256.New, []byte(r.load().Salt))
	fmt.Fprintf(mac, "%q %q %q", string(b.Address), b.Username, b.Password.Reveal())
	return hex.EncodeToString(mac.Sum(nil))
}

// Lookup tells whether a node's BMC refused just that, and what it said.
func (r *Refusals) Lookup(node, key string) (text string, is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, is := r.load().Nodes[node]
	return n.Text, is && n.Key == key
}

// Ask logs in to a node's BMC, unless that has refused just that login before.
func (r *Refusals) Ask(node string, b site.BMC, login func() bmc.Answer) bmc.Answer {
	key := r.Key(b)
	if text, is := r.Lookup(node, key); is {
		return bmc.Answer{Verdict: bmc.Refused, Text: text, Fix: bmc.FixRefused}
	}

	a := login()
	if a.Verdict == bmc.Refused {
		if err := r.Add(node, key, a.Text); err != nil {
			r.Log.Error("refusal of a BMC not kept", "node", node, "error", err)
		}
	}
	return a
}

// Add keeps a refusal. It is on the medium when Note returns without an error; it stands in
// memory in any case.
func (r *Refusals) Add(node, key, text string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.load().Nodes[node] = refusal{key, text}
	return r.write()
}

// Clear lets every BMC be asked again.
func (r *Refusals) Clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.load().Nodes) == 0 {
		return
	}

	r.file.Nodes = map[string]refusal{}
	if err := r.write(); err != nil {
		r.Log.Error("refusals of BMCs not forgotten", "error", err)
	}
}

// load is the file, or a new one if it is absent or torn.
func (r *Refusals) load() *refusals {
	if r.file != nil {
		return r.file
	}

	r.file = &refusals{}
	text, err := os.ReadFile(r.Path)
	if err == nil {
		err = json.Unmarshal(text, r.file)
	}

	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.Log.Warn("refusals of BMCs not read", "error", err)
	}

	if r.file.Salt == "" {
		salt := make([]byte, 32)
		rand.Read(salt)
		r.file.Salt = hex.EncodeToString(salt)
	}

	if r.file.Nodes == nil {
		r.file.Nodes = map[string]refusal{}
	}

	return r.file
}

func (r *Refusals) write() error {
	text, err := json.Marshal(r.file)
	if err != nil {
		return fmt.Errorf("encode refusals: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(r.Path), 0o700); err != nil {
		return fmt.Errorf("write refusals: %w", err)
	}

	return atomicfile.Write(r.Path, text, 0o600)
}
