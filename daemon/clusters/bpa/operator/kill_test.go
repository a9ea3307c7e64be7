package operator

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/contract"
)

func replace(s, old, now string) string { return strings.Replace(s, old, now, 1) }

var errKilled = errors.New("killed")

// testKilledAtEveryWrite: a whole life, an installation that fails once, a worker added, one
// taken out, the end, with the operator killed before its first write, then before its
// second, and so on. Each time it must end as if it had never been killed, with no Job made
// twice and no run forgotten.
func testKilledAtEveryWrite(t *testing.T, r *fixture) {
	writes := 0
	r.fatal = func() error { writes++; return nil }
	want := r.life(t, "life")
	total := writes
	require.Greater(t, total, 30, "there was little to be killed at")
	stride := 1
	if r.real == nil {
		stride = 4 // the fake is for seconds
	}
	for at := 1; at <= total; at += stride {
		n := 0
		r.fatal = func() error {
			if n++; n == at {
				return fmt.Errorf("before write %d: %w", at, errKilled)
			}
			return nil
		}
		require.Equal(t, want, r.life(t, fmt.Sprintf("life-%d", at)), "killed at write %d of %d", at, total)
	}
	t.Logf("killed at %d of %d writes", (total+stride-1)/stride, total)
}

// life tells what was run in one cluster's life and what was left.
func (r *fixture) life(t *testing.T, name string) []string {
	for n := 1; n <= 3; n++ {
		r.host(n)
	}
	var story []string
	until := func(phase string) *v1alpha1.Provisioning {
		for range 60 {
			_, err := r.step(name)
			require.True(t, err == nil || errors.Is(err, errKilled) || isRace(err), "%v", err)
			p := &v1alpha1.Provisioning{}
			err = r.api.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, p)
			require.NoError(t, client.IgnoreNotFound(err))
			if p.Status.Phase == phase && (phase == "" || p.Status.ObservedGeneration == p.Generation) {
				return p
			}
		}
		require.Fail(t, "never "+phase, "%s", r.get(name).Status.Message)
		return nil
	}
	// installer does what a Job of the cluster asks, once it is there.
	installer := func(code int32) {
		j := &batchv1.Job{}
		for range 60 {
			if r.api.Get(t.Context(), client.ObjectKey{Namespace: "bpa", Name: kud.JobName(name)}, j) == nil && len(j.Status.Conditions) == 0 {
				break
			}
			_, err := r.step(name)
			require.True(t, err == nil || errors.Is(err, errKilled) || isRace(err), "%v", err)
		}
		run := r.run(name)
		story = append(story, fmt.Sprintf("%s %v attempt %d of %d nodes: %s", run.Action, run.Nodes, run.Attempt, len(run.Members), kud.Inventory(run.Members)))
		require.Equal(t, string(kud.Inventory(run.Members)), r.file(name, contract.FileInventory))
		r.end(name, code, "fatal\n")
	}
	r.apply(provisioning(name, edge))
	installer(1)
	until(v1alpha1.PhaseFailed)
	r.now = r.now.Add(time.Minute)
	installer(0)
	until(v1alpha1.PhaseReady)
	r.apply(provisioning(name, edge+"\n- x: {cpu: 3}"))
	installer(0)
	p := until(v1alpha1.PhaseReady)
	story = append(story, p.Status.NodesReady, strings.Join([]string{r.holder(1), r.holder(2), r.holder(3)}, ","), fmt.Sprint(r.configMap(name)))
	r.apply(provisioning(name, edge))
	installer(0)
	p = until(v1alpha1.PhaseReady)
	story = append(story, p.Status.NodesReady, strings.Join([]string{r.holder(1), r.holder(2), r.holder(3)}, ","), fmt.Sprint(r.configMap(name)))
	require.NoError(t, r.api.Delete(t.Context(), p))
	until("")
	gone(t, r, name)
	story = append(story, r.holder(1)+r.holder(2)+r.holder(3))
	for n := 1; n <= 3; n++ {
		require.NoError(t, r.api.Delete(t.Context(), r.bmh(n)))
	}
	for i := range story {
		story[i] = strings.ReplaceAll(story[i], name, "NAME")
	}
	return story
}

func TestStoryOfALife(t *testing.T) {
	onFake(t, func(t *testing.T, r *fixture) {
		story := strings.Join(r.life(t, "edge"), "\n")
		for _, want := range []string{"install [] attempt 1 of 2 nodes", "install [] attempt 2 of 2 nodes", "add [x] attempt 1 of 3 nodes", "remove [x] attempt 1 of 3 nodes", "3/3", "2/2"} {
			assert.Contains(t, story, want)
		}
	})
}
