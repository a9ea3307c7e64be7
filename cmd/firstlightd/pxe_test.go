package main

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/pxe"
)

func TestParsePXE(t *testing.T) {
	parsed, err := parsePXE("pxe.yaml", []byte(`interface: eth1
address: 172.22.0.1
boot: [/usr/lib/ipxe]
mounts:
- {path: /, dir: /srv}
dhcp:
  leases: /var/lib/leases
  subnets:
  - {prefix: 172.22.0.0/24, pool: 172.22.0.100-172.22.0.199, lease: 10m}
machines:
  "52:54:00:00:00:01": {action: ramdisk, kernel: k, initrd: [r], args: [a=b], address: 172.22.0.10, hostname: node1}
  "52:54:00:00:00:02": {action: disk, secureBoot: true}
default: {action: refuse, reason: not ours}
`))
	require.NoError(t, err)
	mac := net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1}
	assert.Equal(t, pxe.ActionRamdisk, parsed.conf.Booter.Boot(t.Context(), pxe.Machine{MAC: mac}).Action)
	assert.False(t, parsed.conf.Booter.Boot(t.Context(), pxe.Machine{MAC: mac}).SecureBoot)
	secure := parsed.conf.Booter.Boot(t.Context(), pxe.Machine{MAC: net.HardwareAddr{0x52, 0x54, 0, 0, 0, 2}})
	assert.Equal(t, pxe.Boot{Action: pxe.ActionDisk, SecureBoot: true}, secure)
	other := parsed.conf.Booter.Boot(t.Context(), pxe.Machine{MAC: net.HardwareAddr{0, 1, 2, 3, 4, 5}})
	assert.Equal(t, pxe.Boot{Action: pxe.ActionRefuse, Reason: "not ours"}, other)
	assert.Equal(t, other, parsed.conf.Booter.Boot(t.Context(), pxe.Machine{}))
	require.Len(t, parsed.conf.DHCP.Reservations, 2)
	assert.Equal(t, mac, parsed.conf.DHCP.Reservations[0].MAC)
}

func TestParsePXEErrors(t *testing.T) {
	const head = "interface: eth1\naddress: 172.22.0.1\n"
	for text, want := range map[string]string{
		"":                                    "pxe.yaml: interface and address are required; name the provisioning interface and this machine's address on it",
		head + "bot: [x]\n":                   "pxe.yaml:3: bot: unknown key; did you mean boot?",
		"interface: eth1\naddress: here\n":    `pxe.yaml:2: address: "here" is not an address; write it like 172.22.0.1 or fd00:1::1`,
		head + "default: {action: wipe}\n":    `pxe.yaml:3: default.action: action "wipe" is unknown; use refuse, disk, inspect, ramdisk or wait`,
		head + "default: {action: inspect}\n": "pxe.yaml:3: default: action inspect boots nothing; give kernel and initrd, or script",
		head + "machines:\n  nobody: {action: disk}\n":     `pxe.yaml:4: machines.nobody: "nobody" is not a MAC address; write it like "52:54:00:12:34:56"`,
		head + "dhcp:\n  subnets:\n  - {pool: 1.2.3.4}\n":  `pxe.yaml:5: dhcp.subnets[0].pool: "1.2.3.4" is not a range; write it like 172.22.0.100-172.22.0.199`,
		head + "dhcp: {foreign: fight}\n":                  `pxe.yaml:3: dhcp.foreign: "fight" is unknown; use silent, proxy or ignore-unknown`,
		head + "default: {action: disk}\n---\nsecond: 1\n": "pxe.yaml:4: a second document begins here; the configuration of PXE is one document, remove the '---'",
	} {
		_, err := parsePXE("pxe.yaml", []byte(text))
		assert.EqualError(t, err, want)
	}
}
