package sriov

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/addons/devices"
)

const (
	address = "0000:01:10.2"
	noMAC   = "00:00:00:00:00:00"
	ownMAC  = "02:00:00:00:00:0a"
)

// fakeKernel has one virtual function, with an interface that is somewhere.
type fakeKernel struct {
	function   devices.VirtualFunction
	settings   Settings
	namespaces map[string]bool
	namespace  string // where the interface is
	name       string
	state      Interface
	got        Addresses
	calls      []string
	broken     map[string]bool // calls that fail
	takesMAC   bool            // whether the driver lets its interface's MAC be changed
	isGone     bool
}

func newKernel() *fakeKernel {
	off, on, mac := false, true, noMAC
	auto := uint32(0)
	return &fakeKernel{
		function: devices.VirtualFunction{
			Address: address, Driver: "igbvf", PF: "0000:01:00.0", PFNames: []string{"eno1"}, Index: 1, Group: "7",
		},
		settings: Settings{
			MAC: &mac, VLAN: &VLAN{Protocol: 0x8100}, SpoofChk: &on, Trust: &off, LinkState: &auto, Rate: &Rate{},
		},
		namespaces: map[string]bool{"/ns": true, "/other": true},
		name:       "eno1v1", state: Interface{MAC: ownMAC, MTU: 1500}, broken: map[string]bool{}, takesMAC: true,
	}
}

func (k *fakeKernel) do(format string, args ...any) error {
	call := fmt.Sprintf(format, args...)
	k.calls = append(k.calls, call)
	if word, _, _ := strings.Cut(call, " "); k.broken[word] {
		return errors.New(word + " does not work")
	}
	return nil
}

func (k *fakeKernel) Function(a string) (devices.VirtualFunction, bool) {
	f := k.function
	if k.namespace == "" && f.Driver != devices.VFIODriver {
		f.Interfaces = []string{k.name}
	}
	return f, a == address && !k.isGone
}

func (k *fakeKernel) Settings(string, int) (Settings, error) { return k.settings, nil }

func (k *fakeKernel) Set(pf string, index int, s Settings) error {
	if err := k.do("set %s %d", pf, index); err != nil {
		return err
	}
	if s.MAC != nil {
		k.settings.MAC = s.MAC
	}
	if s.VLAN != nil {
		k.settings.VLAN = s.VLAN
	}
	if s.SpoofChk != nil {
		k.settings.SpoofChk = s.SpoofChk
	}
	if s.Trust != nil {
		k.settings.Trust = s.Trust
	}
	if s.LinkState != nil {
		k.settings.LinkState = s.LinkState
	}
	if s.Rate != nil {
		k.settings.Rate = s.Rate
	}
	return nil
}

func (k *fakeKernel) Rebind(string) error {
	if *k.settings.MAC != noMAC {
		k.state.MAC = *k.settings.MAC
	}
	return k.do("rebind")
}

func (k *fakeKernel) HasNamespace(path string) bool { return k.namespaces[path] }

func (k *fakeKernel) Interface(namespace, name string) (Interface, error) {
	if namespace != k.namespace || name != k.name {
		return Interface{}, fmt.Errorf("no interface %s in %q", name, namespace)
	}
	return k.state, nil
}

func (k *fakeKernel) SetInterface(namespace, name string, to Interface) error {
	if _, err := k.Interface(namespace, name); err != nil {
		return err
	}
	if to.MAC != "" {
		if !k.takesMAC {
			return errors.New("the driver refuses")
		}
		k.state.MAC = to.MAC
	}
	if to.MTU != 0 {
		k.state.MTU = to.MTU
	}
	return nil
}

func (k *fakeKernel) Move(namespace, name, toNamespace, toName, _ string) error {
	if _, err := k.Interface(namespace, name); err != nil {
		return err
	}
	if err := k.do("move %q", toNamespace); err != nil {
		return err
	}
	k.namespace, k.name = toNamespace, toName
	return nil
}

func (k *fakeKernel) Rename(name, to string) error {
	if _, err := k.Interface("", name); err != nil {
		return err
	}
	k.name = to
	return nil
}

func (k *fakeKernel) Configure(namespace, name string, a Addresses) error {
	k.got = a
	return k.do("configure %s %s", namespace, name)
}

// fakeIPAM gives one address, and counts.
type fakeIPAM struct {
	version.PluginDecoder
	given int
}

func (f *fakeIPAM) FindInPath(plugin string, _ []string) (string, error) { return plugin, nil }

func (f *fakeIPAM) ExecPlugin(_ context.Context, _ string, _ []byte, environ []string) ([]byte, error) {
	switch text := strings.Join(environ, "\n"); {
	case strings.Contains(text, "CNI_COMMAND=ADD"):
		f.given++
		return []byte(`{"cniVersion":"1.0.0","ips":[{"address":"192.0.2.7/24","gateway":"192.0.2.1"}],"routes":[{"dst":"198.51.100.0/24"}]}`), nil
	case strings.Contains(text, "CNI_COMMAND=DEL"):
		f.given--
	}
	return nil, nil
}

func newPlugin(t *testing.T, k *fakeKernel) (*Plugin, *fakeIPAM) {
	t.Setenv("CNI_PATH", "/opt/cni/bin") // of libcni
	t.Setenv("CNI_COMMAND", "ADD")
	ipam := &fakeIPAM{}
	return &Plugin{Dirs: NodeDirs(t.TempDir()), Kernel: k, Exec: ipam}, ipam
}

const withIPAM = `,"ipam":{"type":"host-local"}`

func call(more string) *skel.CmdArgs {
	return &skel.CmdArgs{
		ContainerID: "one", Netns: "/ns", IfName: "net1",
		StdinData: []byte(`{"cniVersion":"1.0.0","name":"rack","type":"sriov","deviceID":"` + address + `"` + more + `}`),
	}
}

func TestAPodGetsAVirtualFunctionAndGivesItBack(t *testing.T) {
	k := newKernel()
	p, ipam := newPlugin(t, k)
	before, state := k.settings, k.state

	c := call(`,"vlan":7,"vlanQoS":2,"spoofchk":"off","trust":"on","link_state":"enable","max_tx_rate":100,"mtu":9000,
		"runtimeConfig":{"mac":"02:00:00:00:00:07"}` + withIPAM)
	result, err := p.Add(t.Context(), c)
	require.NoError(t, err)
	got, err := current.NewResultFromResult(result)
	require.NoError(t, err)
	assert.Equal(t, &current.Interface{Name: "net1", Mac: "02:00:00:00:00:07", Mtu: 9000, Sandbox: "/ns", PciID: address}, got.Interfaces[0])
	assert.Equal(t, "192.0.2.7/24", got.IPs[0].Address.String())
	assert.Equal(t, []string{`set eno1 1`, `rebind`, `move "/ns"`, `configure /ns net1`}, k.calls)
	assert.Equal(t, VLAN{7, 2, 0x8100}, *k.settings.VLAN)
	assert.False(t, *k.settings.SpoofChk)
	assert.True(t, *k.settings.Trust)
	assert.Equal(t, uint32(1), *k.settings.LinkState)
	assert.Equal(t, Rate{0, 100}, *k.settings.Rate)
	assert.Equal(t, "192.0.2.1", k.got.Routes[0].Gateway.String(), "that of the address")
	require.NoError(t, p.Check(t.Context(), c))

	require.NoError(t, p.Del(t.Context(), c))
	assert.Equal(t, before, k.settings)
	assert.Equal(t, state, k.state)
	assert.Equal(t, "eno1v1", k.name)
	assert.Zero(t, ipam.given)
	require.NoError(t, p.Del(t.Context(), c), "again")
	assert.ErrorContains(t, p.Check(t.Context(), c), "the container has no virtual function as net1")
	all, err := p.assignments().All()
	require.NoError(t, err)
	assert.Empty(t, all)
}

func TestAMACThatThePhysicalFunctionDoesNotKnowIsSet(t *testing.T) {
	k := newKernel()
	k.takesMAC = false
	p, _ := newPlugin(t, k)
	_, err := p.Add(t.Context(), call(""))
	require.NoError(t, err)
	assert.Equal(t, ownMAC, *k.settings.MAC)
	assert.Contains(t, k.calls, "rebind")

	require.NoError(t, p.Del(t.Context(), call("")))
	assert.Equal(t, noMAC, *k.settings.MAC)

	// One that it knows stays, and the driver is left alone.
	mac := ownMAC
	k.settings.MAC, k.calls = &mac, nil
	_, err = p.Add(t.Context(), call(""))
	require.NoError(t, err)
	assert.NotContains(t, k.calls, "rebind")
}

func TestAProgramsVirtualFunctionIsOnlySet(t *testing.T) {
	k := newKernel()
	k.function.Driver = devices.VFIODriver
	p, ipam := newPlugin(t, k)
	result, err := p.Add(t.Context(), call(`,"vlan":7,"mac":"02:00:00:00:00:07"`+withIPAM))
	require.NoError(t, err)
	got, err := current.NewResultFromResult(result)
	require.NoError(t, err)
	assert.Equal(t, "02:00:00:00:00:07", got.Interfaces[0].Mac)
	assert.Len(t, got.IPs, 1)
	assert.Equal(t, []string{"set eno1 1"}, k.calls)
	require.NoError(t, p.Check(t.Context(), call("")))

	require.NoError(t, p.Del(t.Context(), call(withIPAM)))
	assert.Equal(t, 0, k.settings.VLAN.ID)
	assert.Zero(t, ipam.given)
}

func TestWhatFailsLeavesNothing(t *testing.T) {
	for _, step := range []string{"set", "rebind", "move", "configure"} {
		t.Run(step, func(t *testing.T) {
			k := newKernel()
			p, ipam := newPlugin(t, k)
			before := k.settings
			k.broken[step] = true
			_, err := p.Add(t.Context(), call(`,"vlan":7,"mac":"02:00:00:00:00:07"`+withIPAM))
			assert.ErrorContains(t, err, step+" does not work")
			assert.Zero(t, ipam.given, "an address stays")

			// What could not be restored at once is with the pod's end.
			k.broken = map[string]bool{}
			require.NoError(t, p.Del(t.Context(), call("")))
			assert.Equal(t, before, k.settings)
			assert.Equal(t, ownMAC, k.state.MAC)
			assert.Equal(t, "", k.namespace)
			assert.Equal(t, "eno1v1", k.name)
		})
	}
}

func TestWhatAnEarlierPodLeft(t *testing.T) {
	k := newKernel()
	p, _ := newPlugin(t, k)
	_, err := p.Add(t.Context(), call(`,"vlan":7,"mac":"02:00:00:00:00:07"`))
	require.NoError(t, err)

	next := call("")
	next.ContainerID, next.Netns = "two", "/other"
	_, err = p.Add(t.Context(), next)
	assert.EqualError(t, err, "virtual function 0000:01:10.2 is in use by the container one")

	// Its namespace is gone, and nobody deleted it: the kernel has moved the interface to the node.
	delete(k.namespaces, "/ns")
	k.namespace = ""
	_, err = p.Add(t.Context(), next)
	require.NoError(t, err)
	assert.Equal(t, 0, k.settings.VLAN.ID, "the earlier pod's VLAN stays")
	assert.Equal(t, ownMAC, k.state.MAC)
	require.NoError(t, p.Del(t.Context(), call("")), "the earlier one's is none any more")
	assert.Equal(t, "/other", k.namespace)
	require.NoError(t, p.Del(t.Context(), next))
	assert.Equal(t, "eno1v1", k.name)

	// One that the runtime forgot.
	_, err = p.Add(t.Context(), next)
	require.NoError(t, err)
	require.NoError(t, p.GC(t.Context(), call("")))
	assert.Equal(t, "/other", k.namespace, "it may be another network's")
	delete(k.namespaces, "/other")
	k.namespace = ""
	require.NoError(t, p.GC(t.Context(), call(`,"cni.dev/valid-attachments":[{"containerID":"three","ifname":"net1"}]`)))
	all, err := p.assignments().All()
	require.NoError(t, err)
	assert.Empty(t, all)

	// One that went with its physical function.
	_, err = p.Add(t.Context(), call(""))
	require.NoError(t, err)
	k.isGone = true
	require.NoError(t, p.Del(t.Context(), call("")))
}

func TestAnInterfaceThatIsOnItsWay(t *testing.T) {
	k := newKernel()
	p, _ := newPlugin(t, k)
	_, err := p.Add(t.Context(), call(""))
	require.NoError(t, err)
	delete(k.namespaces, "/ns")
	k.namespace = "ending"
	assert.ErrorContains(t, p.Del(t.Context(), call("")), "its interface is neither on the node nor in the pod; it is tried again")
	k.namespace, k.name = "", "net1"
	require.NoError(t, p.Del(t.Context(), call("")))
	assert.Equal(t, "eno1v1", k.name)
}

func TestConfigurationsThatCannotBe(t *testing.T) {
	for more, says := range map[string]string{
		`,"vlan":4095`:                     "vlan 4095 is not from 0 to 4094",
		`,"vlan":7,"vlanQoS":8`:            "vlanQoS 8 is not from 0 to 7",
		`,"vlanQoS":1`:                     "vlanQoS and vlanProto need a vlan",
		`,"vlan":7,"vlanProto":"q"`:        `vlanProto "q" is neither 802.1q nor 802.1ad`,
		`,"mac":"01:00:5e:00:00:01"`:       `mac "01:00:5e:00:00:01" is no MAC of an interface; write 02:00:00:00:00:07`,
		`,"spoofchk":"yes"`:                `spoofchk "yes" is neither on nor off`,
		`,"trust":"1"`:                     `trust "1" is neither on nor off`,
		`,"link_state":"up"`:               `link_state "up" is none of auto, enable and disable`,
		`,"min_tx_rate":2,"max_tx_rate":1`: "min_tx_rate 2 and max_tx_rate 1 cannot be",
		`,"deviceID":"0000:09:00.0"`:       "deviceID 0000:09:00.0 is no virtual function of this node",
		`,"deviceID":""`: "the configuration has no deviceID; the definition needs the annotation k8s.v1.cni.cncf.io/resourceName, " +
			"and a container of the pod a request for that resource (resources.limits)",
	} {
		k := newKernel()
		p, _ := newPlugin(t, k)
		_, err := p.Add(t.Context(), call(more))
		assert.EqualError(t, err, says)
		assert.Empty(t, k.calls, "something was changed before")
	}

	c, err := ParseConf([]byte(`{"mac":"02:00:00:00:00:01","args":{"cni":{"mac":"02:00:00:00:00:03"}},"runtimeConfig":{"deviceID":"x"}}`),
		"IgnoreUnknown=1;MAC=02:00:00:00:00:02;K8S_POD_NAME=web")
	require.NoError(t, err)
	assert.Equal(t, "02:00:00:00:00:03", c.MAC)
	assert.Equal(t, "x", c.DeviceID)
	_, err = ParseConf([]byte(`[]`), "")
	assert.ErrorContains(t, err, "read the configuration of plugin sriov: ")
}

func TestNamesBetweenNamespacesFit(t *testing.T) {
	name := temporaryName(devices.VirtualFunction{Address: "ffff:ff:1f.7"})
	assert.LessOrEqual(t, len(name), 15)
	assert.NotEqual(t, name, temporaryName(devices.VirtualFunction{Address: address}))
}
