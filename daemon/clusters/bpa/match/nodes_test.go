package match

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
)

func spec(t testing.TB, text string) v1alpha1.ProvisioningSpec {
	var s v1alpha1.ProvisioningSpec
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), &s), text)
	return s
}

// TestForms reads every form of a Provisioning that ICN's samples have.
func TestForms(t *testing.T) {
	m1, w1 := Node{Label: "master-1", Master: true, MAC: "00:c6:14:04:61:b2"}, Node{Label: "worker-1", Worker: true, MAC: "00:c6:14:04:61:b3"}
	both := func(n Node) Node { n.Master, n.Worker = true, true; return n }
	for _, c := range []struct {
		name, text string
		want       []Node
	}{
		{"one master alone works as well", "masters:\n  - master-1:\n      mac-address: 00:c6:14:04:61:b2\n", []Node{both(m1)}},
		{"a master and a worker", "masters:\n- master-1: {mac-address: '00:c6:14:04:61:b2'}\nworkers:\n- worker-1: {mac-address: '00:c6:14:04:61:b3'}\n", []Node{m1, w1}},
		{"one label with one MAC in both lists", "masters:\n- master-1: {mac-address: '00:c6:14:04:61:b2'}\nworkers:\n- master-1: {mac-address: '00:c6:14:04:61:b2'}\n", []Node{both(m1)}},
		{"one label with an empty body", "masters:\n  - master-1:\n      mac-address: 00:c6:14:04:61:b2\nworkers:\n  - master-1:\n", []Node{both(m1)}},
		{"what kubectl apply leaves of an empty body", "masters:\n- master-1: {mac-address: '00:c6:14:04:61:b2'}\nworkers:\n- {}\n- worker-1: {mac-address: '00:c6:14:04:61:b3'}\n", []Node{both(m1), w1}},
		{"MAC in upper case and with hyphens", "masters:\n- master-1: {mac-address: 00-C6-14-04-61-B2}\n", []Node{both(m1)}},
		{"trailing blanks and comments", "masters:\n    -   master-1:   \n            mac-address: 00:c6:14:04:61:b2   # first   \n\n", []Node{both(m1)}},
		{"several labels in one item", "masters:\n- b: {cpu: 1}\n  a: {cpu: 2}\n", []Node{{Label: "a", Master: true, Worker: true, CPU: 2}, {Label: "b", Master: true, Worker: true, CPU: 1}}},
		{"resources alone", "masters:\n- m: {cpu: 10, memory: 4Gi}\nworkers:\n- w: {cpu: 20, memory: 8Gi, sriov: true, qat: true}\n",
			[]Node{{Label: "m", Master: true, CPU: 10, Memory: 4 << 30}, {Label: "w", Worker: true, CPU: 20, Memory: 8 << 30, SRIOV: true, QAT: true}}},
		{"what either role asks must hold", "masters:\n- m: {mac-address: '00:c6:14:04:61:b2', cpu: 4}\nworkers:\n- m: {cpu: 2, memory: 8Gi, sriov: true}\n",
			[]Node{{Label: "m", Master: true, Worker: true, MAC: m1.MAC, CPU: 4, Memory: 8 << 30, SRIOV: true}}},
		{"a host by name", "masters:\n- m: {host: node-1}\n", []Node{{Label: "m", Master: true, Worker: true, Host: "node-1"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, problems := ParseNodes(spec(t, c.text))
			assert.Empty(t, problems)
			assert.Equal(t, c.want, got)
		})
	}
}

// TestSpecRefusals: what is wrong whatever the hosts are; ICN's own words come first.
func TestSpecRefusals(t *testing.T) {
	const a, b = "00:c6:14:04:61:b2", "00:c6:14:04:61:b3"
	for _, c := range []struct{ name, text, reason, says string }{
		{"no masters", "workers:\n- w: {cpu: 1}\n", NoMasters, "spec.masters is empty"},
		{"nothing at all", "", NoMasters, "spec.masters is empty"},
		{"master without MAC", "masters:\n- m: {}\n", NothingAsked, "MAC address for masterNode m not provided"},
		{"master without body", "masters:\n- m:\n", NothingAsked, "MAC address for masterNode m not provided"},
		{"worker without MAC", "masters:\n- m: {cpu: 1}\nworkers:\n- w:\n", NothingAsked, "MAC address for worker w not provided"},
		{"one empty body of two masters, without its label", "masters:\n- a: {cpu: 1}\n- b: {cpu: 1}\nworkers:\n- {}\n", LabelMissing, "spec.workers[0] names no node: kubectl apply drops a label whose body is empty; write `- LABEL: {}`"},
		{"one that is not needed", "masters:\n- a: {cpu: 1}\nworkers:\n- a: {}\n- {}\n", LabelMissing, "spec.workers[1] names no node"},
		{"a master whose label was dropped", "masters:\n- {}\n", LabelMissing, "spec.masters[0] names no node"},
		{"placeholder for a MAC", "masters:\n- m: {mac-address: <pn4-IF2-mac>}\n", InvalidMAC, `node m: mac-address "<pn4-IF2-mac>" is not a MAC`},
		{"memory", "masters:\n- m: {memory: lots}\n", InvalidMemory, `node m: memory "lots"`},
		{"memory below nothing", "masters:\n- m: {memory: -1Gi}\n", InvalidMemory, `node m: memory "-1Gi"`},
		{"one label, two MACs", "masters:\n- m: {mac-address: '" + a + "'}\nworkers:\n- m: {mac-address: '" + b + "'}\n", LabelTaken, "A node with label m already exists, modify resource and assign a different label to node with MACAddress " + b},
		{"one label twice among masters", "masters:\n- m: {cpu: 1}\n- m: {cpu: 2}\n", LabelTaken, "A node with label m already exists"},
		{"one label twice among workers", "masters:\n- m: {cpu: 1}\nworkers:\n- m: {cpu: 1}\n- m: {cpu: 2}\n", LabelTaken, "A node with label m already exists"},
		{"one MAC, two labels", "masters:\n- m: {mac-address: '" + a + "'}\nworkers:\n- w: {mac-address: '" + strings.ToUpper(a) + "'}\n", LabelTaken, "A node with label m already exists, modify resource"},
		{"one MAC, two masters", "masters:\n- m: {mac-address: '" + a + "'}\n- k: {mac-address: '" + a + "'}\n", LabelTaken, "node k with MACAddress " + a},
		{"a label that would begin a section", "masters:\n- '[all]': {cpu: 1}\n", InvalidLabel, `the label "[all]" cannot be a host name`},
		{"a label of two lines", "masters:\n- \"m\\n[all]\": {cpu: 1}\n", InvalidLabel, `cannot be a host name`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, problems := ParseNodes(spec(t, c.text))
			require.Len(t, problems, 1, "%v", problems)
			assert.Equal(t, c.reason, problems[0].Reason)
			assert.Contains(t, problems[0].Sentence, c.says)
			assert.False(t, problems[0].Waits)
		})
	}
}

func TestAllThatIsWrongIsSaidAtOnce(t *testing.T) {
	_, problems := ParseNodes(spec(t, "masters:\n- a: {mac-address: x}\n- b: {memory: y}\n- c:\n- c:\n"))
	var reasons []string
	for _, p := range problems {
		reasons = append(reasons, p.Reason)
	}
	assert.ElementsMatch(t, []string{InvalidMAC, InvalidMemory, NothingAsked, LabelTaken}, reasons)
}

// FuzzNodes: whatever the text says, nodes without a problem can be written into an
// inventory and matched.
func FuzzNodes(f *testing.F) {
	for _, s := range []string{"masters:\n- m: {mac-address: 00:c6:14:04:61:b2}\n", "masters:\n- m:\nworkers:\n- m:\n- w: {cpu: 3, memory: 1Gi}\n", "masters: [{'%s': {memory: 1e99}}]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var s v1alpha1.ProvisioningSpec
		if yaml.Unmarshal([]byte(text), &s) != nil {
			return
		}
		nodes, problems := ParseNodes(s)
		for _, p := range problems {
			if strings.Contains(p.Sentence, "%!") {
				t.Errorf("%q", p.Sentence)
			}
		}
		if len(problems) > 0 {
			return
		}
		seen := map[string]bool{}
		for _, n := range nodes {
			if !label.MatchString(n.Label) || seen[n.Label] || !n.Master && !n.Worker || n.Memory < 0 {
				t.Errorf("%+v", nodes)
			}
			seen[n.Label] = true
		}
		NewHosts([]Host{{Name: "x/h", CPU: 4}}).Match(Want{Owner: "o", Cluster: "c", Nodes: nodes})
	})
}
