package firewall

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/site"
)

// TestDocsShowTheListeners holds docs/security.md to the list.
func TestDocsShowTheListeners(t *testing.T) {
	var rows strings.Builder
	rows.WriteString("| port | service | bound to | reached from | who may ask | how that is known |\n|---|---|---|---|---|---|\n")
	for _, l := range Listeners() {
		from := cmp.Or(strings.Join(l.Networks, ", "), "the appliance")
		fmt.Fprintf(&rows, "| %d/%s | %s | %s | %s | %s | %s |\n", l.Port, l.Protocol, l.Name, l.At, from, l.Who, l.Known)
	}
	goldentest.CheckPart(t, "../../../docs/security.md", "listeners", rows.String())
}

// TestDocsShowThePortsOfEachNetwork holds docs/hardware.md to the list: who sets up a firewall around the appliance
// asks by network.
func TestDocsShowThePortsOfEachNetwork(t *testing.T) {
	var rows strings.Builder
	rows.WriteString("| from | ports of the appliance |\n|---|---|\n")
	for _, network := range []string{provisioning, bmc, baremetal, owner, bmcs} {
		var ports []string
		for _, l := range Listeners() {
			if slices.Contains(l.Networks, network) {
				ports = append(ports, fmt.Sprintf("%d/%s %s", l.Port, l.Protocol, l.Name))
			}
		}
		fmt.Fprintf(&rows, "| %s | %s |\n", network, strings.Join(ports, ", "))
	}
	goldentest.CheckPart(t, "../../../docs/hardware.md", "ports", rows.String())
}

// TestS3IsReachedIfTheSiteSaysSo: where uploads are.
func TestS3IsReachedIfTheSiteSaysSo(t *testing.T) {
	reached := func(text string) (networks []string) {
		s, problems := site.Load("site.yaml", []byte(text))
		require.Empty(t, problems)
		for _, o := range newRules(s.WithDefaults()).open {
			if o.port == artifact.PortS3 {
				networks = append(networks, o.network)
			}
		}
		return networks
	}
	assert.Empty(t, reached("networks: {bmc: {allow: [uploads], cidr: 10.0.0.0/24}}"))
	assert.Equal(t, []string{provisioning, baremetal}, reached("artifacts: {s3: true}"))
	assert.Equal(t, []string{provisioning, bmc}, reached("artifacts: {s3: true}\nnetworks: {bmc: {allow: [uploads], cidr: 10.0.0.0/24}}"))
	assert.Equal(t, []string{provisioning, baremetal, bmc}, reached(
		"artifacts: {s3: true}\nnetworks: {bmc: {allow: [uploads], cidr: 10.0.0.0/24}, baremetal: {cidr: 10.0.1.0/24}}",
	))
}

// TestDiscsAreReachedFromTheBMCsAlone, if a node boots from one.
func TestDiscsAreReachedFromTheBMCsAlone(t *testing.T) {
	reached := func(networks, bmcAddress string) (from []string) {
		s, problems := site.Load("site.yaml", []byte("networks: {"+networks+"}\nnodes:\n  - name: node-1\n    bmc: {address: \""+bmcAddress+
			"/redfish/v1/Systems/1\", username: a, password: b}\n"+
			"    links: [{network: provisioning, mac: \"52:54:00:00:00:01\", address: 172.22.0.201/24}]\n"))
		require.Empty(t, problems)
		for _, o := range newRules(s.WithDefaults()).open {
			if o.port == 6181 {
				from = append(from, o.network)
			}
		}
		return from
	}
	const both = "bmc: {interface: eno3, cidr: 10.30.0.0/24, address: 10.30.0.1}, baremetal: {interface: eno1, cidr: 10.10.0.0/24, address: 10.10.0.1}"
	assert.Empty(t, reached(both, "redfish://10.30.0.11"))
	assert.Equal(t, []string{bmc}, reached(both, "redfish-virtualmedia://10.30.0.11"))
	assert.Equal(t, []string{baremetal}, reached(both, "redfish-virtualmedia://10.10.0.11"))
	assert.Equal(t, []string{provisioning}, reached("", "redfish-virtualmedia://172.22.0.2"))
}

func TestListenersAreEachOnce(t *testing.T) {
	names, ports := map[string]bool{}, map[string]bool{}
	for _, l := range Listeners() {
		assert.Regexp(t, "^[a-z][a-z0-9]*(-[a-z]+)*$", l.Name)
		assert.False(t, names[l.Name], l.Name)
		port := fmt.Sprint(l.Protocol, l.Port, l.At == OnLoopback) // the gate and Ironic have one port, each at its address
		assert.False(t, ports[port], "%d/%s", l.Port, l.Protocol)
		names[l.Name], ports[port] = true, true
		assert.Contains(t, []string{"tcp", "udp"}, l.Protocol)
		assert.True(t, l.At != OnLoopback || l.Networks == nil, "%s is reached from networks on loopback", l.Name)
		assert.NotEmpty(t, l.Who)
		assert.NotEmpty(t, l.Known)
	}
	for _, path := range []string{"networks.provisioning.allow"} {
		i := slices.IndexFunc(site.Fields(), func(f site.Field) bool { return f.Path == path })
		require.GreaterOrEqual(t, i, 0)
		for _, name := range strings.Split(strings.TrimPrefix(site.Fields()[i].Type, "list of "), ", ") {
			assert.True(t, names[name], "a site may allow %q, which is no listener", name)
		}
	}
	at := func(name string) uint16 {
		i := slices.IndexFunc(Listeners(), func(l Listener) bool { return l.Name == name })
		require.GreaterOrEqual(t, i, 0, name)
		return Listeners()[i].Port
	}
	assert.EqualValues(t, assets.RegistryPort, at("registry"))
	assert.EqualValues(t, artifact.Port, at("uploads"))
	assert.EqualValues(t, artifact.PortS3, at("s3"))
}

// sockets are the files of the product that open a socket for others, and the listeners that these are; none is what
// is not a port of the appliance, with the reason.
var sockets = map[string][]string{
	"daemon/appliance/initrd/uevent.go":              nil,         // hears the kernel's netlink
	"assets/freeport/freeport.go":                    nil,         // closed at once: of the workstation's lab
	"pxe/arp/arp.go":                                 nil,         // asks by ARP
	"pxe/dhcp/probe.go":                              nil,         // asks as a DHCP client; a filter leaves it nothing but answers
	"pxe/tftp/socket.go":                             {"tftp"},    // one socket for each transfer, which only its client reaches
	"cmd/firstlightd/pxe.go":                         {"metrics"}, // of the boot services run by themselves
	"daemon/appliance/api/api.go":                    nil,         // a Unix socket of root's
	"daemon/appliance/vault/agent.go":                nil,         // a Unix socket of root's: keys for the installers
	"daemon/appliance/workstation/workstation.go":    nil,         // loopback of a workstation: firstlight proxy
	"daemon/appliance/host/timeserver/timeserver.go": {"time"},
	"daemon/appliance/metrics/serve.go":              {"metrics"},
	"daemon/engine/nodehealth/nodehealth.go":         nil, // loopback of a cluster node, for the kubelet
	"daemon/addons/chain/page.go":                    nil, // a pod of a workload cluster
	"daemon/addons/chain/sink.go":                    nil, // the same
	"daemon/addons/devices/plugin.go":                nil, // Unix sockets of root's: the kubelet's folder on a cluster node
	"daemon/clusters/noderuntime/endpoint.go":        nil, // loopback of a cluster node
	"daemon/clusters/noderuntime/probe.go":           nil, // a pod of a workload cluster
	"daemon/metal/standinbmc/standinbmc.go":          {"standin-bmc"},
	"daemon/metal/bmctrust/forwarder.go":             {"bmc-forwarder"},
	"daemon/metal/provisioning/gate.go":              {"ironic"},
	"daemon/metal/registry/registry.go":              {"registry"},
	"daemon/metal/registry/process.go":               nil, // a Unix socket for root: its metrics
	"daemon/uploads/api/api.go":                      {"uploads"},
	"daemon/uploads/s3api/s3api.go":                  {"s3"},
	"daemon/page/page.go":                            {"page"},
	"pxe/bootserver/bootserver.go":                   {"boot", "discs"},
	"pxe/dhcp/packetconn.go":                         {"dhcp", "pxe"},
	"pxe/dhcp/packetconn6.go":                        {"dhcpv6"},
	"pxe/dhcp/routeradvertisement.go":                nil, // ICMPv6: router solicitations
	"pxe/tftp/tftp.go":                               {"tftp"},

	"daemon/addons/machines/kvm/kvm.go":      nil, // a Unix socket in the kubelet's folder
	"daemon/addons/machines/launcher/run.go": nil, // Unix sockets in a pod
}

// opens are calls that make a socket to which others may connect or send.
var opens = regexp.MustCompile(`^(Listen|ListenPacket|ListenTCP|ListenUDP|ListenUnix|ListenAndServe|ListenAndServeTLS|ListenMulticastUDP|Bind|NewServer|FileListener)$`)

// TestEveryListenerIsOnTheList finds calls that open a socket in what ships on the appliance and on nodes.
func TestEveryListenerIsOnTheList(t *testing.T) {
	names := map[string]bool{}
	for _, l := range Listeners() {
		names[l.Name] = true
	}
	found := map[string]bool{}
	for _, room := range []string{"cmd/firstlightd", "cmd/firstlight-node", "cmd/firstlight-addons", "cmd/firstlight-init", "daemon", "pxe", "assets"} {
		require.NoError(t, filepath.WalkDir(filepath.Join("../../..", room), func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && (strings.HasSuffix(d.Name(), "test") || d.Name() == "bench" || p == "../../../assets/build") {
				return fs.SkipDir
			}
			if d.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), p, nil, 0)
			require.NoError(t, err)
			rel, _ := filepath.Rel("../../..", p)
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					if of, ok := call.Fun.(*ast.SelectorExpr); ok && opens.MatchString(of.Sel.Name) && isSocket(of) {
						found[filepath.ToSlash(rel)] = true
					}
				}
				return true
			})
			return nil
		}))
	}
	for file := range found {
		assert.True(t, has(sockets, file), "%s opens a socket: put the port on the list of listeners, and the file here", file)
	}
	for file, of := range sockets {
		assert.True(t, found[file], "%s opens no socket any more", file)
		for _, name := range of {
			assert.True(t, names[name], "%s: %s is not on the list", file, name)
		}
	}
}

// isSocket leaves out what is called alike and opens nothing: a mount, a method of ours that only starts what is
// listed itself.
func isSocket(of *ast.SelectorExpr) bool {
	x, isPackage := of.X.(*ast.Ident)
	switch of.Sel.Name {
	case "Bind", "NewServer":
		return isPackage && x.Name == "unix"
	case "Listen":
		return !isPackage || x.Name == "net" || x.Name == "tls" || x.Name == "lc" || x.Name == "unix"
	}
	return true
}

func has(all map[string][]string, file string) bool { _, ok := all[file]; return ok }

func TestRulesOfASite(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", `iifname . meta l4proto . th dport { "provisioning" . tcp . 22, "baremetal" . tcp . 22, `},
		{"networks: {bmc: {cidr: 10.0.0.0/24}}", `{ "provisioning" . tcp . 22, "bmc" . tcp . 22, `},
		{"networks: {bmc: {cidr: 10.0.0.0/24}, baremetal: {interface: eno1}}", `{ "provisioning" . tcp . 22, "baremetal" . tcp . 22, `},
		{"networks: {baremetal: {allow: [kubernetes]}}", `iifname "baremetal" ip daddr 172.22.0.1 tcp dport 6443 accept`},
		{"networks: {provisioning: {allow: [kubernetes]}}", `"provisioning" . tcp . 6443 }`},
		{"networks: {baremetal: {forward: [provisioning]}}", `iifname "baremetal" oifname "provisioning" accept`},
		{"networks: {baremetal: {allow: [metrics]}}", `"baremetal" . tcp . 9100 }`},
		{"networks: {provisioning: {allow: [ssh]}}", `{ "provisioning" . tcp . 22, "baremetal" . tcp . 22, `},
	} {
		s, problems := site.Load("site.yaml", []byte(c.text))
		require.NoError(t, problems.Err(), c.text)
		assert.Contains(t, newRules(s.WithDefaults()).render(), c.want, c.text)
		isOpen := strings.Contains(newRules(s.WithDefaults()).render(), ". 9100")
		assert.Equal(t, strings.Contains(c.text, "metrics"), isOpen, c.text)
	}
}
