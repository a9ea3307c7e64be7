package ironic

import (
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"
)

// FastTrack is how long after a call of an agent, and after an inspection, Ironic takes that agent for
// alive and deploys without another boot ([deploy]fast_track_timeout).
const FastTrack = 5 * time.Minute

// isAgentDue reports whether Ironic counts on an agent that has not called since its node was inspected.
func isAgentDue(n nodes.Node, now time.Time) bool {
	called, _ := n.DriverInternalInfo["agent_url"].(string)
	finished := n.InspectionFinishedAt
	return n.PowerState == "power on" && called == "" && finished != nil && now.Sub(*finished) < FastTrack
}
