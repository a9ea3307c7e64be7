package virtualrack

import (
	"bytes"
	"fmt"
	"text/template"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/image/lab"
	"firstlight.dev/firstlight/image/lab/redfish"
)

// bmcUser is the user of every BMC of a rack.
const bmcUser = "admin"

// clusterName is that of the one cluster of a rack.
const clusterName = "edge"

// SiteDocument is the site of a rack: what an owner would write who has these servers. Whoever has
// the secret half of key may log in.
func (r Rack) SiteDocument(password, key string) (string, error) {
	var out bytes.Buffer
	form := document
	if r.Order.Discover {
		form = discoverDocument
	}
	if err := form.Execute(&out, map[string]any{
		"Rack":     r,
		"Password": password,
		"Key":      key,
		"User":     bmcUser,
		"Cluster":  clusterName,
		"Workers":  r.Order.Nodes - 1,
	}); err != nil {
		return "", fmt.Errorf("write site: %w", err)
	}
	if _, problems := site.Load("site.yaml", out.Bytes()); problems.Err() != nil {
		return "", fmt.Errorf("write site: %w", problems.Err())
	}

	return out.String(), nil
}

var words = template.FuncMap{
	"at": addressOf, "cidr": prefixOf,
	"bmc": func(c MachineSpec) string {
		if c.Redfish {
			return fmt.Sprintf("redfish+https://%s%s", c.BMC, redfish.SystemPath)
		}
		return fmt.Sprintf("ipmi://%s", c.BMC)
	},
	"network": func(name string) string { return networks[name].String() },
	"firmware": func(c MachineSpec) string {
		return map[lab.Firmware]string{lab.BIOS: "legacy", lab.UEFI: "UEFI"}[c.Firmware]
	},
	"slot": func(i int) string { return lab.PCIAddress(firstSlot + i) },
}

func parseDocument(text string) *template.Template {
	return template.Must(template.New("site.yaml").Option("missingkey=error").Funcs(words).Parse(text))
}

// discoverDocument names no node, no MAC and no BMC: how many there are to be, and who may log in to what is found.
var discoverDocument = parseDocument(`name: lab
networks:
  provisioning: {interface: "{{slot 0}}", dhcp: {range: {{at "provisioning" 2}}-{{at "provisioning" 199}}}}
  bmc:
    {interface: "{{slot 1}}", cidr: {{network "bmc"}}, address: {{at "bmc" 1}},
     dhcp: {range: {{at "bmc" 101}}-{{at "bmc" 199}}}, allow: [ssh, uploads]}
access: {sshKeys: ["{{.Key}}"]}
nodeDefaults: {bootMode: {{firmware (index .Rack.Nodes 0)}}}
discover:
  {count: {{.Rack.Order.Nodes}}, leases: true, approve: none, names: "{serial}",
   credentials: [{username: {{.User}}, password: "{{.Password}}"}]}
verification: {timeout: 4h} # machines under emulation take their time
{{- if not .Rack.Order.Cluster}}
clusters: []
{{- else if gt .Rack.Order.Nodes 1}}
clusters: [{name: {{.Cluster}}, workers: [{count: {{.Workers}}}]}]
{{- else}}
clusters: [{name: {{.Cluster}}}]
{{- end}}
`)

var document = parseDocument(`name: lab
networks:
  provisioning:
{{- if .Rack.Order.Bond}}
    bond: {interfaces: [{{range $i, $mac := .Rack.ApplianceMACs "provisioning"}}{{if $i}}, {{end}}"{{$mac}}"{{end}}]}
{{- else}}
    interface: "{{(index .Rack.Appliance.Cards 0).MAC}}"
{{- end}}
{{- if .Rack.Order.VLAN}}
    vlan: {{.Rack.Order.VLAN}}
{{- end}}
    cidr: {{network "provisioning"}}
    dhcp: {range: {{at "provisioning" 2}}-{{at "provisioning" 100}}} # up to the first node's own address
  bmc:
    interface: "{{(index .Rack.Appliance.Cards 1).MAC}}"
    cidr: {{network "bmc"}}
    address: {{at "bmc" 1}}
    allow: [ssh, uploads] # from the workstation, also while a test has the provisioning network to itself
{{- if .Rack.Order.Gateway}}
  baremetal:
    interface: "{{(index .Rack.Appliance.Cards 2).MAC}}"
    cidr: {{network "baremetal"}}
    address: {{at "baremetal" 1}}
    gateway: {{at "baremetal" 253}}
    dns: [{{at "baremetal" 253}}]
{{- end}}
access:
  sshKeys:
    - {{.Key}}
{{- if not .Rack.Order.EmptySite}}
nodes:
{{- range .Rack.Nodes}}
  - name: {{.Name}}
    macs: [{{range $i, $c := .Cards}}{{if $i}}, {{end}}"{{$c.MAC}}"{{end}}]
    bootMode: {{firmware .}}
    bmc: {address: "{{bmc .}}", username: {{$.User}}, password: "{{$.Password}}"}
    {{- if gt $.Rack.Order.Disks 1}}
    rootDevice: {serialNumber: "{{.Name}}-disk0"}
    {{- end}}
    links:
    {{- $node := .}}
    {{- range .Cards}}
      {{- if eq .Network "provisioning"}}
      - {network: provisioning, mac: "{{.MAC}}", address: {{$node.Address}}/24}
      {{- else if eq .Network "baremetal"}}
      - {network: baremetal, mac: "{{.MAC}}", address: 172.24.0.{{index $node.Address.As4 3}}/24}
      {{- else}}
      - {network: data, mac: "{{.MAC}}"}
      {{- end}}
    {{- end}}
{{- end}}
{{- end}}
# Machines under emulation take their time.
verification: {timeout: 4h}
{{- if and .Rack.Order.Cluster (not .Rack.Order.EmptySite)}}
clusters:
  - name: {{.Cluster}}
    {{- if gt .Rack.Order.Nodes 1}}
    workers: [{count: {{.Workers}}}]
    {{- end}}
{{- else}}
clusters: []
{{- end}}
`)
