package site

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCompareNamesWhatDiffers(t *testing.T) {
	load := func(text string) *Site {
		s, problems := Load("site.yaml", []byte(text))
		require.NoError(t, problems.Err(), text)
		return s
	}
	const one = `name: rack-7
nodes:
- {name: a, macs: ["52:54:00:00:00:01"], os: {password: one}}
- {name: b, macs: ["52:54:00:00:00:02"]}
clusters: [{name: edge}]
`
	for _, c := range []struct {
		name, from, to string
		want           []Difference
		consents       []string
	}{
		{"the same, written in another way", one, "# a comment\n" + one, nil, nil},
		{"what is a default anyway", one, one + "verification: {timeout: 60m}\n", nil, nil},
		{"a node more, a node less", one, `name: rack-7
nodes:
- {name: c, macs: ["52:54:00:00:00:03"]}
- {name: b, macs: ["52:54:00:00:00:02"]}
clusters: [{name: edge}]
`, []Difference{{"nodes", "a", Removed, nil}, {"nodes", "c", Added, nil}}, nil},
		{"a secret", one, `name: rack-7
nodes:
- {name: b, macs: ["52:54:00:00:00:02"]}
- {name: a, macs: ["52:54:00:00:00:01"], os: {password: two}}
clusters: [{name: edge}]
`, []Difference{{"nodes", "a", Changed, []string{"os.password"}}}, nil},
		{"for all nodes", one, one + "nodeDefaults: {os: {image: ubuntu-24}, overwrite: true}\n", []Difference{
			{"nodeDefaults", "", Added, nil},
			{"nodes", "a", Changed, []string{"os.image", "overwrite"}},
			{"nodes", "b", Changed, []string{"os.image", "overwrite"}},
		}, []string{"a", "b"}},
		{"other sections", one, `name: rack-8
nodes:
- {name: a, macs: ["52:54:00:00:00:01"], os: {password: one}}
- {name: b, macs: ["52:54:00:00:00:02"]}
clusters: [{name: edge, podCIDR: 10.200.0.0/16}]
access: {console: none}
`, []Difference{
			{"name", "", Changed, []string{}},
			{"appliance", "", Changed, []string{"hostname"}},
			{"access", "", Changed, []string{"console"}},
			{"clusters", "edge", Changed, []string{"podCIDR"}},
		}, nil},
	} {
		assert.Equal(t, c.want, Compare(load(c.from), load(c.to)), c.name)
		assert.Equal(t, c.consents, NewConsents(load(c.from), load(c.to)), c.name)
	}
}

// TestWhoseDataMayBeLostIsAskedAgain: the consent of a name does not go over to another server or another disk.
func TestWhoseDataMayBeLostIsAskedAgain(t *testing.T) {
	load := func(text string) *Site {
		s, problems := Load("site.yaml", []byte(text))
		require.NoError(t, problems.Err(), text)
		return s
	}
	const one = `nodes:
- name: a
  macs: ["52:54:00:00:00:01"]
  bmc: {address: "ipmi://10.0.0.1", username: u, password: p}
  rootDevice: {hctl: "0:0:0:0"}
  overwrite: true
`
	const discovers = "networks: {bmc: {cidr: 10.0.0.0/24}}\nnodeDefaults: {bmc: {username: u, password: p}}\ndiscover: {count: 2}\n"
	granted := strings.Replace(discovers, "nodeDefaults: {", "nodeDefaults: {overwrite: true, ", 1)
	for _, c := range []struct {
		name, from, to string
		want           []string
	}{
		{"the same", one, one, nil},
		{"another password", one, strings.Replace(one, "password: p", "password: q", 1), nil},
		{"another MAC", one, strings.Replace(one, "00:01", "00:02", 1), []string{"a"}},
		{"another BMC", one, strings.Replace(one, "10.0.0.1", "10.0.0.2", 1), []string{"a"}},
		{"another disk", one, strings.Replace(one, "0:0:0:0", "0:0:1:0", 1), []string{"a"}},
		{"another disk, without consent", one, strings.NewReplacer("0:0:0:0", "0:0:1:0", "overwrite: true", "overwrite: false").Replace(one), nil},
		{"discovered machines", discovers, granted, []string{"machines that are discovered"}},
		{"as before", granted, granted, nil},
		{"no more", granted, discovers, nil},
		{"discovered from now on", strings.Replace(granted, "discover: {count: 2}\n", "", 1), granted, []string{"machines that are discovered"}},
	} {
		assert.Equal(t, c.want, NewConsents(load(c.from), load(c.to)), c.name)
	}
}
