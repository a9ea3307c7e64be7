package launcher

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	v1 "firstlight.dev/firstlight/daemon/addons/machines/v1"
)

func read(t *testing.T, text string) (spec v1.InstanceSpec) {
	t.Helper()
	require.NoError(t, yaml.Unmarshal([]byte(text), &spec))
	require.Empty(t, spec.Unknown)
	return spec
}

func TestArguments(t *testing.T) {
	begin := func(processor ...string) []string {
		return append([]string{
			"-name", "guest=web,process=qemu", "-nodefaults", "-no-user-config", "-display", "none", "-vga", "std", "-machine", "q35",
		}, processor...)
	}
	sockets := []string{
		"-chardev", "socket,id=serial,path=/run/machine/serial.sock", "-serial", "chardev:serial",
		"-chardev", "socket,id=monitor,path=/run/machine/monitor.sock", "-mon", "chardev=monitor,mode=control",
	}
	sandbox := []string{"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"}

	for name, c := range map[string]struct {
		spec   string
		files  map[string]File
		with   Accelerator
		search []string
		want   []string
	}{
		"the least": {
			spec: "domain: {memory: {guest: 64Mi}}",
			with: TCG,
			want: append(append(begin("-accel", "tcg,tb-size=128", "-cpu", "max", "-smp", "1",
				"-m", "64", "-rtc", "base=utc", "-boot", "strict=on"), sockets...), sandbox...),
		},
		"all": {
			spec: `
domain:
  cpu: {cores: 2}
  resources: {requests: {memory: 1Gi}}
  firmware: {bootloader: {efi: {secureBoot: false}}}
  devices:
    disks:
    - {name: system, disk: {bus: virtio}, bootOrder: 2, serial: "a,b"}
    - {name: seed, cdrom: {}}
    - {name: data, disk: {}}
    - {name: shared, disk: {bus: virtio}}
    - {name: setup, cdrom: {bus: sata}, bootOrder: 1}
    interfaces:
    - {name: default, masquerade: {}, macAddress: "02:00:00:00:00:01", ports: [{port: 22}, {port: 53, protocol: UDP}]}
    rng: {}
hostname: shop
volumes:
- {name: shared, persistentVolumeClaim: {claimName: c, readOnly: true}}`,
			files: map[string]File{
				"system": {"/claims/0/disk.img", QCOW2}, "seed": {"/run/machine/1.iso", Raw}, "data": {"/var/lib/machine/2.img", Raw},
				"shared": {"/claims/3/disk.img", Raw}, "setup": {"/var/lib/machine/4.img", Raw},
			},
			with:   KVM,
			search: []string{"default.svc.cluster.local", "cluster.local"},
			want: append(append(append(begin("-accel", "kvm", "-cpu", "host", "-smp", "2",
				"-m", "1024", "-rtc", "base=utc", "-boot", "strict=on",
				"-drive", "if=pflash,unit=0,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.fd",
				"-drive", "if=pflash,unit=1,format=raw,file=/run/machine/vars.fd"), sockets...),
				"-blockdev", `{"driver":"qcow2","node-name":"disk0","read-only":false,"discard":"unmap","file":{"driver":"file","filename":"/claims/0/disk.img"},"backing":null}`,
				"-device", "virtio-blk-pci,drive=disk0,id=disk0-device,bootindex=2,serial=a,,b",
				"-blockdev", `{"driver":"raw","node-name":"disk1","read-only":true,"discard":"unmap","file":{"driver":"file","filename":"/run/machine/1.iso"}}`,
				"-device", "ide-cd,drive=disk1,bus=ide.0,id=disk1-device",
				"-blockdev", `{"driver":"raw","node-name":"disk2","read-only":false,"discard":"unmap","file":{"driver":"file","filename":"/var/lib/machine/2.img"}}`,
				"-device", "ide-hd,drive=disk2,bus=ide.1,id=disk2-device",
				"-blockdev", `{"driver":"raw","node-name":"disk3","read-only":true,"discard":"unmap","file":{"driver":"file","filename":"/claims/3/disk.img"}}`,
				"-device", "virtio-blk-pci,drive=disk3,id=disk3-device",
				"-blockdev", `{"driver":"raw","node-name":"disk4","read-only":true,"discard":"unmap","file":{"driver":"file","filename":"/var/lib/machine/4.img"}}`,
				"-device", "ide-cd,drive=disk4,bus=ide.2,id=disk4-device,bootindex=1",
				"-netdev", "user,id=net0,net=10.0.2.0/24,host=10.0.2.1,dhcpstart=10.0.2.2,dns=10.0.2.3,ipv6=off,hostname=shop"+
					",dnssearch=default.svc.cluster.local,dnssearch=cluster.local,hostfwd=tcp::22-10.0.2.2:22,hostfwd=udp::53-10.0.2.2:53",
				"-device", "virtio-net-pci,netdev=net0,mac=02:00:00:00:00:01,romfile=",
				"-object", "rng-random,id=random,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=random"), sandbox...),
		},
		"the first disk boots, unless an order is given": {
			spec: "domain: {memory: {guest: 64Mi}, devices: {disks: [{name: a, disk: {bus: virtio}}, {name: b, disk: {bus: virtio}}]}}",
			files: map[string]File{
				"a": {"/a", Raw}, "b": {"/b", Raw},
			},
			with: TCG,
			want: append(append(append(begin("-accel", "tcg,tb-size=128", "-cpu", "max", "-smp", "1",
				"-m", "64", "-rtc", "base=utc", "-boot", "strict=on"), sockets...),
				"-blockdev", `{"driver":"raw","node-name":"disk0","read-only":false,"discard":"unmap","file":{"driver":"file","filename":"/a"}}`,
				"-device", "virtio-blk-pci,drive=disk0,id=disk0-device,bootindex=1",
				"-blockdev", `{"driver":"raw","node-name":"disk1","read-only":false,"discard":"unmap","file":{"driver":"file","filename":"/b"}}`,
				"-device", "virtio-blk-pci,drive=disk1,id=disk1-device"), sandbox...),
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := Machine{Namespace: "default", Name: "web", Spec: read(t, c.spec)}
			assert.Equal(t, c.want, Arguments(m, c.files, c.with, c.search))
		})
	}
}

// A guest's network configuration finds its interface again by its address.
func TestMACStaysTheSame(t *testing.T) {
	i := v1.Interface{Name: "default"}
	first := MAC("default", "web", i)
	assert.Regexp(t, `^02(:[0-9a-f]{2}){5}$`, first)
	assert.Equal(t, first, MAC("default", "web", i))
	assert.NotEqual(t, first, MAC("other", "web", i))
	i.MACAddress = "52:54:00:00:00:01"
	assert.Equal(t, "52:54:00:00:00:01", MAC("default", "web", i))
}

func TestGuestMemory(t *testing.T) {
	for text, want := range map[string]int64{
		"domain: {}": 0,
		"domain: {resources: {limits: {memory: 3Mi}}}":                                                     3 << 20,
		"domain: {resources: {limits: {memory: 3Mi}, requests: {memory: 2Mi}}}":                            2 << 20,
		"domain: {resources: {limits: {memory: 3Mi}, requests: {memory: 2Mi}}, memory: {guest: 1Mi}}":      1 << 20,
		"domain: {resources: {limits: {cpu: 1}, requests: {cpu: 1}}, memory: {}, cpu: {cores: 1}}":         0,
		"domain: {resources: {limits: {memory: 3Mi}, requests: {cpu: 1}}, firmware: {bootloader: {}}}":     3 << 20,
		"domain: {resources: {requests: {memory: 2Mi}}, memory: {}, firmware: {bootloader: {bios: {}}}}\n": 2 << 20,
	} {
		assert.Equal(t, want, GuestMemory(read(t, text).Domain), text)
	}
}
