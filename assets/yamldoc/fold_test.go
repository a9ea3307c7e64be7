package yamldoc

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestProblemsOfOneKindAreFolded(t *testing.T) {
	var ps Problems
	for i := range 500 {
		ps = append(ps,
			Problem{"a.yaml", 10 + 2*i, fmt.Sprintf("nodes[%d].name", i), fmt.Sprintf(`"Node %d" is no name`, i)},
			Problem{"a.yaml", 11 + 2*i, fmt.Sprintf("nodes[%d]", i), "bmc is missing; add it"})
	}
	ps = append(ps, Problem{"a.yaml", 2000, "clusters[0]", "wants 600 nodes"})
	got := ps.Fold()
	assert.Len(t, got, 2*(foldAfter+1)+1)
	assert.Contains(t, got.String(), "a.yaml:16: nodes[].name: and 497 more of this kind, to line 1008\n")
	assert.Contains(t, got.String(), "a.yaml:17: nodes[]: and 497 more of this kind, to line 1009\n")
	assert.Contains(t, got.String(), "a.yaml:2000: clusters[0]: wants 600 nodes")
	assert.Equal(t, ps[:8], ps[:8].Fold(), "four are not worth a line that counts one")
	assert.Empty(t, Problems(nil).Fold())
}

func TestOtherNamesAreKnown(t *testing.T) {
	node, link := []string{"name", "macs", "bootMAC", "bmc", "links"}, []string{"network", "mac", "address", "gateway", "dns"}
	for key, want := range map[string]string{"mac_address": "macs", "mac-address": "macs", "mac": "macs", "ip": "links", "ipmi": "bmc", "nam": "name"} {
		assert.Equal(t, "did you mean "+want+"?", Suggest(key, node), key)
	}
	for key, want := range map[string]string{"mac_address": "mac", "macAddress": "mac", "ip": "address", "ip_address": "address", "nameservers": "dns", "gw": "gateway"} {
		assert.Equal(t, "did you mean "+want+"?", Suggest(key, link), key)
	}
}

func TestOddCharactersAreNamed(t *testing.T) {
	for value, want := range map[string]string{
		"eno1":           `"eno1"`,
		"eno\uff11":      "\"eno\uff11\" (with U+FF11, which is not ASCII)",
		"10.0.0.1\u2010": "\"10.0.0.1\u2010\" (with U+2010, which is not ASCII)",
	} {
		assert.Equal(t, want, Quote(value))
	}
}
