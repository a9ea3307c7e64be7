package providerid

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestDecide: the three ways by which a Node gets its providerID, in both formats, and what stops them.
func TestDecide(t *testing.T) {
	const byName, byUID = "metal3://metal3/host-1/cp0", "metal3://0f9a"
	m := Machine{Namespace: "metal3", Host: "host-1", HostUID: "0f9a", Name: "cp0"}
	with := func(change func(*Machine)) Machine {
		c := m
		change(&c)
		return c
	}
	cloud := with(func(m *Machine) { m.CloudProvider = true })
	uid := with(func(m *Machine) { m.Format = FormatUID })
	own := with(func(m *Machine) { m.OwnData, m.Hostnames = true, []string{"", "host-1"} })
	for _, c := range []struct {
		name    string
		machine Machine
		nodes   []Node
		want    Decision // without its sentence
	}{
		{"1: the cloud provider gave the name", cloud, []Node{{Name: "n", ProviderID: byName}}, Decision{ProviderID: byName}},
		{"1: the cloud provider gave the UID", cloud, []Node{{Name: "n", ProviderID: byUID}}, Decision{ProviderID: byUID}},
		{"1: the cloud provider is not there yet", cloud, []Node{{Name: "n", UUID: "0f9a"}}, Decision{Reason: ReasonNoCloud}},
		{"2: kubelet has the UID", m, []Node{{Name: "n", ProviderID: byUID}}, Decision{ProviderID: byUID}},
		{"2: kubelet has the name", uid, []Node{{Name: "n", ProviderID: byName}}, Decision{ProviderID: byName}},
		{"3: by its label", m, []Node{{Name: "other"}, {Name: "n", UUID: "0f9a"}}, Decision{ProviderID: byName, Node: "n"}},
		{"3: by its label, the UID's format", uid, []Node{{Name: "n", UUID: "0f9a"}}, Decision{ProviderID: byUID, Node: "n"}},
		{"3: decided before, the Node not written", with(func(m *Machine) { m.ProviderID = byUID }), []Node{{Name: "n", UUID: "0f9a"}},
			Decision{ProviderID: byUID, Node: "n"}},
		{"3: done", with(func(m *Machine) { m.ProviderID = byName }), []Node{{Name: "n", UUID: "0f9a", ProviderID: byName}},
			Decision{ProviderID: byName}},
		{"no Node", m, nil, Decision{Reason: ReasonNoNode}},
		{"no Node of that name, with a bootstrap provider", m, []Node{{Name: "n", Hostname: "host-1"}}, Decision{Reason: ReasonNoNode}},
		{"own bootstrap data: by its name", own, []Node{{Name: "n", Hostname: "host-1"}}, Decision{ProviderID: byName, Node: "n"}},
		{"own bootstrap data: two of that name", own, []Node{{Name: "n", Hostname: "host-1"}, {Name: "o", Hostname: "host-1"}},
			Decision{Reason: ReasonSeveral}},
		{"two of that label", m, []Node{{Name: "n", UUID: "0f9a"}, {Name: "o", UUID: "0f9a"}}, Decision{Reason: ReasonSeveral}},
		{"two of that ID", m, []Node{{Name: "n", ProviderID: byName}, {Name: "o", ProviderID: byUID}}, Decision{Reason: ReasonSeveral}},
		{"another machine's Node of the same host", m, []Node{{Name: "n", UUID: "0f9a"}, {Name: "o", ProviderID: "metal3://metal3/host-1/cp9"}},
			Decision{Reason: ReasonSeveral}},
		{"a host whose name begins alike", m, []Node{{Name: "n", UUID: "0f9a"}, {Name: "o", ProviderID: "metal3://metal3/host-10/cp9"}},
			Decision{ProviderID: byName, Node: "n"}},
		{"another kind of ID", m, []Node{{Name: "n", UUID: "0f9a", ProviderID: "openstack:///1"}}, Decision{Reason: ReasonUnsupported}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Decide(c.machine, c.nodes)
			assert.Equal(t, c.want.Reason == "", got.Sentence == "", got.Sentence)
			got.Sentence = ""
			assert.Equal(t, c.want, got)
		})
	}
}
