package operator

import (
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/daemon/clusters/bpa/software"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
)

// TestPlanOfSoftware: a node gets the packages of its roles, one with both roles each package
// once.
func TestPlanOfSoftware(t *testing.T) {
	var s v1alpha1.SoftwareSpec
	require.NoError(t, yaml.Unmarshal([]byte("masterSoftware: [htop, jq: {version: '1.6'}]\nworkerSoftware: [curl, jq]"), &s))
	got, err := planTargets(s, map[string]string{"MASTER_m": "10.0.0.1", "WORKER_m": "10.0.0.1", "MASTER_k": "10.0.0.2", "WORKER_w": "2001:db8::3", "note": "of nobody"})
	require.NoError(t, err)
	htop, jq, curl := software.Package{Name: "htop"}, software.Package{Name: "jq", Version: "1.6"}, software.Package{Name: "curl"}
	var said []string
	for _, n := range got {
		said = append(said, n.name+" "+n.addr.String())
	}
	assert.Equal(t, []string{"k 10.0.0.2", "m 10.0.0.1", "w 2001:db8::3"}, said)
	assert.Equal(t, []software.Package{htop, jq}, got[0].packages)
	assert.Equal(t, []software.Package{htop, jq, curl}, got[1].packages)
	assert.Equal(t, []software.Package{curl, {Name: "jq"}}, got[2].packages)
	_, err = planTargets(s, map[string]string{"MASTER_m": "somewhere"})
	assert.ErrorContains(t, err, `node m: "somewhere" is not an address`)
}

// FuzzPlan: whatever a Software and a ConfigMap say, what comes out are words that a script
// may hold, each package once for a node, and always the same.
func FuzzPlan(f *testing.F) {
	f.Add("masterSoftware: [htop, jq: {version: '1.6'}]\nworkerSoftware: [curl, {jq: {}, b+: {version: '1:2~3'}}]", "m", "10.0.0.1")
	f.Add("masterSoftware: ['a; reboot', {x: null}, 7, [y]]", "", "::1%eth0")
	word := regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9+.~:-]*$`)
	f.Fuzz(func(t *testing.T, text, label, address string) {
		var s v1alpha1.SoftwareSpec
		if yaml.Unmarshal([]byte(text), &s) != nil {
			return
		}
		nodes := map[string]string{"MASTER_" + label: address, "WORKER_" + label: address, "WORKER_w": "10.0.0.2"}
		all, err := planTargets(s, nodes)
		if err != nil {
			return
		}
		again, err := planTargets(s, nodes)
		if err != nil || !slices.EqualFunc(all, again, func(a, b target) bool {
			return a.name == b.name && a.addr == b.addr && slices.Equal(a.packages, b.packages)
		}) {
			t.Errorf("%v is %v the second time: %v", all, again, err)
		}
		for _, n := range all {
			seen := map[string]bool{}
			for _, p := range n.packages {
				if seen[p.Name] || !word.MatchString(p.Name) || p.Version != "" && !word.MatchString(p.Version) {
					t.Errorf("node %q: package %q twice, or no word: %q", n.name, p.Name, p.Version)
				}
				seen[p.Name] = true
			}
		}
	})
}
