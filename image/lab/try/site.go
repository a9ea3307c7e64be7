package try

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"text/template"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/image/lab/simulator"
)

// What the appliance has on each network.
const (
	provisioningNIC = "eth0"
	bmcNIC          = "eth1"
	baremetalNIC    = "eth2"

	bmcCIDR       = "172.23.0.0/24"
	baremetalCIDR = "172.24.0.0/24"

	bmcAddress       = "172.23.0.1"
	baremetalAddress = "172.24.0.1"
)

// bmcUser is the user of every BMC of a rack.
const bmcUser = "admin"

// firstBMC is the address of the first server's BMC; each further one has the next.
func firstBMC() netip.Addr { return netip.MustParseAddr("172.23.0.101") }

// provisioningNetwork is the network that servers boot from.
func (o Order) provisioningNetwork() netip.Prefix {
	if o.IPv6 {
		return netip.MustParsePrefix("fd00:22::/64")
	}
	return netip.MustParsePrefix("172.22.0.0/24")
}

// bootServer is where servers find what they boot.
func (o Order) bootServer() string {
	return "http://" + netip.AddrPortFrom(o.provisioningNetwork().Addr().Next(), bootPort).String()
}

// api is where the appliance's API server listens.
func (o Order) api() string {
	if o.IPv6 {
		return netip.AddrPortFrom(site.InnerIPv4(), apiPort).String()
	}
	return netip.AddrPortFrom(o.provisioningNetwork().Addr().Next(), apiPort).String()
}

// Ports of the appliance.
const (
	bootPort = 6180
	apiPort  = 6443
)

// document is the site of a rack: what an owner would write who has these servers. No cluster is asked for, since
// simulated servers have no system that could be a node of one.
var document = template.Must(template.New(siteFile).Parse(`name: try
networks:
  provisioning: {interface: {{.Provisioning}}, cidr: "{{.ProvisioningCIDR}}"}
  bmc: {interface: {{.BMC}}, cidr: {{.BMCCIDR}}, address: {{.BMCAddress}}}
  baremetal: {interface: {{.Baremetal}}, cidr: {{.BaremetalCIDR}}, address: {{.BaremetalAddress}}}
clusters: []
{{- if .Servers}}
nodes:
{{- range .Servers}}
{{.}}
{{- end}}
{{- end}}
`))

// siteDocument is the site for these servers.
func siteDocument(provisioning netip.Prefix, servers []*simulator.Server) (string, error) {
	entries := make([]string, len(servers))
	for i, s := range servers {
		entries[i] = strings.TrimRight(s.SiteEntry(), "\n")
	}

	var out bytes.Buffer
	if err := document.Execute(&out, map[string]any{
		"Provisioning":     provisioningNIC,
		"ProvisioningCIDR": provisioning,
		"BMC":              bmcNIC,
		"BMCCIDR":          bmcCIDR,
		"BMCAddress":       bmcAddress,
		"Baremetal":        baremetalNIC,
		"BaremetalCIDR":    baremetalCIDR,
		"BaremetalAddress": baremetalAddress,
		"Servers":          entries,
	}); err != nil {
		return "", fmt.Errorf("write site: %w", err)
	}
	if _, problems := site.Load(siteFile, out.Bytes()); problems.Err() != nil {
		return "", fmt.Errorf("write site: %w", problems.Err())
	}

	return out.String(), nil
}
