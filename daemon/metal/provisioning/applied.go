package provisioning

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// secretTTL is how long a Secret that an applied host names is not read again: rounds come once a second.
const secretTTL = 15 * time.Second

// AllNodes is the site as it is in effect: its own nodes, with the MACs that were discovered where it names none, and
// after them the hosts that someone applied, as a site would describe them. One rule holds for all of them.
func (p *Provisioner) AllNodes() *site.Site {
	s := p.Site()
	p.mu.Lock()
	discovered, applied, known := p.discovered, p.appliedNodes, p.nodesKnown
	p.mu.Unlock()
	if !known {
		applied = p.savedNodes(s)
	}
	if len(discovered) == 0 && len(applied) == 0 {
		return s
	}

	all := *s
	all.Nodes = slices.Clone(s.Nodes)
	for i, n := range all.Nodes {
		if mac := discovered[n.Name]; mac != "" && n.BootMAC == "" && len(n.MACs) == 0 {
			all.Nodes[i].BootMAC, all.Nodes[i].MACs = mac, []site.MAC{mac}
		}
	}

	for _, n := range applied {
		if !hasNode(s, string(n.Name)) {
			all.Nodes = append(all.Nodes, n)
		}
	}

	return &all
}

// savedNodes are the applied hosts of the backups, for as long as the API was not asked: at a restart the Launch is
// declared before, and must not change.
func (p *Provisioner) savedNodes(s *site.Site) []site.Node {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.savedAt) < secretTTL {
		return p.appliedNodes
	}

	records, err := p.Hosts.Backups.Read()
	if err != nil {
		p.Log.Error("host records cannot be read", "error", err)
		return nil
	}

	p.savedAt, p.appliedNodes = time.Now(), nil
	for _, name := range slices.Sorted(maps.Keys(records)) {
		rec := records[name]
		if !rec.Removed && metal3.IsApplied(&rec.Host, rec, hasNode(s, name)) {
			a := metal3.AppliedHost{Host: &rec.Host, Default: s.BMC.VerifyCertificate}
			a.UseCredentials(p.hostSecrets.Read(name))
			p.appliedNodes = append(p.appliedNodes, a.Node())
		}
	}

	return p.appliedNodes
}

// IsApplied reports whether a node of AllNodes is a host that someone applied.
func (p *Provisioner) IsApplied(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.appliedNodes, func(n site.Node) bool { return string(n.Name) == name })
}

// isFromSite reports whether a site once named a host.
func (p *Provisioner) isFromSite(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fromSite[name]
}

func hasNode(s *site.Site, name string) bool {
	return slices.ContainsFunc(s.Nodes, func(n site.Node) bool { return string(n.Name) == name })
}

// appliedHosts are the hosts that someone applied, with what their Secrets say. What one's Secrets lack is an error of
// that host; it is among the hosts all the same. The last error is of an API server that did not answer, which says
// nothing of any host.
func (p *Provisioner) appliedHosts(
	ctx context.Context, api func() (client.Client, error),
	s *site.Site, hosts []metal3api.BareMetalHost, records map[string]metal3.HostBackup,
) ([]metal3.AppliedHost, map[string]error, error) {
	errs := map[string]error{}
	var all []metal3.AppliedHost
	for i := range hosts {
		h := &hosts[i]
		if !metal3.IsApplied(h, records[h.Name], hasNode(s, h.Name)) {
			continue
		}

		a := metal3.AppliedHost{Host: h, SameBMC: sameBMC(s, hosts, h), Default: s.BMC.VerifyCertificate}
		if metal3.InService(h) {
			a.UseCredentials(p.hostSecrets.Read(h.Name))
		} else if err := p.readSecrets(ctx, api, &a); apply.IsUnanswered(err) {
			return nil, nil, err
		} else if err != nil {
			errs[h.Name] = err
		}

		all = append(all, a)
	}

	return all, errs, nil
}

// sameBMC is another host or node that has the BMC of h; of two the younger one has to wait. "": none.
func sameBMC(s *site.Site, hosts []metal3api.BareMetalHost, h *metal3api.BareMetalHost) string {
	key := metal3.BMCAddress(h.Spec.BMC.Address).SystemKey()
	if h.Spec.BMC.Address == "" {
		return ""
	}
	for _, n := range s.Nodes {
		if n.BMC != nil && n.BMC.Address.SystemKey() == key {
			return string(n.Name)
		}
	}
	for i := range hosts {
		o := &hosts[i]
		if o.Name != h.Name && o.Spec.BMC.Address != "" && metal3.BMCAddress(o.Spec.BMC.Address).SystemKey() == key &&
			!h.CreationTimestamp.Time.Before(o.CreationTimestamp.Time) && !metal3.InService(h) {
			return o.Name
		}
	}
	return ""
}

// readSecrets completes an applied host by what its Secrets say.
func (p *Provisioner) readSecrets(
	ctx context.Context, api func() (client.Client, error), a *metal3.AppliedHost,
) error {
	c, err := api()
	if err != nil {
		return err
	}

	spec := a.Host.Spec
	if name := spec.BMC.CredentialsName; name != "" {
		data, err := p.readSecret(ctx, c, metal3.Namespace, name, "spec.bmc.credentialsName")
		if err != nil {
			return err
		}
		a.Username, a.Password = string(data["username"]), string(data["password"])
		if err := p.hostSecrets.Save(a.Host.Name, name, data); err != nil {
			return err
		}
	}

	return p.readUserData(ctx, c, a)
}

// readUserData completes an applied host by its user data. A Secret that does not exist is waited for, and after
// metal3.AwaitSecrets the host has no user data.
func (p *Provisioner) readUserData(ctx context.Context, c client.Client, a *metal3.AppliedHost) error {
	u := a.Host.Spec.UserData
	if u == nil || u.Name == "" {
		return nil
	}

	namespace := u.Namespace
	if namespace == "" {
		namespace = metal3.Namespace
	}

	data, err := p.readSecret(ctx, c, namespace, u.Name, "spec.userData")
	if errors.Is(err, errNoSecret) {
		if time.Since(a.Host.CreationTimestamp.Time) < metal3.AwaitSecrets {
			a.AwaitedSecret = namespace + "/" + u.Name
		}
		return nil
	}
	if err != nil {
		return err
	}

	// The names that Metal3 looks for, in its order.
	a.UserData = data["userData"]
	if a.UserData == nil {
		a.UserData = data["value"]
	}

	return nil
}

var errNoSecret = errors.New("does not exist")

type readSecret struct {
	data map[string][]byte
	at   time.Time
}

func (p *Provisioner) readSecret(
	ctx context.Context, c client.Client, namespace, name, field string,
) (map[string][]byte, error) {
	key := namespace + "/" + name
	p.mu.Lock()
	known, ok := p.secrets[key]
	p.mu.Unlock()
	if ok && time.Since(known.at) < secretTTL {
		return known.data, nil
	}

	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var s corev1.Secret
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &s)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("its %s names Secret %s, which %w; apply it", field, key, errNoSecret)
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", key, err)
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	if p.secrets == nil {
		p.secrets = map[string]readSecret{}
	}
	p.secrets[key] = readSecret{s.Data, time.Now()}
	return s.Data, nil
}
