package workload

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"firstlight.dev/firstlight/daemon/addons/chain/counters"
)

// TestRatesAreDifferences of two readings, and none where a difference says nothing.
func TestRatesAreDifferences(t *testing.T) {
	at := func(second int, packets, bytes float64) Hop {
		return Hop{Began: "a", Time: now.Add(time.Duration(second) * time.Second), Counters: map[string]float64{
			counters.SentPackets: packets, counters.SentBytes: bytes,
		}}
	}
	const again = "its counters began again at zero since the last reading"
	for _, c := range []struct {
		name          string
		before, after Hop
		want          Rates
	}{
		{"it grows", at(0, 1000, 64_000), at(5, 3500, 224_000), Rates{Over: 5 * time.Second, PerSecond: map[string]float64{
			counters.SentPackets: 500, counters.SentBytes: 32_000,
		}}},
		{"nothing passes", at(0, 1000, 64_000), at(5, 1000, 64_000), Rates{Over: 5 * time.Second, PerSecond: map[string]float64{
			counters.SentPackets: 0, counters.SentBytes: 0,
		}}},
		{"nobody looked for a minute", at(0, 0, 0), at(60, 30, 60), Rates{Over: time.Minute, PerSecond: map[string]float64{
			counters.SentPackets: 0.5, counters.SentBytes: 1,
		}}},
		{"the first reading", Hop{}, at(5, 1, 64), Rates{Unknown: "it was read once, and a rate takes two readings"}},
		{"it was silent before", Hop{Error: "timeout"}, at(5, 1, 64), Rates{Unknown: "it was read once, and a rate takes two readings"}},
		{"it is silent now", at(0, 1, 64), Hop{Error: "timeout"}, Rates{Unknown: "timeout"}},
		{"it counts less than before", at(0, 1000, 64_000), at(5, 10, 640), Rates{Unknown: again}},
		{"one counter is less", at(0, 1000, 64_000), at(5, 1001, 640), Rates{Unknown: again}},
		{"a clock that was set back", at(5, 1, 64), at(0, 2, 128), Rates{Unknown: "the clock was set back since the last reading"}},
	} {
		assert.Equal(t, c.want, c.after.RatesSince(c.before), c.name)
	}

	// It was restarted, or its rules were changed, and has counted more since than before.
	after := at(5, 5000, 320_000)
	after.Began = "b"
	assert.Equal(t, Rates{Unknown: again}, after.RatesSince(at(0, 1000, 64_000)))

	// An add-on of before counts no bytes.
	before := at(0, 1000, 0)
	delete(before.Counters, counters.SentBytes)
	assert.Equal(t, map[string]float64{counters.SentPackets: 100}, at(5, 1500, 64).RatesSince(before).PerSecond)
}

// chainPod is a pod that runs as a part of a chain.
func chainPod(part, name string, minute int) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "service-chain", Name: name, Labels: map[string]string{"app": part}, UID: types.UID("uid-" + name),
			CreationTimestamp: metav1.NewTime(now.Add(time.Duration(minute) * time.Minute)),
		},
		Spec: corev1.PodSpec{NodeName: "edge-1", Containers: []corev1.Container{{Name: part}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
			{Name: part, Ready: true, RestartCount: 2},
		}},
	}
}

// serveChain answers what a cluster with a chain does: its pods, and what they count.
func serveChain(s *apiServer, pods map[string][]corev1.Pod, says map[string]string) {
	next := s.Config.Handler
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for namespace, all := range pods {
			if r.URL.Path == "/api/v1/namespaces/"+namespace+"/pods" {
				s.pods.Items = all
				r.URL.Path = "/api/v1/pods"
				next.ServeHTTP(w, r)
				return
			}
		}
		name, isProxy := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/service-chain/pods/")
		text, isThere := says[strings.TrimSuffix(name, "/proxy/metrics")]
		switch {
		case !isProxy:
			next.ServeHTTP(w, r)
		case !isThere:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":503,`+
				`"message":"error trying to reach service: dial tcp 10.244.0.9:8080: connect: connection refused"}`)
		default:
			w.Header().Set("Content-Type", "text/plain")
			fmt.Fprint(w, text)
		}
	})
}

// TestAChainIsReadPartByPart: in their order, each with what it counts; one that does not answer takes nothing from the
// others.
func TestAChainIsReadPartByPart(t *testing.T) {
	s := newAPIServer(t)
	serveChain(s, map[string][]corev1.Pod{
		"service-chain": {
			chainPod("sink", "sink-1", 0), chainPod("firewall", "firewall-2", 9), chainPod("firewall", "firewall-1", 0),
			chainPod("generator", "generator-1", 0), chainPod("other", "other", 0),
		},
		"service-chain-ovn4nfv": nil,
	}, map[string]string{
		"generator-1": "# TYPE chain_sent_packets_total counter\nchain_sent_packets_total 1000\nchain_sent_bytes_total NaN\n" +
			"go_goroutines 8\n",
		"firewall-2": "# TYPE chain_forwarded_packets_total counter\nchain_forwarded_packets_total 900\n" +
			"# TYPE chain_rules_changed_timestamp_seconds gauge\nchain_rules_changed_timestamp_seconds 1.7e+09\n" +
			"chain_rules_refused 1\nchain_rule_packets_total{number=\"1\",rule=\"x\"} 7\n",
	})
	a := asker()
	a.Now = func() time.Time { return now }
	all, err := a.AskChains(t.Context(), newKubeconfig(t, s))
	require.NoError(t, err)
	require.Len(t, all, 1)
	assert.Equal(t, "service-chain", all[0].Namespace)
	hops := all[0].Hops
	require.Len(t, hops, 3)

	assert.Equal(t, Hop{
		Part: "generator", Pod: hops[0].Pod, Time: now, Began: "uid-generator-1 2 0",
		Counters: map[string]float64{"chain_sent_packets_total": 1000},
	}, hops[0])
	assert.Equal(t, []string{"generator-1", "edge-1", "Running"}, []string{hops[0].Pod.Name, hops[0].Pod.Node, hops[0].Pod.State})
	assert.Equal(t, Hop{
		Part: "firewall", Pod: hops[1].Pod, Time: now, Began: "uid-firewall-2 2 1.7e+09", RulesRefused: true,
		Counters: map[string]float64{"chain_forwarded_packets_total": 900},
	}, hops[1])
	assert.Equal(t, "firewall-2", hops[1].Pod.Name, "the later pod has taken the place of the other one")
	assert.Equal(t, "sink", hops[2].Part)
	assert.Contains(t, hops[2].Error, "connection refused")
	assert.Nil(t, hops[2].Counters)
}

// TestAChainThatIsNotThere: none, one without a part, a part that does not run, and parts that say something else.
func TestAChainThatIsNotThere(t *testing.T) {
	s := newAPIServer(t)
	pods := map[string][]corev1.Pod{"service-chain": nil, "service-chain-ovn4nfv": nil}
	says := map[string]string{"sink-1": "<html>", "firewall-1": strings.Repeat("chain_rules_refused 1\n", maxMetrics/22+1)}
	serveChain(s, pods, says)
	all, err := asker().AskChains(t.Context(), newKubeconfig(t, s))
	require.NoError(t, err)
	assert.Empty(t, all)

	waits := chainPod("generator", "generator-1", 0)
	waits.Status = corev1.PodStatus{Phase: corev1.PodPending}
	pods["service-chain"] = []corev1.Pod{waits, chainPod("sink", "sink-1", 0), chainPod("firewall", "firewall-1", 0)}
	all, err = asker().AskChains(t.Context(), newKubeconfig(t, s))
	require.NoError(t, err)
	assert.Equal(t, "its pod does not run", all[0].Hops[0].Error)
	assert.Equal(t, "Pending", all[0].Hops[0].Pod.State)
	assert.Equal(t, "what it says is longer than 256 KiB", all[0].Hops[1].Error)
	assert.Equal(t, "what it says are no metrics", all[0].Hops[2].Error)

	pods["service-chain"] = pods["service-chain"][:1]
	all, err = asker().AskChains(t.Context(), newKubeconfig(t, s))
	require.NoError(t, err)
	assert.Equal(t, "it has no pod", all[0].Hops[2].Error)

	s.refuses = "/api/v1/pods"
	_, err = asker().AskChains(t.Context(), newKubeconfig(t, s))
	assert.ErrorContains(t, err, "etcd is gone")
}
