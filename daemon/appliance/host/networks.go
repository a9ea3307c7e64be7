package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"github.com/vishvananda/netlink"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

const (
	// linkWait is how long NICs that were just brought up may take to find their link.
	linkWait = 6 * time.Second
	// An answer is awaited this long, with a DISCOVER after 0, 1 and 3 s: the first ones
	// are lost on a switch that is still learning.
	probeWait  = 5 * time.Second
	probeFirst = time.Second
	probeTries = 3

	rolesName = "networks.json" // on DATA
)

// networks is what is known of the links. Guarded by Host.mu.
type networks struct {
	probes map[string]Probe // by MAC, of NICs that had a link when asked
	all    []Assignment
	layout []Link
	notes  []string
	waited bool // links had their time to come up
	leases map[string]lease
}

// savedRoles is the file that keeps the detected roles: a swapped order of NICs, or a
// DHCP server that is late, changes nothing.
type savedRoles struct {
	Roles map[string]string `json:"roles"` // MAC to role
}

// LinksDone holds when every role has its bridge with its address and every NIC with a
// link has a role or is known to get none.
func (h *Host) LinksDone(context.Context) error {
	nics, err := readNICs()
	if err != nil {
		return err
	}

	h.mu.Lock()
	waited := h.nets.waited
	h.mu.Unlock()
	undecided := h.assignRoles(nics)
	for _, n := range undecided {
		return fmt.Errorf("%s has a link and no role", n.Name)
	}

	if !waited && h.mayDetect(nics) {
		return errors.New("the NICs' links are not known yet")
	}

	changes, err := linkChanges(h.layout(), nics)
	if err != nil {
		return err
	}

	for _, c := range changes {
		return errors.New(c.text)
	}

	return nil
}

// LinksDo brings the NICs up, probes those whose role is open, and makes the links.
func (h *Host) LinksDo(ctx context.Context, report bringup.Report) error {
	nics, err := readNICs()
	if err != nil {
		return err
	}

	// The addresses first: what needs them need not wait for a switch.
	h.assignRoles(nics)
	if err := h.connect(ctx, nics); err != nil {
		return err
	}
	if nics, err = h.awaitLinks(ctx, nics, report); err != nil {
		return err
	}

	if undecided := h.assignRoles(nics); len(undecided) > 0 {
		report(fmt.Sprintf("asking on %d NICs whether a DHCP server is there", len(undecided)))
		h.probeNICs(ctx, undecided)
		if ctx.Err() != nil {
			return ctx.Err()
		}

		h.assignRoles(nics)
	}

	if err := h.saveRoles(); err != nil {
		return err
	}

	return h.connect(ctx, nics)
}

func (h *Host) connect(ctx context.Context, nics []NIC) error {
	changes, err := linkChanges(h.layout(), nics)
	if err != nil {
		return err
	}
	return apply(ctx, changes)
}

func (h *Host) layout() []Link {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.nets.layout
}

// assignRoles asks Roles and keeps the answer for the status.
func (h *Host) assignRoles(nics []NIC) (undecided []NIC) {
	known := h.loadRoles()
	networks := h.Site().Networks
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range nics {
		if !n.Link {
			delete(h.nets.probes, n.MAC) // another cable may come
		}
	}

	h.nets.all, undecided, _, h.nets.notes = AssignRoles(nics, h.nets.probes, known, networks)
	h.nets.layout = Layout(h.nets.all, networks)
	return undecided
}

// mayDetect tells whether a NIC without a link could still change the roles.
func (h *Host) mayDetect(nics []NIC) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	used := 0
	for _, a := range h.nets.all {
		if a.Role != BMC && len(a.NICs) > 0 {
			used++
		}
	}

	return used < 2 && used < len(nics)
}

// awaitLinks gives NICs whose role is open the time that Ethernet takes to come up; once
// per start of the daemon, as a cable that is not there does not come by waiting.
func (h *Host) awaitLinks(ctx context.Context, nics []NIC, report bringup.Report) ([]NIC, error) {
	h.mu.Lock()
	waited := h.nets.waited
	h.nets.waited = true
	h.mu.Unlock()
	if err := linkUp(nics); err != nil {
		return nil, err
	}

	for end := time.Now().Add(linkWait); ; {
		nics, err := readNICs()
		if err != nil {
			return nil, err
		}

		down := 0
		for _, n := range nics {
			if !n.Link {
				down++
			}
		}

		if down == 0 || waited || !h.mayDetect(nics) || time.Now().After(end) {
			return nics, nil
		}

		report(fmt.Sprintf("waiting for the link of %d NICs", down))
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// probeNICs asks on all NICs at once whether a DHCP server is there. Only DISCOVERs are sent:
// nothing is leased.
func (h *Host) probeNICs(ctx context.Context, nics []NIC) {
	var wg sync.WaitGroup
	for _, n := range nics {
		wg.Go(func() {
			p, err := discover(ctx, n.Name)
			if ctx.Err() != nil {
				return
			}

			if err != nil {
				h.Log.Warn("NIC not probed", "nic", n.Name, "error", err)
			}

			h.Log.Info("NIC probed", "nic", n.Name, "mac", n.MAC, "answered", p.Answered, "server", p.Server)
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.nets.probes == nil {
				h.nets.probes = map[string]Probe{}
			}

			h.nets.probes[n.MAC] = p
		})
	}
	wg.Wait()
}

// discover sends DISCOVERs. No answer is no error.
func discover(ctx context.Context, name string) (Probe, error) {
	ctx, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	c, err := nclient4.New(name, nclient4.WithTimeout(probeFirst), nclient4.WithRetry(probeTries))
	if err != nil {
		return Probe{}, fmt.Errorf("open %s for DHCP: %w", name, err)
	}
	defer c.Close()

	offer, err := c.DiscoverOffer(ctx)
	if err != nil {
		return Probe{}, nil // silence is the answer
	}

	server := offer.ServerIdentifier()
	if server == nil {
		server = offer.ServerIPAddr
	}

	return Probe{Answered: true, Server: server.String()}, nil
}

func (h *Host) loadRoles() map[string]string {
	var r savedRoles
	b, err := os.ReadFile(h.dataPath(rolesName))
	if err == nil {
		err = json.Unmarshal(b, &r)
	}

	if err != nil && !errors.Is(err, os.ErrNotExist) {
		h.Log.Warn("remembered networks not read", "error", err) // then they are probed again
	}

	return r.Roles
}

// saveRoles adds the detected roles to those on DATA; a NIC that is absent today keeps its own.
func (h *Host) saveRoles() error {
	known := h.loadRoles()
	nics, err := readNICs()
	if err != nil {
		return err
	}

	networks := h.Site().Networks
	h.mu.Lock()
	_, _, detected, _ := AssignRoles(nics, h.nets.probes, known, networks)
	h.mu.Unlock()
	changed := false
	if known == nil {
		known = map[string]string{}
	}

	for mac, role := range detected {
		if known[mac] != role {
			known[mac], changed = role, true
		}
	}

	if !changed {
		return nil
	}

	b, err := json.MarshalIndent(savedRoles{known}, "", "  ")
	if err != nil {
		return fmt.Errorf("encode networks: %w", err)
	}

	return writeFile(h.dataPath(rolesName), append(b, '\n'), 0o644)
}

// Addresses is every network of the appliance as it is now.
func (h *Host) Addresses() []status.Address {
	h.mu.Lock()
	all, leases := h.nets.all, h.nets.leases
	defer h.mu.Unlock()
	out := []status.Address{}
	for _, a := range all {
		name := a.Role
		if h.Guest {
			name = a.NICs[0].Name
		}
		s := status.Address{Role: a.Role, Interface: name, Reason: a.Why, DHCPServer: leases[a.Role].server}
		for _, n := range a.NICs {
			s.NICs = append(s.NICs, status.NIC{Name: n.Name, MAC: n.MAC, Link: n.Link})
		}

		if l, err := netlink.LinkByName(name); err == nil {
			if have, err := netlink.AddrList(l, netlink.FAMILY_ALL); err == nil {
				for _, x := range have {
					isInner := x.IP.Equal(site.InnerIPv4().AsSlice())
					if !isInner && (x.IP.To4() != nil || isOurAddress(x)) {
						s.Addresses = append(s.Addresses, x.IPNet.String())
					}
				}
			}
		}

		out = append(out, s)
	}

	return out
}
