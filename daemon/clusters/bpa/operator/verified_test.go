package operator

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"

	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/contract"
)

func TestVerificationAsACondition(t *testing.T) {
	const good = `{"time":"2026-11-20T12:00:00Z","nodes":["m","w"],"checks":[{"name":"nodes Ready","passed":true,"message":"all 2 nodes"},{"name":"DNS","passed":true}]}`
	members := &kud.InstalledCluster{Members: []kud.Node{{Label: "m"}, {Label: "w"}}}
	for _, c := range []struct {
		what, file           string
		record               *kud.InstalledCluster
		status, reason, says string
		checks               int
	}{
		{"nothing yet", "", nil, "Unknown", NotVerified, "has not written", 0},
		{"another installer's", `{"ok":true}`, members, "Unknown", NotVerified, "has not written", 0},
		{"all passed", good, members, "True", "Verified", "all 2 checks passed at 2026-11-20T12:00:00Z on m, w", 2},
		{"before it is recorded", good, nil, "True", "Verified", "on m, w", 2},
		{"a node came later", good, &kud.InstalledCluster{Members: []kud.Node{{Label: "m"}, {Label: "x"}}}, "Unknown", NotVerified, "but x was not part of the cluster then", 2},
		{"one failed", `{"time":"2026-11-20T12:00:00Z","nodes":["m"],"checks":[{"name":"nodes Ready","passed":true},{"name":"DNS","passed":false,"message":"timeout"}]}`,
			members, "False", CheckFailed, "1 of 2 checks failed: DNS: timeout", 2},
	} {
		w := &clusterState{cluster: "edge", dir: "/edge", record: c.record, verification: contract.ReadVerification([]byte(c.file))}
		got := verifiedCondition(w)
		assert.Equal(t, c.status, string(got.Status), c.what)
		assert.Equal(t, c.reason, got.Reason, c.what)
		assert.Contains(t, got.Message, c.says, c.what)
		assert.Len(t, checkStatuses(w.verification), c.checks, c.what)
	}
}

// testVerified: what the installer saw is in the status that the API server keeps.
func testVerified(t *testing.T, r *fixture) {
	r.host(1)
	p := r.installed("edge", "masters:\n- m: {mac-address: '52:54:00:00:01:00'}")
	assert.Equal(t, "Unknown", string(meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionVerified).Status))
	text, err := json.Marshal(contract.Verification{Time: r.now, Nodes: []string{"m"}, Checks: []contract.Check{{Name: "nodes Ready", Passed: true}, {Name: "DNS", Message: "timeout"}}})
	require.NoError(t, err)
	require.NoError(t, r.clusterDir("edge").write(contract.FileVerification, text, 0o644))
	p = r.settle("edge")
	assert.Equal(t, CheckFailed, meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionVerified).Reason)
	require.Len(t, p.Status.Checks, 2)
	assert.Equal(t, "nodes Ready Passed", p.Status.Checks[0].Name+" "+p.Status.Checks[0].Outcome)
	assert.Equal(t, "DNS Failed timeout", p.Status.Checks[1].Name+" "+p.Status.Checks[1].Outcome+" "+p.Status.Checks[1].Message)
	assert.Equal(t, r.now.Unix(), p.Status.Checks[1].Time.Unix())
}
