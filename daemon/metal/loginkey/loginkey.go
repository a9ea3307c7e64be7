// Package loginkey replaces the appliance's SSH log-in to nodes while they are in service: the next key is brought to
// every node by the current one, and the former is taken from every node when the next is in use. A node that does not
// answer is waited for; until all have, both keys let the appliance in.
package loginkey

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
	"k8s.io/apimachinery/pkg/util/wait"

	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/engine/remote"
)

// Rotation replaces the log-in when somebody has asked for it.
type Rotation struct {
	Keys  *vault.Keys
	Nodes func() ([]remote.Installed, error) // that are in service
	Port  uint16                             // 22 if zero
	Log   *slog.Logger

	// Settle is how long the former key is kept at least: what was being installed when the next came into use may
	// have the former one.
	Settle time.Duration

	mu      sync.Mutex
	waiting []string // nodes, each with what it is waited for
	halfway bool     // the next key is in use
}

const interval = 10 * time.Second // between two rounds

// Run works on a rotation that was begun, also before a power cut, until ctx ends.
func (r *Rotation) Run(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := r.Round(ctx); err != nil {
			r.Log.Warn("log-in to nodes is not replaced yet", "error", err)
		}
	}, interval)
	return nil
}

// Round takes a rotation as far as nodes answer.
func (r *Rotation) Round(ctx context.Context) error {
	next, err := r.Keys.Next()
	if err != nil {
		return err
	}
	if next != nil {
		if err := r.admit(ctx, next); err != nil || len(r.WaitingNodes()) > 0 {
			return err
		}
		if err := r.Keys.Switch(); err != nil {
			return err
		}
		r.Log.Info("the next log-in to nodes is in use")
	}

	former, err := r.Keys.Former()
	if err != nil || former == nil {
		r.setWaiting(nil, false)
		return err
	}
	if err := r.take(ctx, former); err != nil || len(r.WaitingNodes()) > 0 {
		return err
	}
	if since, err := r.Keys.FormerSince(); err != nil || time.Since(since) < r.Settle {
		return err
	}
	r.Log.Info("the former log-in to nodes lets nobody in")

	return r.Keys.ForgetFormer()
}

// admit lets the next key in wherever the current one is let in.
func (r *Rotation) admit(ctx context.Context, next ssh.Signer) error {
	current, err := r.Keys.AccessSigner()
	if err != nil {
		return err
	}
	return r.onAll(ctx, false, func(ctx context.Context, n remote.Installed) error {
		script := fmt.Sprintf(bringKey, blob(current), line(next))
		if err := r.at(ctx, n, current, script); err != nil {
			return err
		}
		return r.at(ctx, n, next, script) // it lets in, and finds nothing to do
	})
}

// take lets the former key in nowhere. What was installed meanwhile may have that one alone.
func (r *Rotation) take(ctx context.Context, former ssh.Signer) error {
	current, err := r.Keys.AccessSigner()
	if err != nil {
		return err
	}
	return r.onAll(ctx, true, func(ctx context.Context, n remote.Installed) error {
		script := fmt.Sprintf(takeKey, blob(current), blob(former))
		if r.at(ctx, n, current, script) == nil {
			return nil
		}
		if err := r.at(ctx, n, former, fmt.Sprintf(bringKey, blob(former), line(current))); err != nil {
			return err
		}
		return r.at(ctx, n, current, script)
	})
}

// onAll does something on all nodes at once, and remembers those where it was not done.
func (r *Rotation) onAll(ctx context.Context, halfway bool, do func(context.Context, remote.Installed) error) error {
	nodes, err := r.Nodes()
	if err != nil {
		return err
	}

	r.setWaiting(remote.ChangeAll(ctx, nodes, do), halfway)
	return nil
}

// at runs a script on a node as root, by one key alone; it must print done.
func (r *Rotation) at(ctx context.Context, n remote.Installed, key ssh.Signer, script string) error {
	return n.Change(ctx, remote.Shell{Signer: key, Port: r.Port}, script)
}

func (r *Rotation) setWaiting(nodes []string, halfway bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting, r.halfway = nodes, halfway
}

// WaitingNodes are the nodes that a rotation waits for, each with the reason.
func (r *Rotation) WaitingNodes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.waiting)
}

// Note is how a rotation stands, for people; "" if it waits for no one.
func (r *Rotation) Note() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		return ""
	}

	text := "The next log-in to nodes is not on every node"
	if r.halfway {
		text = "The former log-in to nodes still lets in where"
	}
	return text + "; " + remote.DescribeWaiting(r.waiting)
}

// blob is what of a key is in every line of authorized_keys that lets it in.
func blob(key ssh.Signer) string {
	return strings.Fields(string(ssh.MarshalAuthorizedKey(key.PublicKey())))[1]
}

func line(key ssh.Signer) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key.PublicKey()))) + " appliance"
}

// bringKey is for root's shell: wherever one key is let in, another is, too. Files are replaced whole, by ones that
// nobody else has named: a home is its user's.
const bringKey = `set -e
for home in $(getent passwd | cut -d: -f6 | sort -u); do
	file=$home/.ssh/authorized_keys
	test -f "$file" && grep -qF '%[1]s' "$file" || continue
	grep -qxF '%[2]s' "$file" && continue
	new=$(mktemp "$file.XXXXXX")
	{ awk 1 "$file"; echo '%[2]s'; } >"$new"
	chown --reference="$file" "$new"
	chmod --reference="$file" "$new"
	sync "$new"
	mv "$new" "$file"
done
echo done
`

// takeKey is for root's shell: wherever one key is let in, another is not.
const takeKey = `set -e
for home in $(getent passwd | cut -d: -f6 | sort -u); do
	file=$home/.ssh/authorized_keys
	test -f "$file" && grep -qF '%[1]s' "$file" && grep -qF '%[2]s' "$file" || continue
	new=$(mktemp "$file.XXXXXX")
	grep -vF '%[2]s' "$file" >"$new"
	chown --reference="$file" "$new"
	chmod --reference="$file" "$new"
	sync "$new"
	mv "$new" "$file"
done
echo done
`
