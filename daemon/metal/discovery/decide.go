package discovery

import (
	"slices"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
)

// Decide says of each machine whether it is a node, becomes one, or why not; by MAC, or by the BMC of one that did not
// boot. It is pure.
//
// What contradicts itself is nobody's: of two machines with one BMC, or with one serial number where that is their
// name, neither gets it, unless one of them is a node already.
func Decide(v View) []Finding {
	d := decision{View: v}
	for _, m := range v.Machines {
		if m.Approved && d.knownBy(m) == nil {
			d.nodes++
		}
	}

	d.all = mergeMachines(v)
	findings := make([]Finding, 0, len(d.all))
	for i := range d.all {
		f := d.judge(d.all[i])
		if f.Accept {
			d.nodes++
		}
		d.all[i].Name = f.Machine.Name // no other machine gets it in this round
		findings = append(findings, f)
	}

	return findings
}

// decision is one round of Decide.
type decision struct {
	View
	all   []Machine
	nodes int // so far
}

// mergeMachines are the machines of DATA, those that booted and are not among them, and those of which only the BMC is
// known. One that boots from several of its NICs is one machine, and so is one that boots with its BMC.
func mergeMachines(v View) []Machine {
	unknown := slices.Clone(v.Unknown)
	for i, u := range unknown {
		if m := bmcOf(u, v.Machines); m != nil {
			unknown[i].BMC, unknown[i].BMCURL, unknown[i].Found = m.BMC, m.BMCURL, m.Found
		}
	}

	all := slices.DeleteFunc(slices.Clone(v.Machines), func(m Machine) bool {
		isNamed := slices.ContainsFunc(v.Known, func(k Known) bool {
			return m.MAC != "" && slices.Contains(k.MACs, m.MAC) || m.MAC == "" && k.BMC == m.BMC
		})
		hasChanged := slices.ContainsFunc(unknown, func(u status.UnknownMachine) bool {
			if m.MAC == "" {
				return u.BMC == m.BMC // it has booted by now, and says more of itself
			}
			return u.MAC == m.MAC && (u.BMC != m.BMC || u.Serial != m.Serial) // what was found is void
		})
		return !m.Approved && (isNamed || hasChanged)
	})
	slices.SortFunc(unknown, func(a, b status.UnknownMachine) int { return b.Time.Compare(a.Time) }) // the newest first
	for _, u := range unknown {
		if !slices.ContainsFunc(all, func(m Machine) bool { return m.MAC == u.MAC || isSame(m.UnknownMachine, u) }) {
			all = append(all, Machine{UnknownMachine: u})
		}
	}

	for _, b := range v.BMCs {
		addr := b.Addr.String()
		isKnown := slices.ContainsFunc(v.Known, func(k Known) bool { return k.BMC == addr })
		if !isKnown && !slices.ContainsFunc(all, func(m Machine) bool { return m.BMC == addr }) {
			all = append(all, Machine{UnknownMachine: b.machine(v.Now)})
		}
	}

	slices.SortFunc(all, func(a, b Machine) int { return strings.Compare(a.Key(), b.Key()) })
	return all
}

// bmcOf is the machine with the BMC of one that booted, if that names no BMC: itself if its BMC was found, else one
// known by its BMC alone that has this NIC, or this serial number and no other has it; nil if there is none.
func bmcOf(u status.UnknownMachine, all []Machine) *Machine {
	if u.BMC != "" {
		return nil
	}

	var same []*Machine
	for i := range all {
		m := &all[i]
		if m.MAC == u.MAC && m.Found != "" {
			return m
		}
		if m.MAC != "" {
			continue
		}
		if slices.ContainsFunc(m.NICs, func(n status.UnknownNIC) bool { return n.MAC == u.MAC }) {
			return m
		}
		if isSerial(u.Serial) && m.Serial == u.Serial {
			same = append(same, m)
		}
	}
	if len(same) != 1 {
		return nil
	}

	return same[0]
}

// isSame reports whether two inventories are of one machine that booted from two of its NICs: each names the NIC of the
// other. One alone proves nothing: a machine may say what it likes.
func isSame(a, b status.UnknownMachine) bool {
	has := func(u status.UnknownMachine, mac string) bool {
		return slices.ContainsFunc(u.NICs, func(n status.UnknownNIC) bool { return n.MAC == mac })
	}
	return has(a, b.MAC) && has(b, a.MAC) && a.BMC == b.BMC && a.Serial == b.Serial
}

func (d *decision) judge(m Machine) Finding {
	f := Finding{Machine: m, Login: -1}
	if m.Approved {
		f.Reason = ReasonNode
		if k := d.knownBy(m); k != nil {
			f.Reason, f.Other = ReasonNameTaken, k.Name // site.yaml names it by now, and wins
		}
		return f
	}

	if f.Reason, f.Other = d.checkBMC(m); f.Reason != "" {
		return f
	}
	if f = d.findName(f); f.Reason != "" {
		return f
	}
	if d.nodes >= d.Policy.Count {
		f.Reason = ReasonFull
		return f
	}
	if m.Username == "" {
		return d.planTry(f)
	}

	f.Reason = ReasonApproval
	f.Accept = d.Policy.Approve == site.ApproveNone
	return f
}

// findName gives a machine the name that it gets, or says why it gets none. One that is to be named by its serial
// number, and of which only its BMC is known, says it with the login.
func (d *decision) findName(f Finding) Finding {
	m := f.Machine
	if m.isUnasked() && d.Policy.HasSerial() {
		return f
	}

	if f.Reason, f.Other = d.checkSerial(m); f.Reason != "" {
		return f
	}
	if f.Machine.Name = d.nameOf(m); f.Machine.Name == "" {
		f.Reason = ReasonSerialNone
		return f
	}
	if f.Other = d.ownerOf(f.Machine); f.Other != "" {
		f.Reason = ReasonNameTaken
	}

	return f
}

// knownBy is the node of site.yaml, or the host, that a machine is already.
func (d *decision) knownBy(m Machine) *Known {
	for i, k := range d.Known {
		if k.Name == string(m.Name) || m.MAC != "" && slices.Contains(k.MACs, m.MAC) || k.BMC != "" && k.BMC == m.BMC {
			return &d.Known[i]
		}
	}
	return nil
}

func (d *decision) checkBMC(m Machine) (Reason, string) {
	if m.BMC == "" {
		return ReasonBMCNone, ""
	}
	if !isIn(m.BMC, d.Policy.BMCs) {
		return ReasonBMCOutside, ""
	}

	for _, k := range d.Known {
		if k.BMC == m.BMC {
			return ReasonBMCKnown, k.Name
		}
	}
	for _, o := range d.all {
		switch {
		case o.Key() == m.Key() || o.BMC != m.BMC:
		case o.Approved:
			return ReasonBMCKnown, string(o.Name)
		default:
			return ReasonBMCShared, o.Key()
		}
	}

	return "", ""
}

// checkSerial refuses a serial number that does not tell machines apart, where names are made of them.
func (d *decision) checkSerial(m Machine) (Reason, string) {
	if !d.Policy.HasSerial() {
		return "", ""
	}
	if !isSerial(m.Serial) {
		return ReasonSerialNone, ""
	}

	for _, k := range d.Known {
		if k.Serial == m.Serial {
			return ReasonSerialShared, k.Name
		}
	}
	for _, o := range d.all {
		if o.Key() != m.Key() && o.Serial == m.Serial {
			if o.Approved {
				return ReasonSerialShared, string(o.Name)
			}
			return ReasonSerialShared, o.Key()
		}
	}

	return "", ""
}

// placeholders are what boards carry whose maker gave them no serial number (SMBIOS, type 1, serial number).
var placeholders = []string{
	"none", "null", "n/a", "na", "unknown", "not specified", "not available", "not applicable", "default string",
	"to be filled by o.e.m.", "to be filled by oem", "system serial number", "serial number", "chassis serial number",
	"123456789", "1234567890", "0123456789", "oem", "invalid",
}

// isSerial reports whether a serial number can be that of one machine.
func isSerial(s string) bool {
	s = strings.ToLower(strings.TrimSpace(s))
	return s != "" && !slices.Contains(placeholders, s) && strings.Trim(s, s[:1]+" .-") != "" // not one character alone
}

// nameOf is the name that a machine has on DATA, or gets.
func (d *decision) nameOf(m Machine) site.Name {
	if m.Name != "" {
		return m.Name
	}

	if d.Policy.HasSerial() {
		return d.Policy.NameOf(m.Serial, 0)
	}

	for number := 1; ; number++ {
		name := d.Policy.NameOf("", number)
		if name == "" || d.ownerOf(Machine{Name: name}) == "" {
			return name
		}
	}
}

// ownerOf is the node or machine that has the name of another machine; "": none.
func (d *decision) ownerOf(m Machine) string {
	for _, k := range d.Known {
		if k.Name == string(m.Name) {
			return k.Name
		}
	}
	for _, o := range d.all {
		if o.Key() != m.Key() && o.Name == m.Name {
			return string(o.Name)
		}
	}
	return ""
}

// planTry says which login is tried now, or what is waited for.
func (d *decision) planTry(f Finding) Finding {
	t := d.Tries[f.Machine.BMC]
	f.Other = t.Text
	next := slices.IndexFunc(d.Keys, func(key string) bool { return !slices.Contains(t.Refused, key) })
	if next < 0 {
		f.Reason = ReasonRefused
		return f
	}

	if due := nextTry(t); due.After(d.Now) {
		f.Reason, f.Due = ReasonWaiting, due
		if t.Off {
			f.Reason = ReasonOff
		}
		return f
	}

	f.Reason, f.Login = ReasonTrying, next
	return f
}

// nextTry is when a BMC may be asked again.
func nextTry(t Tries) time.Time {
	var due time.Time
	if n := len(t.At); n >= triesPerHour {
		due = t.At[n-triesPerHour].Add(tryWindow)
	}
	if n := len(t.At); n > 0 && (t.Off || t.Silent) {
		if pause := t.At[n-1].Add(tryPause); pause.After(due) {
			due = pause
		}
	}
	return due
}
