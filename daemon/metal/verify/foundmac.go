package verify

import (
	"context"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
)

// findMAC is the MAC that a BMC says its server boots from, asked until there is one.
func (e *Engine) findMAC(ctx context.Context, st *state, b site.BMC) (mac, problem string) {
	e.mu.Lock()
	known := st.bootMAC
	e.mu.Unlock()
	if known != "" {
		return known, ""
	}

	heard := map[string]bool{}
	for _, r := range e.Records() {
		heard[r.MAC] = true
	}

	ask := e.BootMAC
	if ask == nil {
		ask = bmc.Client{Pins: e.Pins}.BootMAC
	}

	mac, err := ask(ctx, b, func(mac string) bool { return heard[mac] })
	if err != nil {
		return "", err.Error()
	}

	e.mu.Lock()
	defer e.mu.Unlock()
	st.bootMAC = mac
	return mac, ""
}

// FoundMAC is the MAC that a node's BMC names, if nothing else does; "" before its pre-flight.
func (e *Engine) FoundMAC(node string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.nodes[site.Name(node)]; s != nil {
		return s.bootMAC
	}
	return ""
}
