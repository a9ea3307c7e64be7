package sriovnodes_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/daemon/addons/devices"
	"firstlight.dev/firstlight/daemon/addons/devices/kubelettest"
	"firstlight.dev/firstlight/daemon/addons/sriov"
	"firstlight.dev/firstlight/daemon/addons/sriovnodes"
	"firstlight.dev/firstlight/daemon/clusters/noderuntime/features"
	testnetns "firstlight.dev/firstlight/image/lab/netns"
)

// What a policy says of the machine's two network devices, whose ports are on one hub: three of four virtual functions of
// each are for pods, the fourth for programs that drive it themselves.
const (
	forPods = `{"nodeSelector": {"feature.node.kubernetes.io/network-sriov.capable": "true"}, "numVfs": 4, "resourceName": "fast",
		"nicSelector": {"vendor": "8086", "deviceID": "10c9", "pfNames": ["eth0#0-2", "eth1#0-2"]}}`
	forPrograms = `{"numVfs": 4, "resourceName": "dpdk", "deviceType": "vfio-pci", "priority": 10,
		"nicSelector": {"pfNames": ["eth0#3", "eth1#3"]}}`
	tooMany = `{"numVfs": 2, "resourceName": "fast", "nicSelector": {"vendor": "8086"}}`
)

func needGuest(t *testing.T) {
	if os.Getpid() != 1 {
		t.Skip("is the first process of a virtual machine; TestVirtualFunctionsOfAMachine starts it")
	}
}

func readPolicy(t *testing.T, name, spec string) sriovnodes.Policy {
	p := sriovnodes.Policy{Name: name}
	require.NoError(t, json.Unmarshal([]byte(spec), &p.Spec))
	return p
}

func nodeLabels() map[string]string {
	all := map[string]string{}
	for name, value := range (features.Machine{Root: os.DirFS("/")}).Labels() {
		all[features.Prefix+name] = value
	}
	return all
}

func plan(t *testing.T, m sriovnodes.Machine, all ...sriovnodes.Policy) []sriovnodes.Plan {
	interfaces, err := m.Interfaces()
	require.NoError(t, err)
	plans, faults := sriovnodes.MakePlans(all, nodeLabels(), interfaces)
	require.Empty(t, faults)
	return plans
}

func newMachine(t *testing.T) sriovnodes.Machine {
	return sriovnodes.Machine{Sysfs: "/sys", Configured: t.TempDir() + "/configured.json"}
}

// functions are the addresses of virtual functions, by the interface of their physical one, in order.
func functions(t *testing.T, m sriovnodes.Machine) map[string][]string {
	interfaces, err := m.Interfaces()
	require.NoError(t, err)
	all := map[string][]string{}
	for _, i := range interfaces {
		for _, vf := range i.VFs {
			all[i.Name] = append(all[i.Name], vf.PCIAddress)
		}
	}
	return all
}

// TestInGuest has policies make virtual functions of real devices, as the kernel has them, offers these to a kubelet, and
// attaches pods by the plugin.
func TestInGuest(t *testing.T) {
	needGuest(t)
	labels := nodeLabels()
	assert.Equal(t, "true", labels["feature.node.kubernetes.io/network-sriov.capable"])
	assert.Empty(t, labels["feature.node.kubernetes.io/network-sriov.configured"])

	m := newMachine(t)
	plans := plan(t, m, readPolicy(t, "pods", forPods), readPolicy(t, "programs", forPrograms))
	require.Len(t, plans, 2)
	require.Empty(t, m.Apply(plans, sriovnodes.Users{}))
	require.Empty(t, m.Apply(plans, sriovnodes.Users{}), "again")
	assert.Equal(t, "true", nodeLabels()["feature.node.kubernetes.io/network-sriov.configured"])
	all := functions(t, m)
	require.Len(t, all["eth0"], 4)
	require.Len(t, all["eth1"], 4)
	t.Log("virtual functions:", all)

	text, err := sriovnodes.EncodeResources(plans)
	require.NoError(t, err)
	kubelet := kubelettest.New(t)
	kubelet.Start()
	plugin := &devices.Plugin{
		Sysfs: "/sys", Dir: kubelet.Dir, Every: 100 * time.Millisecond, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Resources: func() ([]devices.Resource, []error) { return devices.ParseConfig(text) },
		Report:    func(fault string) { t.Error(fault) },
	}
	go func() { _ = plugin.Run(t.Context()) }()
	list := func(health string, addresses ...string) string {
		return strings.Join(addresses, "="+health+" ") + "=" + health
	}
	offered := append(append([]string{}, all["eth0"][:3]...), all["eth1"][:3]...)
	kubelet.Await("openshift.io/fast", list("Healthy", offered...))
	kubelet.Await("openshift.io/dpdk", list("Healthy", all["eth0"][3], all["eth1"][3]))

	t.Run("pods", func(t *testing.T) { attachPods(t, kubelet, all) })
	t.Run("programs", func(t *testing.T) { driveByProgram(t, kubelet, all["eth0"][3]) })

	t.Run("changes wait", func(t *testing.T) {
		fewer := plan(t, m, readPolicy(t, "fewer", tooMany))
		users := sriovnodes.Users{Pods: map[string]string{all["eth0"][0]: "default/web", all["eth1"][3]: "default/router"}}
		var blocked *sriovnodes.Blocked
		require.ErrorAs(t, errors.Join(m.Apply(fewer, users)...), &blocked)
		assert.Equal(t, all, functions(t, m))
		require.Empty(t, m.Apply(fewer, sriovnodes.Users{}))
		assert.Len(t, functions(t, m)["eth0"], 2)
	})

	require.Empty(t, m.Apply(nil, sriovnodes.Users{}))
	assert.Empty(t, functions(t, m))
	kubelet.Await("openshift.io/fast", list("Unhealthy", offered...))
}

// TestInGuestWithoutIOMMU: what a node that starts without its IOMMU says, and that pods have their interfaces all the
// same.
func TestInGuestWithoutIOMMU(t *testing.T) {
	needGuest(t)
	m := newMachine(t)
	plans := plan(t, m, readPolicy(t, "pods", forPods), readPolicy(t, "programs", forPrograms))
	var texts []string
	for _, err := range m.Apply(plans, sriovnodes.Users{}) {
		texts = append(texts, err.Error())
	}
	all := functions(t, m)
	require.Len(t, all["eth0"], 4)
	assert.Equal(t, []string{
		"eth0: virtual function 3: device " + all["eth0"][3] + " has no IOMMU group; start the node with its IOMMU on",
		"eth1: virtual function 3: device " + all["eth1"][3] + " has no IOMMU group; start the node with its IOMMU on",
	}, texts)

	// What the kernel says when it is asked all the same.
	override := "/sys/bus/pci/devices/" + all["eth0"][3] + "/driver_override"
	require.NoError(t, os.WriteFile(override, []byte("vfio-pci\n"), 0o200))
	require.NoError(t, m.Sysfs.Unbind(all["eth0"][3]))
	t.Log("the kernel: ", m.Sysfs.Probe(all["eth0"][3]))
	f, ok := m.Sysfs.VirtualFunction(all["eth0"][3])
	assert.True(t, ok)
	assert.Empty(t, f.Driver)
}

// pod is a network namespace, and what the plugin is called with for it.
type pod struct{ name, path, config string }

// newPod lasts as long as the machine.
func newPod(t *testing.T, name, config string) pod {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := netns.Get()
	require.NoError(t, err)
	defer own.Close()
	made, err := netns.NewNamed(name)
	require.NoError(t, err)
	require.NoError(t, netns.Set(own))
	require.NoError(t, made.Close())
	return pod{name, "/run/netns/" + name, config}
}

// call runs the plugin as a runtime does, by the CNI specification, 1.0.0.
func (p pod) call(t *testing.T, command string) []byte {
	t.Helper()
	c := exec.CommandContext(t.Context(), "/opt/cni/bin/sriov")
	c.Env = []string{
		"CNI_COMMAND=" + command, "CNI_CONTAINERID=" + p.name, "CNI_NETNS=" + p.path, "CNI_IFNAME=net1",
		"CNI_PATH=/opt/cni/bin",
	}
	c.Stdin = strings.NewReader(p.config)
	out, err := c.Output()
	require.NoError(t, err, "%s of %s: %s", command, p.name, out)
	return out
}

// attach returns the pod's address.
func (p pod) attach(t *testing.T) string {
	t.Helper()
	var result struct {
		Interfaces []struct{ Mac string }
		IPs        []struct{ Address string }
	}
	out := p.call(t, "ADD")
	require.NoError(t, json.Unmarshal(out, &result))
	require.Len(t, result.IPs, 1, string(out))
	t.Logf("%s has %s as %s", p.name, result.IPs[0].Address, result.Interfaces[0].Mac)
	address, _, _ := strings.Cut(result.IPs[0].Address, "/")
	return address
}

// exchange sends a MiB by TCP from one pod to an address of another and back.
func exchange(from, to pod, address string, within time.Duration) error {
	var listener net.Listener
	err := testnetns.Do(to.path, func() (err error) {
		listener, err = net.Listen("tcp", address+":0")
		return err
	})
	if err != nil {
		return err
	}
	defer listener.Close()
	go func() {
		if c, err := listener.Accept(); err == nil {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}
	}()

	var c net.Conn
	err = testnetns.Do(from.path, func() (err error) {
		c, err = net.DialTimeout("tcp", listener.Addr().String(), within)
		return err
	})
	if err != nil {
		return err
	}
	defer c.Close()
	const size = 1 << 20
	go func() {
		_, _ = c.Write(make([]byte, size))
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	n, err := io.Copy(io.Discard, c)
	if err == nil && n != size {
		return fmt.Errorf("%d of %d bytes came back", n, size)
	}
	return err
}

// attachPods has two pods in a VLAN and two outside, each two on virtual functions of both devices.
func attachPods(t *testing.T, kubelet *kubelettest.Kubelet, all map[string][]string) {
	k := sriov.NewKernel()
	type state struct {
		Interfaces []string
		Link       sriov.Interface
		Settings   sriov.Settings
	}
	look := func(pf string, index int) state {
		f, ok := k.Function(all[pf][index])
		require.True(t, ok)
		require.NotEmpty(t, f.Interfaces)
		link, err := k.Interface("", f.Interfaces[0])
		require.NoError(t, err)
		settings, err := k.Settings(pf, index)
		require.NoError(t, err)
		if *settings.MAC == link.MAC {
			// The physical function remembers the MAC that the interface was given back: nobody else has set one.
			*settings.MAC = "00:00:00:00:00:00"
		}
		return state{f.Interfaces, link, settings}
	}

	var pods []pod
	var before []state
	for _, p := range []struct {
		name, pf string
		index    int
		more     string
	}{
		{"a", "eth0", 0, `, "vlan": 7, "mac": "02:00:00:00:00:0a"`},
		{"b", "eth1", 0, `, "vlan": 7, "mac": "02:00:00:00:00:0b"`},
		{"c", "eth0", 1, ""},
		{"d", "eth1", 1, ""},
	} {
		address := all[p.pf][p.index]
		answer, err := kubelet.Allocate("openshift.io/fast", address)
		require.NoError(t, err)
		assert.Equal(t, address, answer.Envs["PCIDEVICE_OPENSHIFT_IO_FAST"])
		assert.Empty(t, answer.Devices)
		before = append(before, look(p.pf, p.index))
		pods = append(pods, newPod(t, p.name, `{"cniVersion": "1.0.0", "name": "fast", "type": "sriov", "deviceID": "`+address+
			`", "ipam": {"type": "host-local", "subnet": "192.0.2.0/24"}`+p.more+`}`))
	}

	var at []string
	for _, p := range pods {
		at = append(at, p.attach(t))
		p.call(t, "CHECK")
	}
	link, err := k.Interface(pods[0].path, "net1")
	require.NoError(t, err)
	assert.Equal(t, "02:00:00:00:00:0a", link.MAC)
	settings, err := k.Settings("eth0", 0)
	require.NoError(t, err)
	assert.Equal(t, 7, settings.VLAN.ID)
	assert.Equal(t, "02:00:00:00:00:0a", *settings.MAC)

	a, b, c, d := pods[0], pods[1], pods[2], pods[3]
	assert.NoError(t, exchange(a, b, at[1], 10*time.Minute))
	assert.NoError(t, exchange(b, a, at[0], 10*time.Minute))
	assert.NoError(t, exchange(c, d, at[3], 10*time.Minute))
	assert.NoError(t, exchange(d, c, at[2], 10*time.Minute))
	assert.Error(t, exchange(a, d, at[3], 5*time.Second), "out of the VLAN")
	assert.Error(t, exchange(d, a, at[0], 5*time.Second), "into the VLAN")

	for _, p := range pods {
		p.call(t, "DEL")
		p.call(t, "DEL") // a runtime may call it again
	}
	after := []state{look("eth0", 0), look("eth1", 0), look("eth0", 1), look("eth1", 1)}
	assert.Equal(t, before, after)
}

// Requests of include/uapi/linux/vfio.h.
const (
	vfioSetIOMMU          = 0x3b66
	vfioGroupGetStatus    = 0x3b67
	vfioGroupSetContainer = 0x3b68
	vfioGroupGetDevice    = 0x3b6a
	vfioDeviceGetInfo     = 0x3b6b

	vfioType1       = 1
	vfioGroupViable = 1
	vfioDevicePCI   = 2
)

// driveByProgram opens a virtual function as a program does that has what the kubelet was told to give it.
func driveByProgram(t *testing.T, kubelet *kubelettest.Kubelet, address string) {
	answer, err := kubelet.Allocate("openshift.io/dpdk", address)
	require.NoError(t, err)
	assert.Equal(t, address, answer.Envs["PCIDEVICE_OPENSHIFT_IO_DPDK"])
	t.Log(answer.Envs)
	require.Len(t, answer.Devices, 2)
	open := func(path string) uintptr {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
		require.NoError(t, err, path)
		t.Cleanup(func() { _ = unix.Close(fd) })
		return uintptr(fd)
	}
	ask := func(fd, request, value uintptr) uintptr {
		t.Helper()
		n, _, code := unix.Syscall(unix.SYS_IOCTL, fd, request, value)
		require.Zero(t, code, "request %#x: %v", request, code)
		return n
	}
	group, container := open(answer.Devices[0].ContainerPath), open(answer.Devices[1].ContainerPath)

	status := struct{ size, flags uint32 }{size: 8}
	ask(group, vfioGroupGetStatus, uintptr(unsafe.Pointer(&status)))
	assert.NotZero(t, status.flags&vfioGroupViable, "the kernel says that other devices of the group have other drivers")
	number := int32(container)
	ask(group, vfioGroupSetContainer, uintptr(unsafe.Pointer(&number)))
	ask(container, vfioSetIOMMU, vfioType1)
	name, err := unix.BytePtrFromString(address)
	require.NoError(t, err)
	device := ask(group, vfioGroupGetDevice, uintptr(unsafe.Pointer(name)))
	t.Cleanup(func() { _ = unix.Close(int(device)) })
	info := struct{ size, flags, regions, interrupts, capabilities, _ uint32 }{size: 20}
	ask(device, vfioDeviceGetInfo, uintptr(unsafe.Pointer(&info)))
	assert.NotZero(t, info.flags&vfioDevicePCI)
}
