// Package authority replaces the appliance's authority while nodes are in service that trust it. The next one lies next
// to the current one; first everyone is brought to trust both, then the next one signs, then the former one is taken
// away. Who does not answer is waited for, and until all have, both are trusted.
package authority

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

	"firstlight.dev/firstlight/daemon/appliance/ca"
	"firstlight.dev/firstlight/daemon/engine/remote"
)

// Rotation replaces the authority when somebody has asked for it.
type Rotation struct {
	Authority func() (*ca.Authority, error)
	Names     func() []string // as of ca.Open

	// Installing are those who are being installed, or boot a ramdisk, each with what it does.
	Installing func() ([]string, error)
	Nodes      func() ([]remote.Installed, error) // that are in service, and that the appliance logs in to
	LogIn      func() (ssh.Signer, error)
	// Told are those whom nobody logs in to, and who were told to trust what is given, PEM, without next; each with what
	// to do.
	Told func(ctx context.Context, trusted, next []byte) ([]string, error)
	// Own is nil if the appliance itself is as the authority says: its objects in the API, and what it serves.
	Own func(ctx context.Context) error
	// Changed is called when the appliance is to look at itself again.
	Changed func()

	// Settle is how long a stage lasts at least: longer than a ramdisk that was begun before it, or a certificate that is
	// kept in memory.
	Settle time.Duration

	Root string // put before paths on nodes, as the shell has it; "" on nodes
	Port uint16 // 22 if zero
	Log  *slog.Logger

	mu    sync.Mutex
	stage ca.Stage
	until time.Time // the next step is not before
	wait  []string  // who is waited for, each with the reason
}

const interval = 10 * time.Second // between two rounds

// Files of nodes.
const (
	nodeFile   = "/etc/firstlight/ca.crt"                          // containerd reads it at each pull
	systemFile = "/usr/local/share/ca-certificates/firstlight.crt" // that an earlier version had everything trust
)

// Run works on a rotation that was begun, also before a power cut, until ctx ends.
func (r *Rotation) Run(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := r.Round(ctx); err != nil {
			r.Log.Warn("the authority is not replaced yet", "error", err)
		}
	}, interval)
	return nil
}

// Round takes a rotation as far as those answer who are waited for.
func (r *Rotation) Round(ctx context.Context) error {
	authority, err := r.Authority()
	if err != nil {
		return err
	}

	stage, since := authority.Stage()
	if stage == "" {
		r.note("", time.Time{}, nil)
		return nil
	}

	facts := Facts{Stage: stage, Age: time.Since(since), Settle: r.Settle}
	waiting, err := r.findWaiting(ctx, authority, facts)
	if err != nil {
		r.note(stage, since, []string{err.Error()})
		return err
	}
	r.note(stage, since, waiting)

	facts.Waiting = len(waiting)
	step := Decide(facts)
	if err := r.act(authority, step); err != nil || step == StepNothing {
		return err
	}

	r.Log.Info("the authority is being replaced", "step", step)
	r.Changed()
	return nil
}

// findWaiting tells everyone what to trust, and returns those who do not yet.
func (r *Rotation) findWaiting(ctx context.Context, authority *ca.Authority, f Facts) ([]string, error) {
	all, err := r.Installing()
	if err != nil || f.Stage == ca.Asked {
		return all, err
	}

	if err := r.Own(ctx); err != nil {
		all = append(all, fmt.Sprintf("this appliance: %v", err))
	}

	// The former one is taken from nodes when its certificates are served no more.
	trusted := authority.PEM()
	if f.Stage == ca.Switched && f.Age >= f.Settle && len(all) == 0 {
		trusted = authority.Current()
	}
	unchanged, err := r.writeTrust(ctx, trusted)
	if err != nil {
		return nil, err
	}
	all = append(all, unchanged...)

	if f.Stage == ca.Introduced {
		told, err := r.Told(ctx, authority.Current(), authority.Next())
		if err != nil {
			return nil, err
		}
		all = append(all, told...)
	}

	// Logging in takes a while.
	begun, err := r.Installing()
	for _, who := range begun {
		if !slices.Contains(all, who) {
			all = append(all, who)
		}
	}
	return all, err
}

// writeTrust has all nodes trust what is given, PEM, and returns those that do not.
func (r *Rotation) writeTrust(ctx context.Context, trusted []byte) ([]string, error) {
	nodes, err := r.Nodes()
	if err != nil {
		return nil, err
	}
	signer, err := r.LogIn()
	if err != nil {
		return nil, err
	}

	shell := remote.Shell{Signer: signer, Port: r.Port}
	script := fmt.Sprintf(trustScript, r.Root+nodeFile, r.Root+systemFile, strings.TrimSpace(string(trusted)))
	return remote.ChangeAll(ctx, nodes, func(ctx context.Context, n remote.Installed) error {
		return n.Change(ctx, shell, script)
	}), nil
}

func (r *Rotation) act(authority *ca.Authority, step Step) error {
	switch step {
	case StepIntroduce:
		return authority.Introduce(r.Names()...)
	case StepSwitch:
		return authority.Switch()
	case StepForget:
		return authority.ForgetFormer()
	}
	return nil
}

func (r *Rotation) note(stage ca.Stage, since time.Time, waiting []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stage, r.wait, r.until = stage, waiting, since.Add(r.Settle)
}

// Blockers are those that a rotation waits for, each with the reason.
func (r *Rotation) Blockers() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.wait)
}

// Note is how a rotation stands, for people; "" if there is none.
func (r *Rotation) Note() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := ""
	switch r.stage {
	case "":
		return ""
	case ca.Asked:
		text = "Another authority is asked for"
	case ca.Introduced:
		text = "The next authority is there and signs nothing yet"
	case ca.Switched:
		text = "The next authority signs, and the former one is trusted still"
	}

	switch {
	case len(r.wait) > 0:
		return fmt.Sprintf("%s; it is waited for %d: %s", text, len(r.wait), r.wait[0])
	case r.stage == ca.Asked:
		return text
	}
	return fmt.Sprintf("%s, until %s at least", text, r.until.UTC().Format("15:04 UTC"))
}

// trustScript is for root's shell: a node that trusts the appliance trusts what is given, and no node begins to.
const trustScript = `set -e
file="%s"
if test -e "%s"; then
	echo "an earlier version installed it, and its trust is elsewhere; run the installer of its cluster" >&2
	exit 1
fi
if test -f "$file"; then
	new=$(mktemp "$file.XXXXXX")
	cat >"$new" <<'END'
%s
END
	if cmp -s "$new" "$file"; then
		rm "$new"
	else
		chmod 0644 "$new"
		sync "$new"
		mv "$new" "$file"
	fi
fi
echo done
`
