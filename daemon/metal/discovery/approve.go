package discovery

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/status"
)

// accept makes a machine a node. It is on DATA before anything else knows.
func (f *Finder) accept(m Machine) error {
	if saved, err := f.saveNode(m); !saved {
		return err
	}
	f.Log.Info("machine became a node", "node", m.Name, "mac", m.MAC, "bmc", m.BMC, "serial", m.Serial)
	f.Changed()
	return nil
}

func (f *Finder) saveNode(m Machine) (saved bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := f.saved.find(m.Key())
	if i < 0 {
		return false, nil // the next round decides again
	}

	before := f.saved.Machines[i]
	m.Approved = true
	f.saved.Machines[i] = m
	if err := f.saved.write(f.Path); err != nil {
		f.saved.Machines[i] = before
		return false, fmt.Errorf("keep that %s is a node: %w", m.Name, err)
	}

	f.findings = slices.Clone(f.findings) // Describe may read it
	for i := range f.findings {
		if f.findings[i].Machine.Key() == m.Key() {
			f.findings[i].Reason = ReasonNode // what is shown does not wait for the next round
		}
	}
	return true, nil
}

// Approve makes nodes of the machines with these names, or of all that await it if there is no name. A name may be followed
// by what the machine is known by, as UnknownMachine.Approval has it: then it is that machine or none. It returns the names
// of those that became nodes; the error says of each other why not.
func (f *Finder) Approve(names []string) (approved []string, err error) {
	v, ok := f.view()
	if !ok {
		return nil, errors.New("site.yaml has no discover, or the appliance is still starting; see firstlightd status")
	}

	findings := Decide(v)
	if len(names) == 0 {
		for _, finding := range findings {
			if finding.Reason == ReasonApproval {
				names = append(names, finding.Machine.Approval(string(finding.Machine.Name)))
			}
		}
		if len(names) == 0 {
			return nil, errors.New("no machine awaits approval; firstlightd unknown says why")
		}
	}

	var refused []error
	for _, asked := range names {
		if err := f.approve(asked); err != nil {
			refused = append(refused, err)
			continue
		}
		name, _, _ := strings.Cut(asked, "/")
		approved = append(approved, name)
	}

	return approved, errors.Join(refused...)
}

func (f *Finder) approve(asked string) error {
	name, _, isExact := strings.Cut(asked, "/")
	for _, finding := range f.Findings() {
		if string(finding.Machine.Name) != name {
			continue
		}
		if isExact && finding.Reason == ReasonApproval && finding.Machine.Approval(name) != asked {
			return fmt.Errorf("%s is not approved: it is another machine by now, or has another BMC; read what it is now: "+
				"firstlightd unknown", name)
		}
		switch finding.Reason {
		case ReasonApproval:
			return f.accept(finding.Machine)
		case ReasonNode:
			return fmt.Errorf("%s is a node already", name)
		}
		text, fix := finding.Text()
		return fmt.Errorf("%s is not approved: %s; %s", name, text, fix)
	}
	return fmt.Errorf("%s is not approved: no machine has that name; firstlightd unknown lists them", name)
}

// Describe adds to unknown machines what the last round decided of them, the machines of DATA that wait and did not
// boot since this daemon started, and those of which only the BMC is known.
func (f *Finder) Describe(all []status.UnknownMachine) []status.UnknownMachine {
	f.mu.Lock()
	findings := f.findings
	f.mu.Unlock()
	for _, finding := range findings {
		m := finding.Machine
		i := slices.IndexFunc(all, func(u status.UnknownMachine) bool { return u.Key() == m.Key() })
		if finding.Reason == ReasonNode || i < 0 && m.MAC != "" && m.Username == "" {
			continue
		}
		if i < 0 {
			all, i = append(all, m.UnknownMachine), len(all)
		}
		all[i].BMC, all[i].BMCURL, all[i].Found = m.BMC, m.BMCURL, m.Found
		all[i].Node, all[i].Awaits = string(m.Name), finding.Reason == ReasonApproval
		all[i].Why, all[i].Fix = finding.Text()
	}

	slices.SortFunc(all, func(a, b status.UnknownMachine) int { return strings.Compare(a.Key(), b.Key()) })
	return all
}
