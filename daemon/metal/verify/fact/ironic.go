package fact

import (
	"cmp"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"

	"firstlight.dev/firstlight/daemon/engine/apply"
)

// Ironic is a node of Ironic's.
type Ironic struct {
	Host        string // the BareMetalHost's name
	UUID        string
	State       string // provision_state: enroll, inspect wait, wait call-back, deploying, active, deploy failed, …
	Target      string
	Power       string // power on, power off, or "" if the BMC was not understood
	LastError   string
	Maintenance string    // reason, if it was taken out
	Step        string    // of cleaning or deployment: write_image
	Heartbeat   time.Time // of the agent in its ramdisk, in the running boot
	Since       time.Time // State has been so since
	Inspecting  time.Time // begin of the last inspection
}

// IronicNodes returns Ironic's nodes by the name of their BareMetalHost (the operator names them NAMESPACE~NAME).
// Nodes with another name are left out.
func IronicNodes(all []nodes.Node) map[string]Ironic {
	byHost := map[string]Ironic{}
	for _, n := range all {
		if _, host, named := strings.Cut(n.Name, "~"); named {
			byHost[host] = ironicOf(host, n)
		}
	}
	return byHost
}

func ironicOf(host string, n nodes.Node) Ironic {
	i := Ironic{
		Host:      host,
		UUID:      n.UUID,
		State:     n.ProvisionState,
		Target:    n.TargetProvisionState,
		Power:     n.PowerState,
		LastError: apply.RedactIronicError(strings.TrimSpace(n.LastError)),
		Since:     n.ProvisionUpdatedAt.UTC(),
	}
	if n.InspectionStartedAt != nil {
		i.Inspecting = n.InspectionStartedAt.UTC()
	}

	if text, ok := n.DriverInternalInfo["agent_last_heartbeat"].(string); ok {
		i.Heartbeat = parseTime(text)
	}

	for _, step := range []map[string]any{n.DeployStep, n.CleanStep} {
		if s, ok := step["step"].(string); ok {
			i.Step = s
		}
	}

	if n.Maintenance {
		i.Maintenance = cmp.Or(apply.RedactIronicError(strings.TrimSpace(n.MaintenanceReason)), "no reason was given")
	}

	return i
}

// parseTime reads the form in which Ironic writes a time in driver_internal_info: without a zone, in UTC. Anything
// else is the zero time.
func parseTime(s string) time.Time {
	t, _ := time.Parse("2006-01-02T15:04:05.999999", s)
	return t.UTC()
}
