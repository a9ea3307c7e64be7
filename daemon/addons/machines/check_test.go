package machines

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	v1 "firstlight.dev/firstlight/daemon/addons/machines/v1"
)

func readSpec(t *testing.T, text string) (spec v1.InstanceSpec) {
	t.Helper()
	require.NoError(t, yaml.Unmarshal([]byte(text), &spec), text)
	return spec
}

// good is a spec in which nothing is wrong.
const good = `
domain:
  memory: {guest: 64Mi}
  firmware: {bootloader: {efi: {secureBoot: false}}}
  devices:
    disks:
    - {name: system, disk: {bus: virtio}, bootOrder: 1, serial: disk-1}
    - {name: seed, cdrom: {}}
    - {name: data, disk: {}}
    - {name: image, disk: {bus: virtio}}
    interfaces: [{name: default, masquerade: {}, macAddress: "02:00:00:00:00:01", ports: [{port: 53}, {port: 53, protocol: UDP}]}]
networks: [{name: default, pod: {}}]
volumes:
- {name: system, persistentVolumeClaim: {claimName: c}}
- {name: seed, cloudInitNoCloud: {userData: u, networkDataSecretRef: {name: net}}}
- {name: data, emptyDisk: {capacity: 1Gi}}
- {name: image, firstlightImage: {url: "http://172.22.0.1:6180/images/debian-13.raw"}}
`

func TestCheckSpec(t *testing.T) {
	require.Empty(t, CheckSpec(readSpec(t, good)))
	require.Empty(t, CheckSpec(readSpec(t, "domain: {resources: {requests: {memory: 64Mi}}}")), "the least")

	edit := func(old, now string) string {
		require.Contains(t, good, old)
		return strings.Replace(good, old, now, 1)
	}
	for want, text := range map[string]string{
		`unknown field "domain.devices.gpus": it is not in the subset of KubeVirt's API that this cluster has; take it out`: edit("devices:", "devices:\n    gpus: []"),

		"domain.memory.guest: a guest has at least 16Mi; set it":                                             edit("memory: {guest: 64Mi}", "memory: {}"),
		"domain.firmware.bootloader.efi: there is no Secure Boot; set secureBoot: false":                     edit("efi: {secureBoot: false}", "efi: {}"),
		"domain.firmware.bootloader: it is bios or efi; take one out":                                        edit("efi:", "bios: {}, efi:"),
		"domain.devices.disks: more has no volume of its name in volumes; add one":                           edit("disks:\n", "disks:\n    - {name: more, disk: {}}\n"),
		"domain.devices.disks: two are called seed":                                                          edit("disks:\n", "disks:\n    - {name: seed, cdrom: {}}\n"),
		"domain.devices.disks: data has one of disk and cdrom":                                               edit("name: data, disk: {}", "name: data"),
		"domain.devices.disks: data has the bus scsi; there are virtio and sata":                             edit("name: data, disk: {}", "name: data, disk: {bus: scsi}"),
		"domain.devices.disks: seed has the bus virtio; a cdrom is at sata":                                  edit("cdrom: {}", "cdrom: {bus: virtio}"),
		"domain.devices.disks: the bootOrder of data is 0 or that of another disk":                           edit("name: data, ", "name: data, bootOrder: 1, "),
		"domain.devices.disks: the serial of data has up to 20 letters, digits, dots, dashes and the like":   edit("name: data, ", `name: data, serial: "a,b", `),
		"volumes: more has no disk of its name in domain.devices.disks; add one":                             edit("volumes:\n", "volumes:\n- {name: more, emptyDisk: {capacity: 1Gi}}\n"),
		"volumes: the emptyDisk data has no capacity; set it":                                                edit("capacity: 1Gi", "capacity: 0"),
		"volumes: two are on the claim c":                                                                    edit("debian-13.raw\"", "debian-13.raw\", claimName: c"),
		"volumes: seed has one of userData, userDataBase64 and secretRef":                                    edit("userData: u", "userData: u, secretRef: {name: s}"),
		"volumes: seed has one of networkData, networkDataBase64 and networkDataSecretRef":                   edit("userData: u", "networkData: x"),
		"volumes: the image image has a url that begins with http://":                                        edit("http://", "ftp://"),
		"volumes: the checksum of image is sha256: and 64 digits, lower case":                                edit("debian-13.raw\"", "debian-13.raw\", checksum: abc"),
		"networks: more has no interface of its name in domain.devices.interfaces; add one":                  strings.Replace(edit("networks: [{name: default, pod: {}}]", "networks: [{name: more, pod: {}}]"), "name: default", "name: more2", 1),
		"domain.devices.interfaces: default is connected by masquerade alone; set masquerade: {}":            edit("masquerade: {}, ", ""),
		"domain.devices.interfaces: list the ports of default: no others lead to the guest":                  edit("[{port: 53}, {port: 53, protocol: UDP}]", "[]"),
		"domain.devices.interfaces: port 53 is there twice":                                                  edit(", protocol: UDP", ", protocol: TCP"),
		"domain.devices.interfaces: port 53 has the protocol SCTP; there are TCP and UDP":                    edit("UDP", "SCTP"),
		"domain.devices.interfaces: port 70000 is none":                                                      edit("{port: 53}", "{port: 70000}"),
		"domain.devices.interfaces: the macAddress of default is that of one Ethernet interface":             edit("02:00", "01:00"),
		"domain.devices.interfaces: default has the model ne2k; there are virtio, e1000, e1000e and rtl8139": edit("masquerade: {}", "masquerade: {}, model: ne2k"),
		"networks: default is that of pods; set pod: {}":                                                     edit("pod: {}", ""),
		"networks: there is one, that of pods; take the others out":                                          edit("networks: [", "networks: [{name: default, pod: {}}, "),
		"spec: it is 147 KiB long, and 128 are possible; put user data into a Secret":                        edit("userData: u", "userData: "+strings.Repeat("x", 147<<10)),
		"domain.devices.disks: 7 are at sata, which has 6 ports; set bus: virtio":                            edit("disks:\n", "disks:\n"+strings.Repeat("    - {name: data, disk: {}}\n", 5)),
		"domain.devices.disks: system can be read alone, which a disk at sata cannot; set bus: virtio, or make it a cdrom": strings.Replace(
			edit("claimName: c", "claimName: c, readOnly: true"), "disk: {bus: virtio}, bootOrder", "disk: {}, bootOrder", 1),
		"volumes: system has one of persistentVolumeClaim, cloudInitNoCloud, emptyDisk and firstlightImage": edit(
			"{name: system, persist", "{name: system, emptyDisk: {capacity: 1}, persist"),
		"volumes: data is a second cloudInitNoCloud; cloud-init reads one": edit("emptyDisk: {capacity: 1Gi}", "cloudInitNoCloud: {}"),
	} {
		assert.Contains(t, CheckSpec(readSpec(t, text)), want)
	}
}
