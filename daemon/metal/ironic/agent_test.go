package ironic

import (
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"
	"github.com/stretchr/testify/assert"
)

func TestIsAgentDue(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	node := func(power string, ago time.Duration, url any) nodes.Node {
		return nodes.Node{
			UUID: "one", PowerState: power, InspectionFinishedAt: new(now.Add(-ago)),
			DriverInternalInfo: map[string]any{"agent_url": url},
		}
	}
	const called = "https://172.22.0.33:9999"
	for name, c := range map[string]struct {
		node nodes.Node
		want bool
	}{
		"inspected, and silent since":        {node("power on", 10*time.Second, nil), true},
		"inspected, and called":              {node("power on", 10*time.Second, called), false},
		"silent for longer than Ironic is":   {node("power on", FastTrack+time.Second, nil), false},
		"switched off":                       {node("power off", 10*time.Second, nil), false},
		"inspected before the clock was set": {node("power on", -time.Hour, nil), true},
		"never inspected":                    {nodes.Node{UUID: "one", PowerState: "power on"}, false},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, isAgentDue(c.node, now)) })
	}
}
