package bmcpassword

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
)

// turn is one account in one round.
type turn struct {
	*Rotation
	account
	kept    vault.BMCAccount // as it is on DATA
	accepts Accepts
	why     string // what it waits for
}

// view is what the next step is decided on; it keeps what there would be to wait for.
func (t *turn) view(ctx context.Context) View {
	v := View{
		Account: t.kept,
		Accepts: t.accepts,
		Edited:  t.isEdited(),
		MayTry:  len(t.recentTries()) < triesPerWindow,
		Refusal: t.refusal(),
	}

	if t.kept.Next == "" {
		var err error
		if v.Given, err = t.given(ctx); err != nil {
			t.why = fmt.Sprintf("what Ironic is given cannot be read: %v", err)
		}
		return v
	}

	for _, node := range t.nodes {
		if busy := t.Busy(node); busy != "" {
			v.Busy, t.why = true, cmp.Or(t.why, busy)
		}
	}
	switch {
	case v.Accepts == AcceptsNeither:
		t.why = "its BMC takes neither the present password nor the next one; both are kept and tried again in an hour. " +
			"Give the BMC the password that site.yaml says, or correct site.yaml"
	case !v.MayTry:
		t.why = cmp.Or(t.why, "its BMC is asked again within an hour, so that the account is not locked")
	}

	return v
}

// isEdited reports whether the owner has written another password into the site since the next one was minted.
func (t *turn) isEdited() bool {
	return t.kept.Next != "" && t.kept.Digest(t.bmc.Password.Reveal()) != t.kept.NextFor
}

// given is what the Secrets of the account's hosts say. A host that is not there yet is given what is present.
func (t *turn) given(ctx context.Context) (Given, error) {
	for _, node := range t.nodes {
		password, found, err := t.Given(ctx, node)
		if err != nil {
			return GivenUnknown, err
		}
		if found && password != t.present(t.kept) {
			return GivenOther, nil
		}
	}
	return GivenPresent, nil
}

// recentTries are the tries that count now. A clock that was set back lifts no limit and extends none.
func (t *turn) recentTries() (recent []time.Time) {
	now := t.now()
	for _, at := range t.kept.Tries {
		if at.After(now) {
			at = now
		}
		if now.Sub(at) < tryWindow {
			recent = append(recent, at)
		}
	}
	return recent
}

// act does a step. An error ends the round of this account.
func (t *turn) act(ctx context.Context, step Step) error {
	switch step {
	case StepAsk:
		return t.ask(ctx)
	case StepTryNext:
		return t.try(ctx, t.kept.Next, AcceptsNext, AcceptsNotNext)
	case StepTryPresent:
		return t.try(ctx, t.present(t.kept), AcceptsPresent, AcceptsNotPresent)
	case StepSwitch:
		return t.replace()
	case StepDrop:
		return t.drop()
	case StepPass:
		t.Changed()
	case StepForget:
		t.kept.Former = ""
		t.Log.Info("password of a BMC replaced", "nodes", t.nodes, "bmc", t.host)
		return t.Accounts.Save(t.kept)
	}
	return nil
}

// saveTry notes a try on DATA before it is made, so that a power cut counts as one.
func (t *turn) saveTry() error {
	t.kept.Tries = append(t.recentTries(), t.now())
	return t.Accounts.Save(t.kept)
}

// forgetTry takes back that a try counts: the BMC took that login.
func (t *turn) forgetTry() error {
	t.kept.Tries = slices.Clone(t.kept.Tries[:len(t.kept.Tries)-1])
	return t.Accounts.Save(t.kept)
}

// ask asks the BMC to take the next password.
func (t *turn) ask(ctx context.Context) error {
	before := t.kept.Asked
	t.kept.Asked = true
	if err := t.saveTry(); err != nil {
		return err
	}

	t.accepts = AcceptsUnknown
	a := t.BMC.ChangePassword(ctx, t.with(t.present(t.kept)), site.NewSecret(t.kept.Next))
	t.Log.Info("BMC asked for another password", "nodes", t.nodes, "bmc", t.host, "verdict", string(a.Verdict),
		"said", a.Text)
	switch a.Verdict {
	case bmc.OK:
		t.setRefusal("") // the next is tried first
		if err := t.forgetTry(); err != nil {
			return err
		}
		return t.confirm(ctx)
	case bmc.Kept:
		t.setRefusal(a.Text + "; " + a.Fix)
		return t.forgetTry()
	case bmc.Refused:
		if !before {
			t.setRefusal(a.Text + "; " + a.Fix)
			return t.drop() // it was told nothing of the next one
		}
	}

	return errors.New(a.Text)
}

// confirm logs in with the next password after the BMC has said that it has it. One that does not take it yet is no
// reason to forget it: some BMCs say yes before they have done it.
func (t *turn) confirm(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(t.Settle):
	}

	if err := t.try(ctx, t.kept.Next, AcceptsNext, AcceptsNotNext); err != nil {
		return err
	}
	if t.accepts == AcceptsNotNext {
		return errNotTaken
	}
	return nil
}

var errNotTaken = errors.New("its BMC says that it has changed the password, and does not take the new one; " +
	"it is asked again. If that does not help, look into the BMC's own log")

// try logs in with one password.
func (t *turn) try(ctx context.Context, password string, yes, no Accepts) error {
	if err := t.saveTry(); err != nil {
		return err
	}

	a := t.BMC.Login(ctx, t.with(password))
	t.Log.Info("login to a BMC tried", "nodes", t.nodes, "bmc", t.host, "with", string(yes), "verdict", string(a.Verdict))
	switch {
	case a.Verdict == bmc.OK:
		t.accepts = yes
		return t.forgetTry()
	case a.Verdict != bmc.Refused:
		return errors.New(a.Text)
	case t.accepts != AcceptsUnknown:
		t.accepts = AcceptsNeither
	default:
		t.accepts = no
	}
	return nil
}

// replace makes the next password the present one: Secrets are made from it from now on.
func (t *turn) replace() error {
	edited := t.isEdited()
	t.kept.Former = t.present(t.kept)
	t.kept.Present, t.kept.Replaced, t.kept.Since = t.kept.Next, t.kept.NextFor, t.now()
	t.kept.Next, t.kept.Asked, t.kept.Refusal, t.kept.Tries = "", false, "", nil
	if edited {
		t.kept.Former, t.kept.NextFor = "", t.kept.Digest(t.bmc.Password.Reveal())
		t.kept.Refusal = "site.yaml was edited meanwhile, and its BMC has taken the appliance's password; write the " +
			"password that site.yaml said before, or give the BMC the one that it says now"
	}

	if err := t.Accounts.Save(t.kept); err != nil {
		return err
	}
	t.setRefusal("")
	t.Changed()
	return nil
}

// drop forgets the next password.
func (t *turn) drop() error {
	t.kept.Next, t.kept.Asked, t.kept.Refusal = "", false, t.refusal()
	if err := t.Accounts.Save(t.kept); err != nil {
		return err
	}
	if t.kept.Refusal != "" {
		t.Log.Warn("password of a BMC is not replaced", "nodes", t.nodes, "bmc", t.host, "reason", t.kept.Refusal)
	}
	t.setRefusal("")
	return nil
}

func (t *turn) refusal() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refusals[t.key()]
}

func (t *turn) setRefusal(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.refusals == nil {
		t.refusals = map[string]string{}
	}
	if text == "" {
		delete(t.refusals, t.key())
		return
	}
	t.refusals[t.key()] = text
}
