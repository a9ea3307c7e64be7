package icn

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/site"
)

// pair is a user_config.sh and a nodes.json that were in ICN's tree at one time, in their shape: the lines that there
// were, with values of our own.
type pair struct {
	since  string
	config []string
	links  []string // NICs of each server in nodes.json, by their ids
	nodes  bool     // there was a nodes.json
}

// history lists the pairs that differ. A value in ${} gave way to the environment.
func history() []pair {
	bootstrap := []string{`BS_DHCP_INTERFACE="eno3"`, `BS_DHCP_INTERFACE_IP="172.31.1.1/24"`}
	ironic := []string{`IRONIC_INTERFACE="enp4s0f3"`}
	ipmi := []string{`IRONIC_IPMI_INTERFACE="eno1"`, `IRONIC_IPMI_INTERFACE_IP="10.10.110.25"`}
	provider := []string{`PROVIDER_NETWORK_GATEWAY="10.10.110.1"`, `PROVIDER_NETWORK_DNS="8.8.8.8"`}
	soft := []string{`BS_DHCP_INTERFACE=${BS_DHCP_INTERFACE:-"eno3"}`, `BS_DHCP_INTERFACE_IP=${BS_DHCP_INTERFACE_IP:-"172.31.1.1/24"}`,
		`IRONIC_INTERFACE=${IRONIC_INTERFACE:-"enp4s0f3"}`, `IRONIC_IPMI_INTERFACE=${IRONIC_IPMI_INTERFACE:-"eno1"}`, `IRONIC_IPMI_INTERFACE_IP=${IRONIC_IPMI_INTERFACE_IP:-"10.10.110.25"}`}
	mirror := []string{`DOCKER_REGISTRY_MIRRORS=""`}
	join := func(all ...[]string) (lines []string) {
		for _, l := range all {
			lines = append(lines, l...)
		}
		return lines
	}
	three, four := []string{"baremetal", "bootstrap", "provisioning"}, []string{"baremetal", "bootstrap", "provisioning", "sriov"}
	last := []string{"baremetal", "provisioning", "sriov"}
	return []pair{
		{"2019-10-30", nil, nil, true},
		{"2019-11-08", soft, nil, true},
		{"2019-11-13", join(bootstrap, ironic, ipmi, provider), nil, true},
		{"2019-11-19", join(bootstrap, ironic, ipmi, provider), nil, true},
		{"2020-05-14", join(bootstrap, ironic, ipmi, provider), nil, true},
		{"2020-11-05", join(bootstrap, ironic, ipmi, provider), nil, true},
		{"2020-11-20", join(bootstrap, ironic, ipmi, provider), nil, true},
		{"2021-04-26", join(bootstrap, ironic, ipmi), three, true},
		{"2021-04-28", join(bootstrap, ironic, ipmi), four, true},
		{"2021-06-28", join(ironic, ipmi), last, true},
		{"2021-09-30", join(ironic, ipmi[:1]), last, true},
		{"2021-11-03", join(ironic, ipmi[:1]), last, true},
		{"2021-12-14", ironic, last, true},
		{"2022-02-03", ironic, nil, false},
		{"2022-02-10", join(ironic, mirror), nil, false},
		{"2022-02-15", join(ironic, []string{`IRONIC_ENABLE_DHCP="yes"`}, mirror), nil, false},
	}
}

// input writes the two files.
func (p pair) input() (in Input) {
	if p.config != nil {
		text := "#!/usr/bin/env bash\n"
		for _, line := range p.config {
			text += "export " + line + "\n"
		}
		in.UserConfig = &File{"user_config.sh", []byte(text)}
	}
	if !p.nodes {
		return in
	}
	var servers []string
	for n := 1; n <= 2; n++ {
		var links, networks []string
		for i, id := range p.links {
			links = append(links, fmt.Sprintf(`{"id": "%s_nic", "ethernet_mac_address": "52:54:00:00:%02x:%02x", "type": "phy"}`, id, n, i))
			address := map[string]string{
				"baremetal": fmt.Sprintf(`"type": "ipv4", "ip_address": "10.10.110.%d/24", "gateway": "10.10.110.1", "dns_nameservers": ["8.8.8.8"]`, 20+n),
				"sriov":     fmt.Sprintf(`"type": "ipv4", "ip_address": "10.10.113.%d/24"`, 20+n),
			}[id]
			if address == "" {
				address = `"type": "ipv4_dhcp"`
			}
			networks = append(networks, fmt.Sprintf(`{"id": "%s", "link": "%s_nic", %s}`, id, id, address))
		}
		net := ""
		if p.links != nil {
			net = fmt.Sprintf(`, "net": {"links": [%s], "networks": [%s], "services": []}`, strings.Join(links, ", "), strings.Join(networks, ", "))
		}
		servers = append(servers, fmt.Sprintf(`{"name": "node-%d", "ipmi_driver_info": {"username": "root", "password": "root", "address": "10.10.110.%d"}, "os": {"username": "ubuntu"}%s}`, n, 10+n, net))
	}
	in.Nodes = &File{"nodes.json", []byte(`{"nodes": [` + strings.Join(servers, ",\n") + "]}\n")}
	return in
}

// TestEveryPairIsInstallableOrSaysWhyNot writes down, for each pair of files that ICN ever had, what becomes of it.
func TestEveryPairIsInstallableOrSaysWhyNot(t *testing.T) {
	var got strings.Builder
	for _, p := range history() {
		text, notes, err := Import(p.input())
		require.NoError(t, err)
		s, problems := site.Load("site.yaml", text)
		require.Empty(t, problems.String(), "%s:\n%s", p.since, text)
		verdict := fmt.Sprintf("installable, %d nodes", len(s.Nodes))
		switch {
		case len(s.Nodes) == 0:
			verdict = "names no servers"
		case slices.ContainsFunc(notes, func(n Note) bool { return n.IsMissing }):
			verdict = fmt.Sprintf("not installable before the way to the BMCs is given, %d nodes", len(s.Nodes))
		}
		fmt.Fprintf(&got, "%s: %s\n", p.since, verdict)
		for _, n := range notes {
			fmt.Fprintf(&got, "  %s\n", n)
		}
		if len(s.Nodes) > 0 {
			assert.Regexp(t, `(?m)^.*: (bmc|IRONIC_IPMI_INTERFACE(_IP)?): `, lines(notes), "%s: nothing says how BMCs are reached", p.since)
		}
	}
	t.Log("\n" + got.String())
	goldentest.Check(t, "testdata/history.txt", got.String())
}

// TestBMCsBeyondTheFilesNetworksNeedARouter: a note that leaves nothing to do costs no installation.
func TestBMCsBeyondTheFilesNetworksNeedARouter(t *testing.T) {
	nodes := &File{"nodes.json", []byte(`{"nodes": [{"name": "a", "ipmi_driver_info": {"address": "10.99.0.1"}}]}`)}
	const own = "IRONIC_IPMI_INTERFACE=eno1\nIRONIC_IPMI_INTERFACE_IP=10.30.0.2/24\n"
	for config, missing := range map[string]bool{
		"": true, // nor does it say by which NIC
		"IRONIC_IPMI_INTERFACE=eno1\nIRONIC_IPMI_INTERFACE_IP=10.99.0.2/24\n": false,
		own: true,
		own + "PROVIDER_NETWORK_GATEWAY=10.10.110.1\n": false,
	} {
		_, notes, err := Import(Input{UserConfig: &File{"user_config.sh", []byte(config)}, Nodes: nodes})
		require.NoError(t, err)
		assert.Equal(t, missing, slices.ContainsFunc(notes, func(n Note) bool { return n.IsMissing }), "%s: %s", config, lines(notes))
	}
}

// TestTheServersOwnNetworkMayHoldTheBMCs: networks A and C of ICN are one, whoever says so.
func TestTheServersOwnNetworkMayHoldTheBMCs(t *testing.T) {
	for _, since := range []string{"2019-11-13", "2021-04-26", "2021-06-28", "2021-09-30"} {
		for _, p := range history() {
			if p.since != since {
				continue
			}
			text, _, err := Import(p.input())
			require.NoError(t, err)
			s, problems := site.Load("site.yaml", text)
			require.Empty(t, problems.String())
			require.NotNil(t, s.Networks.Baremetal, "%s:\n%s", since, text)
			assert.Equal(t, "eno1", s.Networks.Baremetal.Interface.String(), since)
			assert.Nil(t, s.Networks.BMC, since)
		}
	}
}

// TestTheEnvironmentOfTheCaller is read as ICN's scripts did: `source user_config.sh` over it.
func TestTheEnvironmentOfTheCaller(t *testing.T) {
	environ := []string{"IRONIC_INTERFACE=eth7", "PROVIDER_NETWORK_DNS=9.9.9.9", "HOME=/root", "BUILD_DIR=/x", "COMPUTE_NODE_NAME="}
	for name, c := range map[string]struct{ config, nic, notes string }{
		"a default gives way":     {`IRONIC_INTERFACE=${IRONIC_INTERFACE:-"eno2"}` + "\n", "eth7", "environment: PROVIDER_NETWORK_DNS: taken from the environment"},
		"what the file says":      {`export IRONIC_INTERFACE="eno2"` + "\n", "eno2", "environment: PROVIDER_NETWORK_DNS: taken from the environment"},
		"what the file leaves":    {"", "eth7", "environment: IRONIC_INTERFACE: taken from the environment"},
		"an empty one is default": {`IRONIC_INTERFACE=${COMPUTE_NODE_NAME:-eno2}` + "\n", "eno2", ""},
	} {
		text, notes, err := Import(Input{UserConfig: &File{"user_config.sh", []byte(c.config)}, Environment: environ})
		require.NoError(t, err)
		s, problems := site.Load("site.yaml", text)
		require.Empty(t, problems.String())
		assert.Equal(t, c.nic, s.Networks.Provisioning.Interface.String(), name)
		assert.Equal(t, "9.9.9.9", s.Networks.Baremetal.DNS[0].String(), name)
		assert.Contains(t, lines(notes), c.notes, name)
		assert.NotContains(t, lines(notes), "BUILD_DIR", "what has no place is not picked from an environment")
	}
	text, _, err := Import(Input{Environment: environ[:1]})
	require.NoError(t, err)
	assert.Contains(t, string(text), "interface: eth7", "without a file")
}
