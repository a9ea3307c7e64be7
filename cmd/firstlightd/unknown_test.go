package main

import (
	"testing"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/metal/unknown"
)

// TestThePageOfDiscoveryShowsAnUnknownMachine: as the command begins with it.
func TestThePageOfDiscoveryShowsAnUnknownMachine(t *testing.T) {
	disk := status.UnknownDisk{Name: "/dev/sda", Model: "PERC H740P", Bytes: 480e9}
	u := status.UnknownMachine{
		MAC: "52:54:01:00:00:01", Model: "Dell Inc. PowerEdge R640", Serial: "ABC1234", CPUs: 32, Arch: "x86_64",
		Memory: 192 << 30, BMC: "10.30.0.101", Disks: []status.UnknownDisk{disk, disk},
		NICs: []status.UnknownNIC{{Name: "eno1", MAC: "52:54:01:00:00:01", Link: true}, {Name: "eno2", MAC: "52:54:01:00:00:02"}},
		Node: "node-abc1234", Why: "its BMC 10.30.0.101 takes the login of \"admin\"; it awaits approval",
		Fix: "run: firstlightd approve node-abc1234", Awaits: true,
	}
	goldentest.CheckBlock(t, "../../docs/discovery.md", "unknown", unknown.Text(u))

	alone := status.UnknownMachine{
		Model: "Dell Inc. PowerEdge R640", Serial: "ABC1234", BMC: "10.30.0.101",
		Found: "50:9a:4c:00:00:01 leased 10.30.0.101 and answers a presence ping as IPMI does",
		Node:  u.Node, Why: u.Why, Fix: u.Fix, Awaits: true,
	}
	goldentest.CheckBlock(t, "../../docs/discovery.md", "leased", unknown.Text(alone))
}
