package site

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/yamldoc"
)

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	return data
}

func validFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/valid/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return append(files, "../../overlays/site/site.example.yaml")
}

func wrongFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/wrong/*.yaml")
	require.NoError(t, err)
	require.Len(t, files, 27)
	return files
}

func TestValidSitesRoundTrip(t *testing.T) {
	for _, file := range validFiles(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			s, problems := Load(file, readFile(t, file))
			require.Empty(t, problems.String())
			for name, s := range map[string]*Site{"as written": s, "with defaults": s.WithDefaults()} {
				text, err := s.RevealedYAML()
				require.NoError(t, err)
				again, problems := Load(name, text)
				require.Empty(t, problems.String(), "%s:\n%s", name, text)
				assert.Equal(t, s, again, name)
			}
		})
	}
}

func TestNothingIsASite(t *testing.T) {
	for _, data := range []string{"", "\n", "# remark\n", "---\n", "{}", "\ufeff", "null\n", "~"} {
		s, problems := Load("site.yaml", []byte(data))
		require.Empty(t, problems.String(), "%q", data)
		assert.Equal(t, &Site{}, s, "%q", data)
	}
}

func TestDefaultsOfNothing(t *testing.T) {
	s := (&Site{}).WithDefaults()
	p := s.Networks.Provisioning
	assert.Equal(t, netip.MustParseAddr("172.22.0.1"), p.Address)
	assert.Equal(t, netip.MustParsePrefix("172.22.0.0/24"), p.CIDR)
	assert.Equal(t, "172.22.0.10-172.22.0.100", p.DHCP.Range.String())
	assert.Equal(t, "server", p.DHCP.Mode)
	assert.Empty(t, p.NTP, "the appliance does not follow itself")
	assert.Equal(t, Duration(time.Hour), s.Verification.Timeout)
	assert.True(t, p.Interface.IsZero(), "the interface is detected on the appliance")
	assert.Equal(t, "none", s.Networks.Baremetal.DHCP.Mode)
	assert.False(t, s.Networks.Baremetal.Address.IsValid())
	assert.Nil(t, s.Networks.BMC)
}

func TestDefaultsLeaveTheSiteAlone(t *testing.T) {
	data := readFile(t, "testdata/valid/full.yaml")
	s, _ := Load("site.yaml", data)
	untouched, _ := Load("site.yaml", data)
	s.WithDefaults()
	assert.Equal(t, untouched, s)
	assert.Equal(t, s.WithDefaults(), s.WithDefaults().WithDefaults())
}

func TestDefaultRangeFitsItsNetwork(t *testing.T) {
	for cidr, want := range map[string]string{
		"172.16.0.0/12": "172.16.0.10-172.16.0.100", "192.168.7.0/25": "192.168.7.10-192.168.7.100",
		"192.168.7.64/26": "192.168.7.96-192.168.7.126", "192.168.7.8/29": "192.168.7.12-192.168.7.14",
	} {
		s, problems := Load("site.yaml", []byte("networks: {provisioning: {cidr: "+cidr+"}}"))
		require.Empty(t, problems.String())
		assert.Equal(t, want, s.WithDefaults().Networks.Provisioning.DHCP.Range.String(), cidr)
	}
}

func TestMembersAreExpandedAndNamed(t *testing.T) {
	s, problems := Load("site.yaml", []byte(`
clusters:
  - name: edge
    controlPlane: [{count: 3}]
    workers: [{name: master-2, cpu: 64}, {name: worker-3}, {count: 2}]
`))
	assert.Nil(t, s)
	assert.Equal(t, `site.yaml:5: clusters[0].workers[0].name: name "master-2" is already that of clusters[0].controlPlane[0]; use another
site.yaml:5: clusters[0].workers[2].name: name "worker-3" is already that of clusters[0].workers[1]; use another`, problems.String())
	s, problems = Load("site.yaml", []byte(`
clusters:
  - name: edge
    controlPlane: [{name: cp, memory: 8Gi}, {count: 2}]
    workers: [{name: big, count: 2, cpu: 64}, {cpu: 8}, {name: cp}]
`))
	require.Empty(t, problems.String())
	c := s.WithDefaults().Clusters[0]
	assert.Equal(t, []NodeSelector{{Name: "cp", Memory: 8 << 30, Count: 1}, {Name: "master-2", Count: 1}, {Name: "master-3", Count: 1}}, c.ControlPlane)
	assert.Equal(t, []NodeSelector{
		{Name: "big-1", CPU: 64, Count: 1}, {Name: "big-2", CPU: 64, Count: 1}, {Name: "worker-3", CPU: 8, Count: 1},
		{Name: "cp", Memory: 8 << 30, Count: 1},
	}, c.Workers)
}

func TestTenWrongFiles(t *testing.T) {
	for _, file := range wrongFiles(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			s, problems := Load("site.yaml", readFile(t, file))
			assert.Nil(t, s)
			require.NotEmpty(t, problems)
			goldentest.Check(t, strings.TrimSuffix(file, ".yaml")+".txt", problems.String()+"\n")
			for i, p := range problems {
				assert.NotContains(t, p.String(), "\n")
				assert.Positive(t, p.Line)
				assert.NotContains(t, p.String(), "hunter2")
				if i > 0 {
					assert.LessOrEqual(t, problems[i-1].Line, p.Line)
				}
			}
		})
	}
}

func TestHostileFiles(t *testing.T) {
	bomb := "a: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 12 {
		bomb += fmt.Sprintf("k%d: &a%d [%s*a%d]\n", i, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 9), i)
	}
	for name, c := range map[string]struct{ data, want string }{
		"10 MB":               {strings.Repeat("rubbish\x00\xff", 10<<20/9), "site.yaml: the file has 10485756 bytes; a site file has at most 1048576 (1 MiB)"},
		"binary":              {"name: a\n\xff\xfe", "site.yaml:2: this is not UTF-8 text; save the file as UTF-8"},
		"NUL":                 {"name: a\x00", "site.yaml:1: this is not YAML: control characters are not allowed; check the indentation, colons and quotes here and in the line above"},
		"a list":              {"- a", "site.yaml:1: this is a list, want a map; write KEY: VALUE lines indented below it"},
		"a word":              {"hello", "site.yaml:1: this is text, want a map; write KEY: VALUE lines indented below it"},
		"alias of itself":     {"nodes: &n\n  - links: *n\n", "nodes[0].links[0].links: unknown key"},
		"alias in itself":     {"clusters: &c\n  - workers: *c\n    name: a", "clusters[0].workers[0].workers: unknown key"},
		"bomb":                {bomb, "site.yaml:1: a: unknown key"},
		"bomb of nodes":       {wideBomb(), "aliases make this file larger than 200000 values; write the values out"},
		"deep":                {strings.Repeat("[", 5000) + strings.Repeat("]", 5000), "site.yaml:1: this is a list, want a map"},
		"key is a map":        {"{a: b}: c", "site.yaml:1: a key must be one word; write KEY: VALUE"},
		"key with a newline":  {"\"a\\nb\": 1", `site.yaml:1: "a\nb": unknown key`},
		"nothing given":       {"nodes:\n", "site.yaml:1: nodes: nothing is given here, want a list; give it or remove the line"},
		"null in a list":      {"nodes:\n  -\n", "site.yaml:2: nodes[0]: nothing is given here, want a map; give it or remove the line"},
		"hidden secret":       {"nodes: [{name: a, bmc: {address: 'ipmi://h', username: u, password: '[redacted]'}}]", "put the secret itself here"},
		"secret of two lines": {"nodes: [{name: a, bmc: {address: 'ipmi://h', username: u, password: \"8642\\n\"}}]", "nodes[0].bmc.password: a secret is one line of printable characters; check its quotes"},
		"number as secret":    {"nodes: [{name: a, bmc: {address: 'ipmi://h', username: u, password: 8642}}]", "nodes[0].bmc.password: this is a number, want text; put it in quotes"},
		"zone":                {"networks: {baremetal: {address: 'fe80::1%eno1'}}", "is not an address"},
		"default range":       {"networks: {provisioning: {address: 172.22.0.50}}", "172.22.0.50 is in the default DHCP range"},
		"default pods":        {"networks: {baremetal: {cidr: 10.0.0.0/8}}", "10.0.0.0/8 overlaps 10.244.0.0/16, the default of appliance.podCIDR; use another network here or there"},
		"node as appliance":   {"nodes: [{name: firstlight, macs: ['52:54:00:00:00:01']}]", `name "firstlight" is already that of appliance.hostname`},
		"proxy with range":    {"networks: {provisioning: {dhcp: {mode: proxy, range: 172.22.0.10-172.22.0.20}}}", "with mode proxy no addresses are given; remove the range"},
		"proxy elsewhere":     {"networks: {bmc: {dhcp: {mode: proxy}}}", "networks.bmc.dhcp.mode: machines are told what to boot on provisioning only; use server or none"},
		"server nowhere":      {"networks: {bmc: {dhcp: {mode: server}}}", "networks.bmc.dhcp: a server needs the network's cidr; add cidr, address and dhcp.range"},
		"server without NIC":  {"networks: {baremetal: {cidr: 10.0.0.0/24, address: 10.0.0.1, dhcp: {range: 10.0.0.10-10.0.0.20}}}", "networks.baremetal.dhcp: a network without its own DHCP server is not detected; add interface or bond"},
		"server unaddressed":  {"networks: {baremetal: {interface: eno1, cidr: 10.0.0.0/24, dhcp: {range: 10.0.0.10-10.0.0.20}}}", "networks.baremetal.dhcp: the appliance cannot answer DHCP on a network where it has no address; add address"},
		"lease of nobody":     {"networks: {baremetal: {cidr: 10.0.0.0/24, dhcp: {lease: 1h}}}", "networks.baremetal.dhcp.lease: with mode none no addresses are given; remove the lease"},
		"large range":         {"networks: {provisioning: {cidr: 172.16.0.0/12, dhcp: {range: 172.17.0.1-172.18.0.1}}}", "range 172.17.0.1-172.18.0.1 has more than 65536 addresses; make it smaller"},
		"short lease":         {"networks: {provisioning: {dhcp: {lease: 1m}}}", "networks.provisioning.dhcp.lease: 1m is out of bounds; use 2m to 720h"},
		"long lease":          {"networks: {provisioning: {dhcp: {lease: 721h}}}", "networks.provisioning.dhcp.lease: 721h is out of bounds; use 2m to 720h"},
		"server elsewhere":    {"networks: {bmc: {cidr: 10.0.0.0/24, address: 10.0.0.1, dhcp: {mode: server}}}", "networks.bmc.dhcp.mode: a server needs addresses to give; add dhcp.range"},
	} {
		t.Run(name, func(t *testing.T) {
			s, problems := Load("site.yaml", []byte(c.data))
			assert.Nil(t, s)
			assert.Contains(t, problems.String(), c.want)
			assert.NotContains(t, problems.String(), "8642")
			assert.LessOrEqual(t, len(problems), yamldoc.MaxProblems+1)
			require.Error(t, problems.Err())
		})
	}
}

// wideBomb is a valid shape whose aliases expand to a million values.
func wideBomb() string {
	var b strings.Builder
	b.WriteString("nodes:\n  - name: a\n    links: &l\n")
	for range 1000 {
		b.WriteString("      - {network: data}\n")
	}
	for i := range 1000 {
		fmt.Fprintf(&b, "  - {name: n%d, macs: [], links: *l}\n", i)
	}
	return b.String()
}

func TestManyProblemsEndWithAWord(t *testing.T) {
	_, problems := Load("site.yaml", []byte(strings.Repeat("- a\n", 3)+"x: 1\n"))
	require.Len(t, problems, 1)
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, "key%d: 1\n", i)
	}
	_, problems = Load("site.yaml", []byte(b.String()))
	require.Len(t, problems, yamldoc.MaxProblems+1)
	assert.Equal(t, "and more problems; correct these first", problems[yamldoc.MaxProblems].Message)
}

// TestARangeHoldsTheNodes: also the default one, and only where addresses are given.
func TestARangeHoldsTheNodes(t *testing.T) {
	nodes := func(n int) string {
		var b strings.Builder
		b.WriteString("nodes:\n")
		for i := range n {
			fmt.Fprintf(&b, "- {name: n%d, macs: ['52:54:00:00:%02x:%02x']}\n", i, i>>8, i&255)
		}
		return b.String()
	}
	for name, c := range map[string]struct {
		text string
		says string
	}{
		"the default is full":       {nodes(91), ""},
		"one more than the default": {nodes(92), "92 nodes boot on this network and the default range 172.22.0.10-172.22.0.100 has 91 addresses"},
		"500":                       {"networks: {provisioning: {interface: eno1}}\n" + nodes(500), "500 nodes boot on this network and the default range"},
		"500 in a larger one":       {"networks: {provisioning: {cidr: 172.22.0.0/22, dhcp: {range: 172.22.0.10-172.22.3.250}}}\n" + nodes(500), ""},
		"another server gives":      {"networks: {provisioning: {dhcp: {mode: none}}}\n" + nodes(500), ""},
	} {
		_, problems := Load("site.yaml", []byte(c.text))
		if c.says == "" {
			assert.Empty(t, problems.String(), name)
			continue
		}
		require.Len(t, problems, 1, name)
		assert.Contains(t, problems[0].Message, c.says, name)
		assert.Contains(t, problems[0].Message, "give a larger one", name)
	}
}

func TestARouterOfIPv6MayBeLinkLocal(t *testing.T) {
	for text, says := range map[string]string{
		"networks: {baremetal: {cidr: '2001:db8::/64', gateway: 'fe80::1'}}\n":                                                                                      "",
		"networks: {baremetal: {cidr: 10.0.0.0/24, gateway: 'fe80::1'}}\n":                                                                                          "fe80::1 is outside 10.0.0.0/24",
		"networks: {baremetal: {cidr: '2001:db8::/64', gateway: '2001:db9::1'}}\n":                                                                                  "is outside",
		"nodes: [{name: a, macs: ['52:54:00:00:00:01'], links: [{network: baremetal, mac: '52:54:00:00:00:01', address: '2001:db8::2/64', gateway: 'fe80::1'}]}]\n": "",
	} {
		_, problems := Load("site.yaml", []byte(text))
		if says == "" {
			assert.Empty(t, problems.String(), text)
		} else {
			assert.Contains(t, problems.String(), says, text)
		}
	}
}

// Nodes of clusters that Cluster API makes are not those of whoever installs nodes by itself.
func TestNodesOfClusterAPIAreLeftToIt(t *testing.T) {
	s, problems := Load("site.yaml", readFile(t, "testdata/valid/full.yaml"))
	require.Empty(t, problems.String())
	s = s.WithDefaults()
	require.Len(t, s.ClustersBy(ByClusterAPI), 1)
	assert.Equal(t, Name("machines"), s.ClustersBy(ByClusterAPI)[0].Name)
	assert.Len(t, s.ClustersBy(ByOperator), 2)

	rest := s.WithoutClusterAPI()
	assert.Equal(t, s.ClustersBy(ByOperator), rest.Clusters)
	assert.Len(t, rest.Nodes, len(s.Nodes)-1)
	for _, n := range rest.Nodes {
		assert.NotEqual(t, Name("node-5"), n.Name)
	}
	assert.Same(t, rest, rest.WithoutClusterAPI())
}
