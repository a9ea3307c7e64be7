package discovery

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
)

// Finder does what Decide decides. Its methods may be called at the same time.
type Finder struct {
	Path    string                                     // on DATA
	Ready   func() bool                                // DATA is there
	Named   func() *site.Site                          // as site.yaml has it, with its defaults
	Unknown func() []status.UnknownMachine             // machines that booted lately
	Hosts   func() (hosts []Known, current bool)       // of the API
	Login   func(context.Context, site.BMC) bmc.Answer // with one login
	Changed func()                                     // there is another node; must not block
	Log     *slog.Logger
	Now     func() time.Time // nil: time.Now

	// Leases are those on the network of BMCs, Presence and Identify what is asked of who has one, without and with a
	// login.
	Leases   func() []Lease
	Presence func(context.Context, netip.Addr) bmc.Presence
	Identify func(context.Context, site.BMC) (site.BMCAddress, bmc.Identity, bmc.Answer)

	mu       sync.Mutex
	saved    *saved
	asking   map[string]bool // BMCs
	holders  map[netip.Addr]*leaseholder
	findings []Finding // of the last round
}

// Paces of the Finder.
const (
	roundInterval = 2 * time.Second
	maxLogins     = 8 // at the same time
)

func (f *Finder) now() time.Time {
	if f.Now != nil {
		return f.Now()
	}
	return time.Now()
}

// load reads DATA once it is there; nil before.
func (f *Finder) load() *saved {
	if f.saved != nil || !f.Ready() {
		return f.saved
	}

	var err error
	if f.saved, err = readSaved(f.Path, f.now()); err != nil {
		f.Log.Error("machines that were discovered are not known any more; name those that are installed in site.yaml",
			"error", err)
	}
	f.asking = map[string]bool{}
	return f.saved
}

// Site is the site with the machines that became nodes as its last nodes, as if site.yaml named them. One that it names
// by now, by name, MAC or BMC, is its own.
func (f *Finder) Site() *site.Site {
	s := f.Named()
	if s.Discover == nil {
		return s
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	kept := f.load()
	if kept == nil {
		return s
	}

	d := decision{View: View{Known: namedNodes(s)}}
	more := site.Site{Networks: s.Networks, BMC: s.BMC, NodeDefaults: s.NodeDefaults}
	for _, m := range kept.Machines {
		if m.Approved && d.knownBy(m) == nil {
			more.Nodes = append(more.Nodes, m.node(s.NodeDefaults.BootMode))
		}
	}
	if len(more.Nodes) == 0 {
		return s
	}

	slices.SortFunc(more.Nodes, func(a, b site.Node) int { return compareNames(a.Name, b.Name) })
	all := *s
	all.Nodes = slices.Concat(s.Nodes, more.WithDefaults().Nodes)
	return &all
}

// node is a machine as site.yaml would name it.
func (m Machine) node(usual string) site.Node {
	n := site.Node{
		Name: m.Name,
		BMC:  m.bmc(site.Login{Username: m.Username, Password: site.NewSecret(m.Password)}),
	}
	if m.MAC != "" {
		n.MACs, n.BootMAC = []site.MAC{site.MAC(m.MAC)}, site.MAC(m.MAC)
	}
	switch {
	case m.Mode == "": // it did not boot
	case m.Mode == "bios":
		n.BootMode = "legacy"
	case usual == "legacy":
		n.BootMode = "UEFI"
	}
	return n
}

// bmc is a machine's BMC with a login.
func (m Machine) bmc(l site.Login) *site.BMC {
	return &site.BMC{Address: site.BMCAddress(m.BMCAddress()), Username: l.Username, Password: l.Password}
}

// setIdentity adds which server a BMC said that it is of.
func (m *Machine) setIdentity(who bmc.Identity) {
	m.Model, m.Serial, m.NICs = who.Model, who.Serial, nil
	for _, mac := range who.MACs {
		m.NICs = append(m.NICs, status.UnknownNIC{MAC: mac})
	}
}

func namedNodes(s *site.Site) (all []Known) {
	for _, n := range s.Nodes {
		k := Known{Name: string(n.Name)}
		for _, mac := range append([]site.MAC{n.BootMAC}, n.MACs...) {
			k.MACs = append(k.MACs, string(mac))
		}
		if n.BMC != nil {
			k.BMC = plainHost(n.BMC.Address.Host())
		}
		all = append(all, k)
	}
	return all
}

// plainHost is an address in its one spelling.
func plainHost(host string) string {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap().String()
	}
	return host
}

// view is what Decide is asked with; ok is false while something is not known yet, or there is no policy.
func (f *Finder) view() (v View, ok bool) {
	s := f.Named()
	if s.Discover == nil {
		return v, false
	}

	unknown := f.Unknown() // before the lock: it asks Site which machines are known
	hosts, current := f.Hosts()
	if !current {
		return v, false
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	kept := f.load()
	if kept == nil {
		return v, false
	}

	now := f.now()
	kept.tidy(now)
	v = View{
		Policy:   s.Discover,
		Known:    namedNodes(s),
		Unknown:  unknown,
		BMCs:     f.leasedBMCs(),
		Machines: slices.Clone(kept.Machines),
		Tries:    maps.Clone(kept.Tries),
		Keys:     kept.keys(s.Discover.Credentials),
		Now:      now,
	}
	for _, h := range hosts {
		own := slices.ContainsFunc(kept.Machines, func(m Machine) bool { return m.Approved && string(m.Name) == h.Name })
		if !own && !slices.ContainsFunc(v.Known, func(k Known) bool { return k.Name == h.Name }) {
			h.BMC = plainHost(h.BMC)
			v.Known = append(v.Known, h)
		}
	}

	return v, true
}

// Findings are what is decided of each machine now; none without a policy.
func (f *Finder) Findings() []Finding {
	v, ok := f.view()
	if !ok {
		return nil
	}
	return Decide(v)
}

// Run asks BMCs and accepts machines until ctx ends.
func (f *Finder) Run(ctx context.Context) error {
	var logins sync.WaitGroup
	defer logins.Wait()
	for ctx.Err() == nil {
		if err := f.round(ctx, &logins); err != nil {
			return err
		}

		select {
		case <-ctx.Done():
		case <-time.After(roundInterval):
		}
	}
	return nil
}

// round does once what is decided now; logins and other questions continue.
func (f *Finder) round(ctx context.Context, logins *sync.WaitGroup) error {
	v, ok := f.view()
	var findings []Finding
	if ok {
		f.askLeaseholders(ctx, v, logins)
		findings = Decide(v)
	}

	f.mu.Lock()
	f.findings = findings
	f.mu.Unlock()
	for _, finding := range findings {
		switch {
		case finding.Accept:
			if err := f.accept(finding.Machine); err != nil {
				return err
			}
		case finding.Login >= 0 && f.beginLogin(finding.Machine.BMC):
			logins.Go(func() { f.login(ctx, finding.Machine, v.Policy.Credentials[finding.Login]) })
		}
	}
	return nil
}

func compareNames(a, b site.Name) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
