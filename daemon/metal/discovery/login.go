package discovery

import (
	"context"
	"slices"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
)

// beginLogin reports whether a BMC may be asked now, and notes on DATA that it is: without that note it is not asked.
func (f *Finder) beginLogin(address string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asking[address] || len(f.asking) >= maxLogins {
		return false
	}

	if !f.saved.begin(address, f.now()) {
		return false
	}
	if err := f.saved.write(f.Path); err != nil {
		f.Log.Error("a BMC is not asked: that it is cannot be noted", "bmc", address, "error", err)
		return false
	}

	f.asking[address] = true
	return true
}

// login tries one login on the BMC of a machine, and keeps what it answered.
func (f *Finder) login(ctx context.Context, m Machine, l site.Login) {
	m, a := f.tryLogin(ctx, m, l)
	mayBeOff := m.MAC == "" // else it runs, or it would have said nothing
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.asking, m.BMC)
	t := f.saved.Tries[m.BMC]
	t.Text = a.Text
	t.Off = a.Verdict == bmc.OK && !a.On && !mayBeOff
	t.Silent = a.Verdict != bmc.OK && a.Verdict != bmc.Refused
	switch {
	case a.Verdict == bmc.Refused:
		t.Refused = append(slices.Clone(t.Refused), f.saved.keys([]site.Login{l})...)
	case a.Verdict == bmc.OK && !t.Off:
		m.Username, m.Password = l.Username, l.Password.Reveal()
		if f.saved.isTaken(m) {
			m.Name = "" // another one got it meanwhile
		}
		f.saved.put(m)
	}

	f.saved.Tries[m.BMC] = t
	f.Log.Info("BMC of an unknown machine asked", "mac", m.MAC, "bmc", m.BMC, "verdict", string(a.Verdict), "said", a.Text)
	if err := f.saved.write(f.Path); err != nil {
		f.Log.Error("what a BMC answered is not on DATA", "bmc", m.BMC, "error", err)
	}
}
