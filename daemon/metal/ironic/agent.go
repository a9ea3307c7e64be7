package ironic

import (
	"context"
	"time"
)

// FastTrack is how long after a call of an agent, and after an inspection, Ironic takes that agent for
// alive and deploys without another boot ([deploy]fast_track_timeout).
const FastTrack = 5 * time.Minute

// AgentsDue are the nodes, by UUID, of whose agents Ironic would count on one that has not called yet:
// after an inspection it does so without asking (conductor/utils.py, agent_is_alive), and a deployment
// that begins before the agent's first call fails for want of its address. After FastTrack it would boot
// the node again. It is one request for all (Ironic API, GET /v1/nodes).
func (a API) AgentsDue(ctx context.Context, now time.Time) (map[string]bool, error) {
	var list struct {
		Nodes []struct {
			UUID     string     `json:"uuid"`
			Power    string     `json:"power_state"`
			Finished *time.Time `json:"inspection_finished_at"`
			Internal struct {
				URL string `json:"agent_url"`
			} `json:"driver_internal_info"`
		} `json:"nodes"`
	}
	if _, err := a.get(ctx, "/v1/nodes?limit=1000&fields=uuid,power_state,inspection_finished_at,driver_internal_info", &list); err != nil {
		return nil, err
	}
	due := map[string]bool{}
	for _, n := range list.Nodes {
		if n.Power == "power on" && n.Internal.URL == "" && n.Finished != nil && now.Sub(*n.Finished) < FastTrack {
			due[n.UUID] = true
		}
	}
	return due, nil
}
