package provisioning

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"
	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
)

// An agent that erases disks calls every 18 to 36 s, also while it works.
const (
	agentQuiet    = 45 * time.Second // without a call, after which the BMC is asked for the power
	agentSilence  = 3 * time.Minute  // without a call, after which it is gone
	powerInterval = 20 * time.Second // between two questions to a BMC
)

// watchAgent finds out whether the agent of a try is still there, and if not, whether its server has power; before a try,
// whether the BMC would take the order.
func (p *Provisioner) watchAgent(
	ctx context.Context, api client.Client, h *metal3api.BareMetalHost, e metal3.Erasure, found *nodes.Node,
	called time.Time, node *metal3.EraseNode,
) {
	now := time.Now()
	heard := lastHeard(e.Started, called, len(found.CleanStep) > 0)
	node.Silent = isAgentGone(heard, p.began, now)
	quiet := now.Sub(e.Started) > agentQuiet && now.Sub(heard) > agentQuiet
	if quiet && node.State == "clean wait" {
		node.Quiet = heard
	}
	if node.State != "manageable" && (node.State != "clean wait" || !quiet) {
		return
	}

	a := p.powers.latest(h.Name, fmt.Sprint(node.State, e.Tries), func() bmc.Answer {
		b, err := p.bmcOf(ctx, api, h)
		if err != nil {
			return bmc.Answer{Verdict: bmc.Unfit, Text: err.Error()}
		}
		return p.Login(ctx, h.Name, b)
	})
	node.IsOff = a.Verdict == bmc.OK && !a.On
	switch a.Verdict {
	case "":
		node.BMC = "it is being asked"
	case bmc.Silent, bmc.Busy, bmc.Changed:
		node.BMC = a.Text
	}
}

// lastHeard is when the agent of a try that was started once was heard last; zero: it has not called yet. One that ran
// before is given its step at once (Ironic, fast track), and has no need to call first.
func lastHeard(started, called time.Time, hasStep bool) time.Time {
	switch {
	case called.After(started):
		return called
	case hasStep:
		return started
	}
	return time.Time{}
}

// isAgentGone reports whether an agent was heard last too long before now; zero: it has not called yet. While the daemon
// did not run, which it does since began, no agent was let through. It is pure.
func isAgentGone(heard, began, now time.Time) bool {
	return !heard.IsZero() && now.Sub(heard) > agentSilence && now.Sub(began) > agentSilence
}

// bmcOf is the BMC of a host with its login, also of one that site.yaml does not name any more.
func (p *Provisioner) bmcOf(ctx context.Context, api client.Client, h *metal3api.BareMetalHost) (site.BMC, error) {
	s := p.AllNodes()
	for _, n := range s.Nodes {
		if string(n.Name) == h.Name && n.BMC != nil {
			return *n.BMC, nil
		}
	}

	data, err := p.readSecret(ctx, api, metal3.Namespace, h.Spec.BMC.CredentialsName, "spec.bmc.credentialsName")
	if err != nil {
		return site.BMC{}, err
	}
	a := metal3.AppliedHost{Host: h, Default: s.BMC.VerifyCertificate}
	a.Username, a.Password = string(data["username"]), string(data["password"])
	return *a.Node().BMC, nil
}

// powerChecks are what BMCs said last. A dead one takes most of a minute to be found out, in which others are not waited
// for.
type powerChecks struct {
	mu  sync.Mutex
	all map[string]*powerCheck // by host
}

type powerCheck struct {
	during string // what the host was doing then
	answer bmc.Answer
	at     time.Time // of the answer
	asking bool
}

// latest is what the BMC of a host said last while it was doing the same as now; the zero Answer: nothing yet. It has the
// BMC asked again where that is due, and does not wait for it.
func (c *powerChecks) latest(host, during string, ask func() bmc.Answer) bmc.Answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[string]*powerCheck{}
	}
	check := c.all[host]
	if check == nil || check.during != during {
		check = &powerCheck{during: during}
		c.all[host] = check
	}
	if !check.asking && time.Since(check.at) > powerInterval {
		check.asking = true
		go func() {
			a := ask()
			c.mu.Lock()
			defer c.mu.Unlock()
			check.answer, check.at, check.asking = a, time.Now(), false
		}()
	}
	return check.answer
}

func (c *powerChecks) forget(host string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, host)
}
