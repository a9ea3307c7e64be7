package installer

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/daemon/clusters/contract/inventory"
	"firstlight.dev/firstlight/daemon/engine/apply"
)

var edge = Settings{Cluster: "edge", Pods: netip.MustParsePrefix("10.244.64.0/18"), Services: netip.MustParsePrefix("10.244.0.0/18"), Owner: "alpha"}

func made(label, addr string, controlPlane, worker bool) inventory.Node {
	return inventory.Node{Label: label, Addr: netip.MustParseAddr(addr), Port: 22, User: "root", ControlPlane: controlPlane, Worker: worker}
}

var (
	usual = facts{Systemd: true, Unified: true, Resolv: "/run/systemd/resolve/resolv.conf", Arch: "x86_64", MachineID: "m", Memory: 4 << 20, Free: 9 << 20, Apt: true, CPUs: 4}
	plain = facts{Resolv: "/etc/resolv.conf", CPUs: 2}
)

// valuesOf is a node of a cluster with three control planes of which the first works as well.
func valuesOf(n inventory.Node, f facts) values {
	inv := inventory.Inventory{Nodes: []inventory.Node{made("m-1", "172.22.0.11", true, true), made("m-2", "172.22.0.12", true, false),
		made("m-3", "172.22.0.13", true, false), made("w-1", "172.22.0.14", false, true)}}
	v := newValues(edge, inv)
	v.Node, v.facts = n, f
	v.Appliance = netip.MustParseAddr("172.22.0.1")
	v.Registry = netip.AddrPortFrom(v.Appliance, assets.RegistryPort)
	return v
}

func TestWhatIsWrittenOnANode(t *testing.T) {
	join := func(v values) values {
		v.Join, v.Token, v.AuthorityHash = true, "abcdef.0123456789abcdef", "sha256:00"
		return v
	}
	for name, v := range map[string]values{
		"first":         valuesOf(made("m-1", "172.22.0.11", true, true), usual),
		"control-plane": join(valuesOf(made("m-2", "172.22.0.12", true, false), usual)),
		"worker":        join(valuesOf(made("w-1", "172.22.0.14", false, true), usual)),
		"plain":         valuesOf(made("m-1", "172.22.0.11", true, true), plain),
	} {
		t.Run(name, func(t *testing.T) {
			files, err := hostFiles(v, &appliance{authority: []byte("root certificate\n"), packagesKey: []byte("key\n")})
			require.NoError(t, err)
			for _, of := range []func(values) (unit, error){timesyncdUnit, containerdUnit, endpointUnit} {
				u, err := of(v)
				require.NoError(t, err)
				files = append(files, u.files...)
			}
			kubelet := timerSlackFiles("kubelet.service", v.facts)
			certificates, err := certificateFiles(v)
			require.NoError(t, err)
			kubelet = append(kubelet, certificates...)
			text, err := render("kubeadm.yaml", v)
			require.NoError(t, err)
			for _, document := range strings.Split(string(text), "\n---\n") {
				require.NoError(t, yaml.UnmarshalStrict([]byte(document), &map[string]any{}))
			}
			var b strings.Builder
			for _, f := range append(append(files, kubelet...), file{"kubeadm.yaml", 0o600, text}) {
				fmt.Fprintf(&b, "=== %s %o\n%s", f.path, f.mode, f.data)
			}
			goldentest.Check(t, "testdata/"+name+".golden", b.String())
		})
	}
}

func TestWhatEveryClusterRuns(t *testing.T) {
	v := valuesOf(inventory.Node{}, facts{})
	text, err := systemManifest(v, []netip.Addr{netip.MustParseAddr("10.1.1.53")}, 2)
	require.NoError(t, err)
	_, err = apply.Read("test", text)
	require.NoError(t, err)
	goldentest.Check(t, "testdata/cluster.golden", string(text)+"\n")
}

func TestEveryImageIsOnTheStick(t *testing.T) {
	recipe, err := os.ReadFile("../../../assets/recipe.yaml")
	require.NoError(t, err)
	for _, image := range imagesOf(true) {
		name, tag, _ := strings.Cut(strings.TrimPrefix(image, assets.ImageDomain+"/"), ":")
		assert.Regexp(t, `name: `+name+`[,\n]\s*tags: \["?`+tag+`"?\]`, string(recipe))
	}
	worker := imagesOf(false)
	assert.NotContains(t, strings.Join(worker, " "), "etcd")
	assert.Subset(t, imagesOf(true), worker)
}

func TestNodeBits(t *testing.T) {
	for pods, bits := range map[string]int{"10.0.0.0/8": 24, "10.244.64.0/18": 24, "10.244.0.0/20": 24, "10.244.0.0/22": 26, "10.244.0.0/24": 28,
		"10.244.0.0/26": 28, "fd00::/48": 64, "fd00::/62": 66} {
		assert.Equal(t, bits, nodeBits(netip.MustParsePrefix(pods)), pods)
	}
}

func TestNetworksThatDoNotGoTogether(t *testing.T) {
	inv := inventory.Inventory{Nodes: []inventory.Node{made("a", "172.22.0.11", true, true), made("b", "172.22.0.12", false, true)}}
	cidr := netip.MustParsePrefix
	require.NoError(t, checkNetworks(edge, inv))
	for says, s := range map[string]Settings{
		"must be given":                              {},
		"10.0.0.0/16 and that of Services":           {Pods: cidr("10.0.0.0/16"), Services: cidr("10.0.1.0/24")},
		"address 172.22.0.11 of a is in the network": {Pods: cidr("172.22.0.0/16"), Services: cidr("10.0.1.0/24")},
		"not of one family":                          {Pods: cidr("fd00::/48"), Services: cidr("fd01::/108")},
		"has room for 1 nodes, the inventory has 2":  {Pods: cidr("10.0.0.0/28"), Services: cidr("10.0.1.0/24")},
	} {
		assert.ErrorContains(t, checkNetworks(s, inv), says)
	}
}
