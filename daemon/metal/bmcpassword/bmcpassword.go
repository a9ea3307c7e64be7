// Package bmcpassword replaces the passwords by which the appliance and Ironic log in to BMCs, by Redfish or by IPMI,
// while the rack is in service. For each account the next password is on DATA before the BMC is asked to take it, and
// the present one stays there until the BMC has taken a login with the next. After a power cut both are tried, rarely
// enough that no account is locked.
package bmcpassword

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/engine/remote"
	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
)

// BMC is how BMCs are asked; package verify/bmc does it.
type BMC interface {
	Login(context.Context, site.BMC) bmc.Answer
	ChangePassword(ctx context.Context, b site.BMC, next site.Secret) bmc.Answer
}

// Accounts is what DATA has of accounts; vault.BMCAccounts keeps it.
type Accounts interface {
	Lookup(bmc, username string) (vault.BMCAccount, bool, error)
	Save(vault.BMCAccount) error
	IsEmpty() bool
}

// Rotation replaces passwords when somebody has asked for it.
type Rotation struct {
	Accounts Accounts
	BMC      BMC
	Named    func() *site.Site // nodes with the passwords that site.yaml, or whoever found them, says

	Busy    func(node string) string // why the BMC of a node is not to be changed now; "": it may be
	Given   func(ctx context.Context, node string) (password string, found bool, err error)
	Changed func() // passwords are others, and the Secrets are to be made again; must not block

	Settle time.Duration    // from a BMC's yes to the first login with the next password
	Now    func() time.Time // nil: time.Now
	Log    *slog.Logger

	mu       sync.Mutex
	waiting  []string          // accounts, each with what it is waited for
	refusals map[string]string // by account: see View.Refusal; of this process
}

const (
	interval = 10 * time.Second // between two rounds
	maxAsked = 8                // BMCs at the same time
)

// Limits of logins that a BMC did not accept, or that nobody knows of whether it did: what locks accounts is many wrong
// ones in a short time.
const (
	triesPerWindow = 2
	tryWindow      = time.Hour
)

func (r *Rotation) now() time.Time {
	if r.Now != nil {
		return r.Now()
	}
	return time.Now()
}

// Site is a site with the passwords that BMCs have by now in place of those that it says. It returns s itself if there
// are none.
func (r *Rotation) Site(s *site.Site) *site.Site {
	if r.Accounts.IsEmpty() {
		return s
	}

	all := *s
	all.Nodes = slices.Clone(s.Nodes)
	for i, n := range all.Nodes {
		if n.BMC == nil {
			continue
		}
		kept, ok, err := r.Accounts.Lookup(bmcName(n.BMC.Address), n.BMC.Username)
		if !ok || err != nil {
			continue
		}
		b := *n.BMC
		b.Password = site.NewSecret(kept.Password(b.Password.Reveal()))
		all.Nodes[i].BMC = &b
	}

	return &all
}

// ErrRotating says that the passwords asked for are being replaced already.
var ErrRotating = errors.New("the passwords of these BMCs are being replaced already")

// Begin mints the next passwords of the BMCs of some nodes, of all if none is named, and returns of how many accounts.
// They are on the medium then. The error names what cannot be replaced; if it is not nil, nothing was begun.
func (r *Rotation) Begin(nodes []string) (begun int, err error) {
	accounts, err := r.choose(nodes)
	if err != nil {
		return 0, err
	}

	for _, a := range accounts {
		kept, ok, err := r.Accounts.Lookup(a.host, a.bmc.Username)
		switch {
		case err != nil:
			return begun, fmt.Errorf("%s: %w", a.nodes[0], err)
		case ok && kept.IsRotating():
			continue
		case !ok:
			kept = vault.NewBMCAccount(a.host, a.bmc.Username)
		}

		kept.Next, kept.NextFor = vault.NewBMCPassword(), kept.Digest(a.bmc.Password.Reveal())
		kept.Asked, kept.Refusal = false, ""
		if err := r.Accounts.Save(kept); err != nil {
			return begun, err
		}
		begun++
	}

	if begun == 0 {
		return 0, ErrRotating
	}
	return begun, nil
}

// choose are the accounts of some nodes, or of all.
func (r *Rotation) choose(nodes []string) (chosen []account, err error) {
	named := r.Named().Nodes
	accounts := listAccounts(named)
	var errs []error
	for _, name := range nodes {
		i := slices.IndexFunc(named, func(n site.Node) bool { return string(n.Name) == name })
		switch {
		case i < 0:
			errs = append(errs, fmt.Errorf("%s is no node of site.yaml, or one of Cluster API; change its password at the BMC, "+
				"and in the Secret of its host", name))
		case named[i].BMC == nil:
			errs = append(errs, fmt.Errorf("%s has no BMC in site.yaml", name))
		}
	}

	for _, a := range accounts {
		asked := slices.ContainsFunc(a.nodes, func(n string) bool { return slices.Contains(nodes, n) })
		if len(nodes) > 0 && !asked {
			continue
		}
		if err := a.check(); err != nil {
			errs = append(errs, err)
			continue
		}
		chosen = append(chosen, a)
	}

	if len(errs) == 0 && len(chosen) == 0 {
		errs = append(errs, errors.New("no node of site.yaml has a BMC"))
	}
	return chosen, errors.Join(errs...)
}

// Run works on rotations that were begun, also before a power cut, until ctx ends.
func (r *Rotation) Run(ctx context.Context) error {
	wait.UntilWithContext(ctx, r.Round, interval)
	return nil
}

// Round takes every rotation as far as it gets now.
func (r *Rotation) Round(ctx context.Context) {
	if r.Accounts.IsEmpty() {
		return
	}

	var mu sync.Mutex
	var waiting []string
	var wg sync.WaitGroup
	room := make(chan struct{}, maxAsked)
	for _, a := range listAccounts(r.Named().Nodes) {
		wg.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			if why := r.advance(ctx, a); why != "" {
				mu.Lock()
				defer mu.Unlock()
				waiting = append(waiting, strings.Join(a.nodes, ", ")+": "+why)
			}
		})
	}

	wg.Wait()
	slices.Sort(waiting)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = waiting
}

// advance takes one account from step to step, and returns what it waits for; "": nothing.
func (r *Rotation) advance(ctx context.Context, a account) string {
	t := turn{Rotation: r, account: a}
	for ctx.Err() == nil {
		kept, ok, err := r.Accounts.Lookup(a.host, a.bmc.Username)
		if err != nil {
			return err.Error()
		}
		if !ok || !kept.IsRotating() {
			return ""
		}

		t.kept = kept
		step := Decide(t.view(ctx))
		if step == StepWait || step == StepNone {
			return t.why
		}
		if err := t.act(ctx, step); err != nil {
			return err.Error()
		}
		if step == StepPass {
			return "Ironic gets the new password"
		}
	}
	return ""
}

// Notes are how rotations stand, for people; none if they wait for no one and every BMC did as it was asked.
func (r *Rotation) Notes() (notes []string) {
	if r.Accounts.IsEmpty() {
		return nil
	}

	r.mu.Lock()
	if len(r.waiting) > 0 {
		notes = append(notes, "The passwords of BMCs are being replaced; "+remote.DescribeWaiting(r.waiting))
	}
	r.mu.Unlock()

	for _, a := range listAccounts(r.Named().Nodes) {
		kept, ok, _ := r.Accounts.Lookup(a.host, a.bmc.Username)
		if ok && kept.Refusal != "" && kept.Digest(a.bmc.Password.Reveal()) == kept.NextFor {
			notes = append(notes, fmt.Sprintf("The password of the BMC of %s was not replaced: %s",
				strings.Join(a.nodes, ", "), kept.Refusal))
		}
	}
	return notes
}
