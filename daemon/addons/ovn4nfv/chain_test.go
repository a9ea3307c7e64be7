package ovn4nfv

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

const chain = `
chainType: Routing
routingSpec:
  namespace: default
  networkChain: "app=slb,net=dync-net1,app=ngfw,net=dync-net2,app=sdewan"
  left: [{networkName: pnet1, gatewayIp: 172.30.10.2, subnet: 172.30.10.0/24}]
  right: [{networkName: pnet2, gatewayIp: 172.30.20.2, subnet: 172.30.20.0/24}]
`

func readChain(t *testing.T, text string) (Chain, error) {
	t.Helper()
	var spec ChainSpec
	require.NoError(t, yaml.Unmarshal([]byte(text), &spec))
	return ReadChain(spec)
}

func chainInterface(network, address string) Interface {
	return Interface{Network: "default/" + network, Addresses: []string{address}, MAC: "m", Interface: "net0"}
}

// chainFunctions are the pods of chain.
func chainFunctions() []function {
	return []function{
		{"slb", "slb", []Interface{chainInterface("pnet1", "172.30.10.3/24"), chainInterface("dync-net1", "10.1.0.2/24")}},
		{"ngfw", "ngfw", []Interface{chainInterface("dync-net1", "10.1.0.3/24"), chainInterface("dync-net2", "10.2.0.2/24")}},
		{"sdewan", "sdewan", []Interface{chainInterface("dync-net2", "10.2.0.3/24"), chainInterface("pnet2", "172.30.20.3/24")}},
	}
}

func TestAChainIsRoutesOfItsPods(t *testing.T) {
	for _, text := range []string{
		"app=slb,net=dync-net1,app=ngfw,net=dync-net2,app=sdewan",
		"app=slb,dync-net1,app=ngfw,dync-net2,app=sdewan", // upstream's older form
		"net=virtual-net1,app=slb,net=dync-net1,app=ngfw,net=dync-net2,app=sdewan,net=virtual-net2",
	} {
		var spec ChainSpec
		require.NoError(t, yaml.Unmarshal([]byte(chain), &spec))
		spec.Routing.Chain = text
		c, err := ReadChain(spec)
		require.NoError(t, err, text)
		assert.Equal(t, "[app=slb app=ngfw app=sdewan]", fmt.Sprint(c.Functions))
		assert.Equal(t, []string{"dync-net1", "dync-net2"}, c.Between)
	}

	c, err := readChain(t, chain)
	require.NoError(t, err)
	routes, err := c.planRoutes(chainFunctions())
	require.NoError(t, err)
	text := map[types.UID]string{}
	for uid, r := range routes {
		text[uid] = fmt.Sprint(r)
	}
	assert.Equal(t, map[types.UID]string{
		"slb":    "[{0.0.0.0/1 10.1.0.3} {128.0.0.0/1 10.1.0.3}]",
		"ngfw":   "[{172.30.10.0/24 10.1.0.2} {0.0.0.0/1 10.2.0.3} {128.0.0.0/1 10.2.0.3}]",
		"sdewan": "[{172.30.10.0/24 10.2.0.2} {0.0.0.0/1 172.30.20.2} {128.0.0.0/1 172.30.20.2}]",
	}, text)

	lacking := chainFunctions()
	lacking[1].interfaces = lacking[1].interfaces[:1]
	_, err = c.planRoutes(lacking)
	assert.EqualError(t, err, "pod ngfw has no interface on network dync-net2")
	lacking = chainFunctions()
	lacking[0].interfaces = lacking[0].interfaces[1:]
	_, err = c.planRoutes(lacking)
	assert.EqualError(t, err, "pod slb is on no network of the gatewayIp 172.30.10.2; give it an interface there")
}

func TestAWrongChainIsOneSentence(t *testing.T) {
	for want, change := range map[string]func(*ChainSpec){
		`spec.chainType "Other" is not Routing`:                       func(s *ChainSpec) { s.Type = "Other" },
		"spec.routingSpec.namespace is empty; write that of the pods": func(s *ChainSpec) { s.Routing.Namespace = "" },
		`spec.routingSpec.networkChain: "app=b" follows one of its kind; write labels of pods with a network between each two, ` +
			"such as app=a,net=middle,app=b": func(s *ChainSpec) { s.Routing.Chain = "app=a,app=b" },
		"spec.routingSpec.networkChain: a network has no name":                       func(s *ChainSpec) { s.Routing.Chain = "" },
		"spec.routingSpec.networkChain: it names no pods":                            func(s *ChainSpec) { s.Routing.Chain = "net=a" },
		"spec.routingSpec.left: it is empty":                                         func(s *ChainSpec) { s.Routing.Left = nil },
		`spec.routingSpec.right: [0].subnet "x" is no network; write 172.30.10.0/24`: func(s *ChainSpec) { s.Routing.Right[0].Subnet = "x" },
		`spec.routingSpec.right: [0].gatewayIp "" is no IPv4 address`:                func(s *ChainSpec) { s.Routing.Right[0].Gateway = "" },
		"spec.routingSpec.left: [0].podSelector is not there; give the pods a gwipaddress by their own annotation": func(s *ChainSpec) {
			s.Routing.Left[0].PodSelector = map[string]any{"matchLabels": map[string]any{"sfc": "head"}}
		},
	} {
		var spec ChainSpec
		require.NoError(t, yaml.Unmarshal([]byte(chain), &spec))
		change(&spec)
		_, err := ReadChain(spec)
		assert.EqualError(t, err, want)
	}
}
