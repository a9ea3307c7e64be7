package scenario_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"firstlight.dev/firstlight/daemon/appliance/firewall"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
)

// rounds is how often is asked what must be reached, or found to be a way: an answer proves one, silence on a busy
// machine does not prove that there is none.
const rounds = 8

// podPorts are where pods of the appliance listen: the operator's webhook, and CoreDNS with its health and metrics.
var podPorts = []firewall.Listener{
	{Protocol: "tcp", Port: 9443}, {Protocol: "tcp", Port: 53}, {Protocol: "tcp", Port: 8080}, {Protocol: "tcp", Port: 9153},
}

// podAddress is the address of a pod of the appliance's that has one of its own.
func podAddress(t *testing.T, ctx context.Context, d *scenario.Scenario) netip.Addr {
	t.Helper()
	var list corev1.PodList
	require.NoError(t, json.Unmarshal([]byte(run(t, ctx, d, "kubectl", "get", "pods", "-A", "-o", "json")), &list))
	for _, p := range list.Items {
		if addr, err := netip.ParseAddr(p.Status.PodIP); err == nil && !p.Spec.HostNetwork && p.Status.Phase == corev1.PodRunning {
			t.Logf("%s/%s is at %s", p.Namespace, p.Name, addr)
			return addr
		}
	}
	require.Fail(t, "no pod has an address of its own")
	return netip.Addr{}
}

// try asks for listeners at addresses from one stranger, all at once: where packets are dropped, each takes its whole
// deadline. It returns those that answered.
func (v *visitor) try(ctx context.Context, at netip.Addr, listeners []firewall.Listener) (reached []string) {
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, l := range listeners {
		asking.Go(func() {
			if v.Reaches(ctx, l.Protocol, netip.AddrPortFrom(at, l.Port)) {
				mu.Lock()
				defer mu.Unlock()
				reached = append(reached, fmt.Sprintf("%s %d/%s", at, l.Port, l.Protocol))
			}
		})
	}

	asking.Wait()
	return reached
}

// reach is what each stranger reaches beyond its network: the appliance's other addresses, its pods, and the other
// strangers, of whom one answers as a BMC.
func (s *strangers) reach(ctx context.Context, pod netip.Addr) map[string][]string {
	reached := map[string][]string{}
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, v := range s.all {
		elsewhere := map[netip.Addr][]firewall.Listener{pod: append(firewall.Listeners(), podPorts...)}
		for _, other := range s.all {
			if other != v {
				elsewhere[other.appliance] = firewall.Listeners()
				elsewhere[other.Addr] = []firewall.Listener{{Protocol: "tcp", Port: 443}, {Protocol: "tcp", Port: 22}}
			}
		}
		for at, listeners := range elsewhere {
			asking.Go(func() {
				found := v.try(ctx, at, listeners)
				mu.Lock()
				defer mu.Unlock()
				if len(found) > 0 {
					reached[v.network] = append(reached[v.network], found...)
				}
			})
		}
	}

	asking.Wait()
	return reached
}

// forEverybody are ports that answer on a network whoever asks.
var forEverybody = map[string][]string{
	"provisioning": {"6180/tcp", "5000/tcp", "6385/tcp", "9015/tcp", "9000/tcp", "123/udp"},
	"baremetal":    {"6180/tcp", "5000/tcp", "9015/tcp", "9000/tcp", "443/tcp", "123/udp"},
}

// reachOwn is what each stranger reaches at the appliance's address on its own network. It asks until all that is for
// everybody has answered, and at least twice.
func (s *strangers) reachOwn(ctx context.Context) map[string][]string {
	reached := map[string][]string{}
	for round := range rounds {
		isAll := round > 0
		for _, v := range s.all {
			for _, found := range v.try(ctx, v.appliance, firewall.Listeners()) {
				_, port, _ := strings.Cut(found, " ")
				if !slices.Contains(reached[v.network], port) {
					reached[v.network] = append(reached[v.network], port)
				}
			}
			for _, port := range forEverybody[v.network] {
				isAll = isAll && slices.Contains(reached[v.network], port)
			}
		}
		if isAll {
			break
		}
	}
	return reached
}

// checkOwn holds what is reached to the list of listeners: nothing else, and what is for everybody.
func (s *strangers) checkOwn(reached map[string][]string) {
	s.t.Logf("reached at the appliance's own address: %v", reached)
	for _, v := range s.all {
		var listed []string
		for _, l := range firewall.Listeners() {
			if v.mayReach(l) {
				listed = append(listed, fmt.Sprintf("%d/%s", l.Port, l.Protocol))
			}
		}
		assert.Subset(s.t, listed, reached[v.network], "%s reaches what the list of listeners does not have", v.network)
		assert.Subset(s.t, reached[v.network], forEverybody[v.network], "%s does not reach what is for everybody", v.network)
	}
}

// checkWithoutFilter takes the packet filter away, and finds that each stranger then reaches what is elsewhere: so it
// was the filter that kept them, and reach can tell. The daemon loads it again by itself, and nothing is reached.
func (s *strangers) checkWithoutFilter(ctx context.Context, pod netip.Addr) {
	reached := map[string][]string{}
	for range rounds {
		_, _ = s.d.Sandbox.Run(ctx, "sh", "-c", "nft delete table "+firewall.Table) // it may be gone yet
		for network, found := range s.reach(ctx, pod) {
			reached[network] = append(reached[network], found...)
		}
		if len(reached) == len(s.all) {
			break
		}
	}
	for network, found := range reached {
		slices.Sort(found)
		reached[network] = slices.Compact(found)
	}
	s.t.Logf("reached without the packet filter: %v", reached)
	assert.Len(s.t, reached, len(s.all), "without the packet filter a stranger reaches nothing: that it does not with it proves nothing")

	require.Eventually(s.t, func() bool {
		_, err := s.d.Sandbox.Run(ctx, "nft", append([]string{"list", "table"}, strings.Fields(firewall.Table)...)...)
		return err == nil
	}, 5*time.Minute, time.Second, "the packet filter is not loaded again")
	assert.Empty(s.t, s.reach(ctx, pod), "the packet filter that was loaded again lets through what it did not before")
}
