package inventory

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// written is what the operator writes for one master and one worker (docs/kud.md).
const written = `[all]
master-1  ansible_ssh_host=172.22.0.11 ansible_ssh_port=22
worker-1  ansible_ssh_host=172.22.0.12 ansible_ssh_port=2222

[kube-master]
master-1

[kube-node]
worker-1

[etcd]
master-1

[ovn-central]
master-1

[ovn-controller]
worker-1

[virtlet]
worker-1

[k8s-cluster:children]
kube-node
kube-master

[kube_control_plane:children]
kube-master

[kube_node:children]
kube-node

[k8s_cluster:children]
kube_control_plane
kube_node
`

func TestWhatTheOperatorWrites(t *testing.T) {
	inv, err := Parse([]byte(written))
	require.NoError(t, err)
	assert.Equal(t, []Node{
		{Label: "master-1", Addr: netip.MustParseAddr("172.22.0.11"), Port: 22, User: "root", ControlPlane: true},
		{Label: "worker-1", Addr: netip.MustParseAddr("172.22.0.12"), Port: 2222, User: "root", Worker: true},
	}, inv.Nodes)
	assert.Equal(t, inv.Nodes[:1], inv.ControlPlanes())
	assert.Equal(t, "172.22.0.12:2222", inv.Nodes[1].SSH().String())
}

func TestOtherFormsOfTheSame(t *testing.T) {
	for name, text := range map[string]string{
		"kubespray of today": "[all]\nn1 ansible_host=10.0.0.1 ip=10.9.9.9\n[kube_control_plane]\nn1\n[kube_node]\nn1\n[etcd]\nn1\n",
		"no group all":       "[kube-master]\nn1 ansible_ssh_host=10.0.0.1\n[kube-node]\nn1\n",
		"variables for all":  "[all:vars]\nansible_host = \"10.0.0.1\"\nansible_port=22\n[kube-master]\nn1\n[kube-node]\nn1\n",
		"comments, quotes":   "# made by hand\n; too\n[all] # who\nn1 ansible_host='10.0.0.1' # first\n\n[kube-master]\nn1\n[kube-node]\nn1",
		"children in circle": "[all]\nn1 ansible_host=10.0.0.1\n[kube-master:children]\na\n[a:children]\nkube-master\n[a]\nn1\n[kube-node:children]\na\n",
		"others are there":   "[all]\nn1 ansible_host=10.0.0.1\nbastion ansible_host=10.0.0.9\n[kube-master]\nn1\n[kube-node]\nn1\n[bastions]\nbastion\n",
		"lines of Windows":   "[all]\r\nn1 ansible_host=10.0.0.1\r\n[kube-master]\r\nn1\r\n[kube-node]\r\nn1\r\n",
	} {
		inv, err := Parse([]byte(text))
		require.NoError(t, err, name)
		assert.Equal(t, []Node{{Label: "n1", Addr: netip.MustParseAddr("10.0.0.1"), Port: 22, User: "root", ControlPlane: true, Worker: true}}, inv.Nodes, name)
	}
	inv, err := Parse([]byte("[all]\nvm ansible_ssh_host=fd00::7 ansible_ssh_port=22 ansible_ssh_user=root ansible_ssh_pass=root\n[kube-master]\nvm\n"))
	require.NoError(t, err)
	assert.Equal(t, "[fd00::7]:22", inv.Nodes[0].SSH().String())
	assert.Equal(t, "root", inv.Nodes[0].Password)
}

func TestWrongInventories(t *testing.T) {
	for text, says := range map[string]string{
		"":               "group kube-master: no node is a control plane; name one, three or five",
		controlPlanes(6): "group kube-master: 6 control planes are too many",
		"[kube-master]\na ansible_host=10.0.0.1\n[kube-node]\nb ansible_host=10.0.0.1\n": "hosts a and b have the same address 10.0.0.1",
		"[kube-master]\na\n":                                            `host a: "a" is not an address`,
		"[kube-master]\na ansible_host=node.example\n":                  `host a: "node.example" is not an address`,
		"[kube-master]\na ansible_host=10.0.0.1 ansible_port=0\n":       `host a: port "0" is not 1 to 65535`,
		"[kube-master]\n../../etc ansible_host=10.0.0.1\n":              `host "../../etc": not a node's name`,
		"[kube-master]\nNode_1 ansible_host=10.0.0.1\n":                 `host "Node_1": not a node's name`,
		"[kube-master]\n-a ansible_host=10.0.0.1\n":                     `host "-a": not a node's name`,
		"[kube-master]\nnode[1:3] ansible_host=10.0.0.1\n":              "line 2: host \"node[1:3]\" is a range",
		"[kube-master\na\n":                                             `line 1: "[kube-master" is not [group]`,
		"[a:b]\n":                                                       "is not [group], [group:children] or [group:vars]",
		"[kube-master]\na ansible_host=\"10.0.0.1\n":                    "line 2: '\"' is not closed",
		"[kube-master]\na master\n":                                     `line 2: host a: "master" is not name=value`,
		strings.Repeat("# a long comment that fills the file\n", 1<<15): "more than 1048576",
	} {
		_, err := Parse([]byte(text))
		assert.ErrorContains(t, err, says, "%.60q", text)
	}
	_, err := Parse([]byte("[kube-master]\nA ansible_host=10.0.0.1\nb\n"))
	assert.ErrorContains(t, err, `host "A"`)
	assert.ErrorContains(t, err, "host b", "not all mistakes were told")
}

// controlPlanes is an inventory of nothing else.
func controlPlanes(n int) string {
	text := "[kube-master]\n"
	for i := range n {
		text += fmt.Sprintf("m-%d ansible_host=10.0.0.%[1]d\n", i+1)
	}
	return text
}

// ICN's own samples have two.
func TestHowManyControlPlanes(t *testing.T) {
	for n := 1; n <= 5; n++ {
		inv, err := Parse([]byte(controlPlanes(n)))
		require.NoError(t, err)
		assert.Len(t, inv.ControlPlanes(), n)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(written))
	f.Add([]byte("[all]\nn1 ansible_host='10.0.0.1'\n[kube-master]\nn1\n[kube-node:children]\nkube-master\n"))
	f.Add([]byte("[a:vars]\n=\n[]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		inv, err := Parse(text)
		if err != nil {
			assert.Empty(t, inv.Nodes)
			return
		}
		assert.NotEmpty(t, inv.ControlPlanes())
		for _, n := range inv.Nodes {
			assert.True(t, n.Addr.IsValid() && n.Port != 0 && n.User != "")
			assert.Regexp(t, label, n.Label, "a label is used in file names and commands")
		}
	})
}
