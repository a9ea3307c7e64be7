package provisioning

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/metal/agentgate"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// permitFile remembers on DATA what may be written to which host.
const permitFile = stick.DataDir + "/agents/permits.json"

// permits are by host. They outlive the daemon: an installation that was begun goes on, and what an owner gave up once
// stays given up until the host is in service. A file that cannot be read permits nothing.
type permits struct {
	path string

	mu sync.Mutex
}

func (p *permits) load() (map[string]metal3.Permit, error) {
	all := map[string]metal3.Permit{}
	text, err := os.ReadFile(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("read permits of hosts: %w", err)
	}

	return all, nil
}

// edit changes the permit of a host with this UID. A file that cannot be read is replaced.
func (p *permits) edit(host, uid string, change func(*metal3.Permit)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	all, err := p.load()
	if err != nil {
		all = map[string]metal3.Permit{}
	}

	permit := all[host]
	if permit.Host != uid {
		permit = metal3.Permit{Host: uid}
	}

	change(&permit)
	all[host] = permit
	return p.save(all)
}

// forget removes the permits of the hosts that done names: they are installed.
func (p *permits) forget(done func(host string) bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	all, err := p.load()
	if err != nil {
		return err
	}

	before := len(all)
	for host := range all {
		if done(host) {
			delete(all, host)
		}
	}

	if len(all) == before {
		return nil
	}

	return p.save(all)
}

func (p *permits) get(host string) (metal3.Permit, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all, err := p.load()
	return all[host], err
}

func (p *permits) save(all map[string]metal3.Permit) error {
	text, err := json.Marshal(all)
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Dir(p.path), 0o700), atomicfile.Write(p.path, text, 0o600))
	}
	if err != nil {
		return fmt.Errorf("save permits of hosts: %w", err)
	}
	return nil
}

// permitWipe notes, before a host gets its image, that its owner has given up what is on its disk: the annotation that
// says so goes when the image comes.
func (p *Provisioner) permitWipe(h *metal3api.BareMetalHost, image string) error {
	if metal3.InService(h) && h.Spec.Image != nil && h.Spec.Image.URL == image {
		return nil // it has that image already: nothing will be written
	}
	return p.permits.edit(h.Name, string(h.UID), func(m *metal3.Permit) { m.Wipe = image })
}

// forgetPermits ends those of hosts that are installed: the next installation is asked for again.
func (p *Provisioner) forgetPermits() {
	err := p.permits.forget(func(host string) bool {
		return p.Hosts.FindHost(func(h *metal3api.BareMetalHost) bool {
			return h.Name == host && h.Status.Provisioning.State == metal3api.StateProvisioned
		}) != nil
	})
	if err != nil {
		p.Log.Error("permits of installed hosts are still there", "error", err)
	}
}

// mayWrite answers a ramdisk that is about to write to its disk: "", or why it may not. An error is no answer: it asks
// again.
func (p *Provisioner) mayWrite(ctx context.Context, host string, asked agentgate.WriteRequest) (string, error) {
	have := p.Hosts.FindHost(func(h *metal3api.BareMetalHost) bool { return h.Name == host })
	if have == nil {
		return "", fmt.Errorf("host %s is not known yet", host)
	}
	if refusal, err := p.checkImage(ctx, have); refusal != "" || err != nil {
		return refusal, err
	}

	seen, err := p.found.Contents(ctx, have)
	if err != nil {
		return "", err
	}

	permit, err := p.permits.get(host)
	if err != nil {
		p.Log.Error("what was permitted before is not known: only what inspection saw may be written", "error", err)
	}

	disk := metal3.WriteDisk(asked.Disk)
	w := metal3.Write{Host: have, Disk: disk, Holds: asked.Holds, Seen: seen, Permit: permit}
	if refusal := metal3.CheckWrite(w); refusal != nil {
		return refusal.Error(), nil
	}

	// Both before the answer: after a power cut the appliance knows the system that may be on the disk by its key, and
	// the half that was written is this installation's own.
	c, err := p.Client()
	if err != nil {
		return "", err
	}
	if refusal, err := p.registerHostKey(ctx, c, have, asked.HostKey); refusal != "" || err != nil {
		return refusal, err
	}

	return "", p.permits.edit(host, string(have.UID), func(m *metal3.Permit) { m.Begun = &disk })
}
