package operator

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/contract"
)

// TestStatusGolden: what a Provisioning says of itself from its refusal to its kubeconfig, as
// its owner reads it.
func TestStatusGolden(t *testing.T) {
	onFake(t, func(t *testing.T, r *fixture) {
		r.now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
		r.host(1)
		r.host(2, func(b *host) { b.Status.Provisioning.State = metal3api.StateProvisioning })
		r.host(3)
		var got strings.Builder
		show := func(when string) {
			s := r.settle("edge").Status
			for i := range s.Conditions {
				s.Conditions[i].LastTransitionTime = metav1.Time{}
			}
			text, err := yaml.Marshal(s)
			require.NoError(t, err)
			fmt.Fprintf(&got, "--- # %s\n%s", when, strings.ReplaceAll(strings.ReplaceAll(string(text), r.Dir, contract.Dir), "lastTransitionTime: null\n  ", ""))
		}
		r.apply(provisioning("edge", "masters:\n- m: {mac-address: '52:54:00:00:02:00'}\nworkers:\n- w: {cpu: 64}\n- w2: {mac-address: x}"))
		show("a MAC that is none")
		r.apply(provisioning("edge", "masters:\n- m: {mac-address: '52:54:00:00:02:00'}\nworkers:\n- w: {cpu: 64}"))
		show("no host is large enough, another is not ready")
		r.apply(provisioning("edge", "masters:\n- m: {mac-address: '52:54:00:00:02:00'}\nworkers:\n- w: {cpu: 3}"))
		show("a host is waited for")
		r.changeHost(2, func(b *host) { b.Status.Provisioning.State = metal3api.StateProvisioned })
		show("installing")
		r.end("edge", 7, "connecting\nno route to host\n")
		show("failed")
		r.now = r.now.Add(time.Minute)
		r.settle("edge")
		r.end("edge", 0, "")
		show("ready")
		goldentest.Check(t, "testdata/status.yaml", got.String())
	})
}

// TestRandomLives: whatever happens to two clusters and five hosts, in whatever order, with
// the operator killed at random writes: what it says agrees with what is there, and when all
// is well again the cluster comes to what is asked.
func TestRandomLives(t *testing.T) {
	lives := uint64(12)
	if testing.Short() {
		lives = 2
	}
	for seed := range lives {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			onFake(t, func(t *testing.T, r *fixture) { (&chance{fixture: r, Rand: rand.New(rand.NewPCG(seed, 11))}).live() })
		})
	}
}

// chance is a fixture to which things happen.
type chance struct {
	*fixture
	*rand.Rand
}

var both = []string{"a", "b"}

func (r *chance) live() {
	for n := 1; n <= 5; n++ {
		r.host(n)
	}
	for range 40 {
		r.happen(both[r.IntN(2)])
		for _, name := range both {
			r.calm(name)
			r.agree(name)
		}
	}
	r.fatal = nil
	for n := 1; n <= 5; n++ {
		r.changeHost(n, func(b *host) {
			b.Status.Provisioning.State, b.Labels, b.Annotations = metal3api.StateProvisioned, map[string]string{label.Verified: "true"}, nil
		})
	}
	require.NoError(r.t, client.IgnoreNotFound(r.api.Delete(r.t.Context(), &v1alpha1.Provisioning{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"}})))
	r.calm("b")
	r.ask("a", 2)
	for range 12 {
		if r.calm("a"); r.get("a").Status.Phase == v1alpha1.PhaseReady {
			break
		}
		r.finish("a", 0)
		r.now = r.now.Add(time.Hour)
	}
	r.agree("a")
	p := r.get("a")
	assert.Equal(r.t, v1alpha1.PhaseReady, p.Status.Phase, "%s", p.Status.Message)
	assert.Equal(r.t, "3/3", p.Status.NodesReady)
}

// ask makes or edits a cluster: a master by its MAC and some workers.
func (r *chance) ask(name string, workers int) {
	spec := fmt.Sprintf("masters:\n- m: {mac-address: '%s'}\nworkers:\n- m:\n", mac(slices.Index(both, name)+1, 0))
	for i := range workers {
		spec += fmt.Sprintf("- w%d: {cpu: 1}\n", i)
	}
	r.apply(provisioning(name, spec))
}

// happen lets one thing happen.
func (r *chance) happen(name string) {
	n := 1 + r.IntN(5)
	switch r.IntN(10) {
	case 0, 1:
		r.ask(name, r.IntN(3))
	case 2, 3:
		r.finish(name, 0)
	case 4:
		r.finish(name, int32(1+r.IntN(2)))
	case 5:
		r.now = r.now.Add(time.Hour)
	case 6:
		state := []metal3api.ProvisioningState{metal3api.StateProvisioned, metal3api.StateProvisioned, metal3api.StateDeprovisioning}[r.IntN(3)]
		r.changeHost(n, func(b *host) { b.Status.Provisioning.State = state })
	case 7:
		r.changeHost(n, func(b *host) { b.Labels = []map[string]string{nil, {label.Verified: "true"}}[r.IntN(2)] })
	case 8:
		o := []client.Object{&batchv1.Job{}, &v1alpha1.Provisioning{}}[r.IntN(2)]
		o.SetNamespace("default")
		o.SetName(name)
		if _, job := o.(*batchv1.Job); job {
			o.SetNamespace("bpa")
			o.SetName(kud.JobName(name))
		}
		require.NoError(r.t, client.IgnoreNotFound(r.api.Delete(r.t.Context(), o)))
	case 9:
		at := 1 + r.IntN(6)
		r.fatal = func() error {
			if at--; at == 0 {
				return errKilled
			}
			return nil
		}
	}
}

// finish ends the cluster's Job, if one runs.
func (r *chance) finish(name string, code int32) {
	j := &batchv1.Job{}
	if r.api.Get(r.t.Context(), client.ObjectKey{Namespace: "bpa", Name: kud.JobName(name)}, j) == nil && len(j.Status.Conditions) == 0 {
		if code != 0 { // it may have come so far that some nodes are Ready
			var ready []string
			for _, m := range r.run(name).Members {
				if r.IntN(3) > 0 {
					ready = append(ready, m.Label)
				}
			}
			text, err := json.Marshal(contract.Progress{Ready: ready})
			require.NoError(r.t, err)
			require.NoError(r.t, r.clusterDir(name).write(contract.FileProgress, text, 0o644))
			require.NoError(r.t, r.clusterDir(name).write(contract.FileKubeconfig, []byte("kubeconfig of "+name), 0o600))
		}
		r.end(name, code, "said\n")
	}
}

// calm looks until the operator would wait; it is started anew whenever it is killed.
func (r *chance) calm(name string) {
	for range 40 {
		result, err := r.step(name)
		if err == nil && (result.RequeueAfter == 0 || result.RequeueAfter >= time.Second) {
			return
		}
	}
	require.Fail(r.t, "the operator does not come to rest", name)
}

// agree compares what is said with what is there.
func (r *chance) agree(name string) {
	p := &v1alpha1.Provisioning{}
	if r.api.Get(r.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, p) != nil {
		for n := 1; n <= 5; n++ {
			require.NotContains(r.t, r.holder(n), "default/"+name, "a host is held for nobody")
		}
		return
	}
	is := ready(p).Status == metav1.ConditionTrue
	require.Equal(r.t, is, p.Status.Phase == v1alpha1.PhaseReady, p.Status.Message)
	record, err := r.clusterDir(name).readInstalled()
	require.NoError(r.t, err)
	installed := 0
	for _, n := range p.Status.Nodes {
		if n.State == v1alpha1.NodeInstalled {
			installed++
		}
	}
	require.True(r.t, strings.HasPrefix(p.Status.NodesReady, fmt.Sprint(installed)+"/"), p.Status.NodesReady)
	if record == nil {
		require.False(r.t, is, "ready, and nothing is recorded")
		return
	}
	for _, m := range record.Members {
		at := int(m.Host[len(m.Host)-1] - '0')
		require.Equal(r.t, "Provisioning default/"+name+" "+m.Label, r.holder(at), "a host in service is not held")
		if is {
			require.Equal(r.t, m.Address.String(), r.configMap(name)[map[bool]string{true: "MASTER_", false: "WORKER_"}[m.Master]+m.Label])
		}
	}
	if is {
		require.Len(r.t, record.Members, len(p.Status.Nodes))
		require.NotEmpty(r.t, r.file(name, contract.FileKubeconfig))
	}
}
