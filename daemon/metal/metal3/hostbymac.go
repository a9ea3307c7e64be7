package metal3

import metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

// HostByMAC is the host with a NIC of this MAC (lower case, with colons), nil if there is none, and whether the hosts
// were read from the API since the daemon started. The host is not to be changed.
func (h *Hosts) HostByMAC(mac string) (host *metal3api.BareMetalHost, current bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.byMAC[mac], h.current
}

// FindHost returns the first host that fits, in the order of names; nil if there is none. It is not to be changed.
func (h *Hosts) FindHost(fits func(*metal3api.BareMetalHost) bool) *metal3api.BareMetalHost {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for i := range h.hosts {
		if fits(&h.hosts[i]) {
			return &h.hosts[i]
		}
	}

	return nil
}
