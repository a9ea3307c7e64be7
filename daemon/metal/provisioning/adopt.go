package provisioning

import (
	"errors"
	"fmt"
	"net"
	"slices"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// Adopt takes nodes of the site into service as they are, without a word to their BMCs and disks: it keeps a backup of
// each, from which the next round restores its host. Without names it takes those that wait for it. It returns those
// that it took; the error says of each other why not.
func (p *Provisioner) Adopt(names []string) (adopted []string, err error) {
	hosts, current := p.Hosts.List()
	if !current {
		return nil, errors.New("the appliance is still starting and does not know its hosts yet; try again when firstlightd status says that it is ready")
	}

	objects, err := p.nodeObjects()
	if err != nil {
		return nil, err
	}

	if len(names) == 0 {
		if names = p.waitingForAdoption(objects, hosts); len(names) == 0 {
			return nil, errors.New("no node waits for it")
		}
	}

	var refused []error
	for _, name := range names {
		if err := p.adopt(name, objects, hosts); err != nil {
			refused = append(refused, fmt.Errorf("%s is not adopted: %w", name, err))
			continue
		}
		p.Log.Info("node adopted", "node", name)
		adopted = append(adopted, name)
	}

	p.Recheck()
	return adopted, errors.Join(refused...)
}

func (p *Provisioner) adopt(name string, objects []metal3.NodeObjects, hosts []metal3api.BareMetalHost) error {
	i := slices.IndexFunc(objects, func(n metal3.NodeObjects) bool { return n.Host.Name == name })
	if i < 0 {
		p.mu.Lock()
		defer p.mu.Unlock()
		if err := p.invalidNodes[name]; err != nil {
			return err
		}
		return errors.New("it is not in site.yaml")
	}

	var have *metal3api.BareMetalHost
	if i := slices.IndexFunc(hosts, func(h metal3api.BareMetalHost) bool { return h.Name == name }); i >= 0 {
		have = &hosts[i]
	}

	if sentence := p.describeErasure(name); sentence != "" {
		return errors.New("it " + sentence)
	}

	rec, err := metal3.AdoptedBackup(objects[i], have)
	if err != nil {
		return err
	}

	return p.Hosts.Backups.Adopt(rec)
}

// waitingForAdoption are the nodes that are held because they may be in service: they run, a disk of theirs says so,
// or their backup cannot be read.
func (p *Provisioner) waitingForAdoption(objects []metal3.NodeObjects, hosts []metal3api.BareMetalHost) []string {
	p.mu.Lock()
	progress := slices.Clone(p.progress)
	p.mu.Unlock()

	var names []string
	for _, n := range objects {
		name := n.Host.Name
		if slices.ContainsFunc(hosts, func(h metal3api.BareMetalHost) bool { return h.Name == name && metal3.InService(&h) }) {
			continue
		}

		held := slices.ContainsFunc(progress, func(s metal3.Progress) bool {
			return s.Node == name && (s.Reason == metal3.ReasonInstalled || s.Reason == metal3.ReasonTorn)
		})
		if held || p.HeldRunning(site.Name(name)) {
			names = append(names, name)
		}
	}

	return names
}

// isTorn reports whether the backup of the node with this MAC cannot be read.
func (p *Provisioner) isTorn(mac net.HardwareAddr) bool {
	for _, n := range p.Site().Nodes {
		if slices.Contains(append([]site.MAC{n.BootMAC}, n.MACs...), site.MAC(mac.String())) {
			return p.Hosts.Backups.IsTorn(string(n.Name))
		}
	}
	return false
}
