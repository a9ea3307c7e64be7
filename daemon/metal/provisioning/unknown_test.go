package provisioning

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
)

// TestUnknownMachinesAreShown until the site names them, as documents that kubectl takes.
func TestUnknownMachinesAreShown(t *testing.T) {
	p := newForwarding(t)
	p.Unknown.Path = filepath.Join(t.TempDir(), "unknown.json")
	const mac = "52:54:00:0a:0b:0c"
	assert.Empty(t, p.UnknownNotes())
	p.Gate.Inspected(mac, map[string]any{"inventory": map[string]any{"bmc_address": "10.0.0.9"}})
	require.Len(t, p.UnknownNotes(), 1)
	assert.Contains(t, p.UnknownNotes()[0], "firstlightd unknown")

	text := unknownData(p.UnknownMachines())["52-54-00-0a-0b-0c.yaml"]
	assert.Contains(t, text, "# - name: node-0a0b0c")
	for document := range strings.SplitSeq(text, "---\n") {
		var object map[string]any
		require.NoError(t, yaml.UnmarshalStrict([]byte(document), &object), document)
		assert.NotEmpty(t, object["kind"])
	}

	p.DescribeUnknown = func(all []status.UnknownMachine) []status.UnknownMachine {
		return append(all, status.UnknownMachine{BMC: "10.30.0.101"}, status.UnknownMachine{BMC: "fd00::1"})
	}
	require.Len(t, p.UnknownNotes(), 2)
	assert.Equal(t, "2 BMCs that site.yaml does not name leased addresses; firstlightd discovered shows them", p.UnknownNotes()[1])
	assert.Contains(t, unknownData(p.UnknownMachines()), "10.30.0.101.yaml")
	assert.Contains(t, unknownData(p.UnknownMachines()), "fd00--1.yaml")
	p.DescribeUnknown = nil

	named, problems := site.Load("site.yaml", fmt.Appendf(nil, "nodes: [{name: a, macs: [%q]}]", mac))
	require.Empty(t, problems)
	p.Deps.Site = named.WithDefaults
	assert.Empty(t, p.UnknownMachines())
	assert.Empty(t, unknownData(p.UnknownMachines()))
}

func TestTheConfigMapHasRoomForWhatFits(t *testing.T) {
	var all []status.UnknownMachine
	for i := range 128 {
		u := status.UnknownMachine{MAC: fmt.Sprintf("52:54:00:00:00:%02x", i), Time: time.Now(), BMC: "10.0.0.9"}
		for range 24 {
			u.Disks = append(u.Disks, status.UnknownDisk{Name: strings.Repeat("n", 64), Model: strings.Repeat("m", 64), Serial: strings.Repeat("s", 64)})
			u.NICs = append(u.NICs, status.UnknownNIC{Name: strings.Repeat("n", 64), MAC: u.MAC})
		}
		all = append(all, u)
	}
	size := 0
	for _, text := range unknownData(all) {
		size += len(text)
	}
	assert.Greater(t, size, 256<<10)
	assert.LessOrEqual(t, size, unknownBytes, "etcd takes 1 MiB")
}
