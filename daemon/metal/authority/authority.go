// Package authority replaces what nodes in service trust: the appliance's authority, or the key that signs its
// packages. The next one lies next to the current one; first everyone is brought to trust both, then the next one
// signs, then the former one is taken away. Who does not answer is waited for, and until all have, both are trusted.
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

// Trust is what is replaced. What is to be trusted, the current one and the next, are texts, as clients read them.
type Trust interface {
	Stage() (stage ca.Stage, since time.Time)
	PEM() []byte     // what clients are to trust: one, or while it is replaced two
	Current() []byte // the one that signs
	Next() []byte    // that is introduced; nil if none is
	Switch() error
	ForgetFormer() error
}

// Rotation replaces what nodes trust when somebody has asked for it.
type Rotation struct {
	What      string // for people, such as "authority"
	Trust     func() (Trust, error)
	Introduce func() error // ends the stage ca.Asked; nil: it is none that Trust has

	// Installing are those who are being installed, or boot a ramdisk, each with what it does.
	Installing func() ([]string, error)
	Nodes      func() ([]remote.Installed, error) // that are in service, and that the appliance logs in to
	LogIn      func() (ssh.Signer, error)
	// Told are those whom nobody logs in to, and who were told to trust what is given, as Trust.Current, without next;
	// each with what to do.
	Told func(ctx context.Context, trusted, next []byte) ([]string, error)
	// Own is nil if the appliance itself is as Trust says: its objects in the API, and what it serves.
	Own func(ctx context.Context) error
	// Changed is called when the appliance is to look at itself again.
	Changed func()

	// Settle is how long a stage lasts at least: longer than a ramdisk that was begun before it, or a certificate that is
	// kept in memory.
	Settle time.Duration

	File    string // of nodes, which PEM is written to where it is there
	Earlier string // of nodes that an earlier version installed, whose trust is there; "": none has

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
	File         = "/etc/firstlight/ca.crt"                          // the authority; containerd reads it at each pull
	SystemFile   = "/usr/local/share/ca-certificates/firstlight.crt" // that an earlier version had everything trust
	PackagesFile = "/etc/firstlight/packages.asc"                    // the key of packages; apt reads it at each update
)

// Run works on a rotation that was begun, also before a power cut, until ctx ends.
func (r *Rotation) Run(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := r.Round(ctx); err != nil {
			r.Log.Warn(r.What+" is not replaced yet", "error", err)
		}
	}, interval)
	return nil
}

// Round takes a rotation as far as those answer who are waited for.
func (r *Rotation) Round(ctx context.Context) error {
	trust, err := r.Trust()
	if err != nil {
		return err
	}

	stage, since := trust.Stage()
	if stage == "" {
		r.note("", time.Time{}, nil)
		return nil
	}

	facts := Facts{Stage: stage, Age: time.Since(since), Settle: r.Settle}
	waiting, err := r.findWaiting(ctx, trust, facts)
	if err != nil {
		r.note(stage, since, []string{err.Error()})
		return err
	}
	r.note(stage, since, waiting)

	facts.Waiting = len(waiting)
	step := Decide(facts)
	if err := r.act(trust, step); err != nil || step == StepNothing {
		return err
	}

	r.Log.Info(r.What+" is being replaced", "step", step)
	r.Changed()
	return nil
}

// findWaiting tells everyone what to trust, and returns those who do not yet.
func (r *Rotation) findWaiting(ctx context.Context, trust Trust, f Facts) ([]string, error) {
	begun, err := r.Installing()
	if err != nil || f.Stage == ca.Asked {
		return begun, err
	}
	own := r.Own(ctx)

	// The former one is taken from nodes when nothing that it signed is served any more.
	trusted := trust.PEM()
	if f.Stage == ca.Switched && f.Age >= f.Settle && len(begun) == 0 && own == nil {
		trusted = trust.Current()
	}
	all, err := r.writeTrust(ctx, trusted)
	if err != nil {
		return nil, err
	}

	if f.Stage == ca.Introduced {
		told, err := r.Told(ctx, trust.Current(), trust.Next())
		if err != nil {
			return nil, err
		}
		all = append(all, told...)
	}

	// Logging in takes a while.
	later, err := r.Installing()
	for _, who := range append(begun, later...) {
		if !slices.Contains(all, who) {
			all = append(all, who)
		}
	}

	// Last, as it may take an hour in which somebody can see to the others.
	if own != nil {
		all = append(all, fmt.Sprintf("this appliance: %v", own))
	}
	return all, err
}

// writeTrust has all nodes trust what is given, as Trust.PEM, and returns those that do not.
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
	earlier := r.Earlier
	if earlier != "" {
		earlier = r.Root + earlier
	}
	script := fmt.Sprintf(trustScript, r.Root+r.File, earlier, strings.TrimSpace(string(trusted)))
	return remote.ChangeAll(ctx, nodes, func(ctx context.Context, n remote.Installed) error {
		return n.Change(ctx, shell, script)
	}), nil
}

func (r *Rotation) act(trust Trust, step Step) error {
	switch step {
	case StepIntroduce:
		return r.Introduce()
	case StepSwitch:
		return trust.Switch()
	case StepForget:
		return trust.ForgetFormer()
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
		text = "Another " + r.What + " is asked for"
	case ca.Introduced:
		text = "The next " + r.What + " is there and signs nothing yet"
	case ca.Switched:
		text = "The next " + r.What + " signs, and the former one is trusted still"
	}

	switch {
	case len(r.wait) > 0:
		return text + "; " + remote.DescribeWaiting(r.wait)
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
