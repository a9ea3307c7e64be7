package clusterapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/clusters/contract/kubeconfig"
	"firstlight.dev/firstlight/daemon/clusters/contract/probe"
)

// Verifier tries clusters of Cluster API as the installer tries those of Provisionings: pods, a Service and names on
// every node, whenever a cluster has other nodes than at the last time. What it saw is an annotation of the Cluster.
type Verifier struct {
	Log *slog.Logger

	run   func(ctx context.Context, api client.Reader, c clusterv1.Cluster, nodes []string) contract.Verification // in tests
	mu    sync.Mutex
	busy  map[string]bool // by the name of the cluster
	tasks sync.WaitGroup
}

// Paces of the verifier.
const (
	verifyWithin = 10 * time.Minute // one cluster, all of it
	verifyAgain  = 5 * time.Minute  // after a verification that did not pass
)

// Follow begins to try the clusters that are to be tried now, each by itself, and does not wait for them.
func (v *Verifier) Follow(ctx context.Context, api client.Client, all Clusters) {
	for _, c := range all.clusters {
		nodes := nodesOf(&c, all.machines)
		if !isDue(&c, nodes, time.Now()) || !v.begin(c.Name) {
			continue
		}

		v.tasks.Go(func() {
			defer v.end(c.Name)
			if err := v.verify(ctx, api, c, nodes); err != nil && ctx.Err() == nil {
				v.Log.Warn("what came of a cluster's verification is not written", "cluster", c.Name, "error", err)
			}
		})
	}
}

// begin reports whether a cluster is not being tried yet; from now on it is.
func (v *Verifier) begin(cluster string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.busy[cluster] {
		return false
	}
	if v.busy == nil {
		v.busy = map[string]bool{}
	}
	v.busy[cluster] = true
	return true
}

func (v *Verifier) end(cluster string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.busy, cluster)
}

// verify tries a cluster and writes down what was seen.
func (v *Verifier) verify(ctx context.Context, api client.Client, c clusterv1.Cluster, nodes []string) error {
	trying, cancel := context.WithTimeout(ctx, verifyWithin)
	defer cancel()
	run := v.run
	if run == nil {
		run = tryCluster
	}
	seen := run(trying, api, c, nodes)
	if ctx.Err() != nil {
		return ctx.Err()
	}

	v.Log.Info("cluster verified", "cluster", c.Name, "passed", seen.Passed, "text", verificationText(&seen))
	text, err := json.Marshal(seen)
	if err != nil {
		return fmt.Errorf("encode verification: %w", err)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{label.Verification: string(text)},
	}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}

	u := newObject("Cluster")
	u.SetNamespace(c.Namespace)
	u.SetName(c.Name)
	return client.IgnoreNotFound(api.Patch(ctx, u, client.RawPatch(types.MergePatchType, patch)))
}

// tryCluster is one try. A cluster that does not answer has failed a check like any other.
func tryCluster(ctx context.Context, api client.Reader, c clusterv1.Cluster, nodes []string) contract.Verification {
	seen, err := probeCluster(ctx, api, c, nodes)
	if seen != nil {
		return seen.Verification
	}
	return contract.Verification{
		Time:   time.Now().UTC().Truncate(time.Second),
		Nodes:  nodes,
		Checks: []contract.Check{{Name: "API", Message: strings.ReplaceAll(err.Error(), "\n", "; ")}},
	}
}

func probeCluster(ctx context.Context, api client.Reader, c clusterv1.Cluster, nodes []string) (*probe.Verification, error) {
	secret := &corev1.Secret{}
	name := types.NamespacedName{Namespace: c.Namespace, Name: c.Name + "-kubeconfig"}
	if err := api.Get(ctx, name, secret); err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", name.Name, err)
	}
	config, err := kubeconfig.Parse(secret.Data["value"])
	if err != nil {
		return nil, err
	}

	config.QPS, config.Burst, config.Timeout = 50, 100, time.Minute
	config.WarningHandler = rest.NoWarnings{}
	set, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client of cluster %s: %w", c.Name, err)
	}
	workload, err := client.New(config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("make client of cluster %s: %w", c.Name, err)
	}

	return probe.Cluster{
		Client: workload,
		Set:    set,
		Owner:  "firstlight-verifier",
		Nodes:  nodes,
		Ready:  func(have []corev1.Node) error { return checkReady(nodes, have) },
	}.Run(ctx, func(string) {})
}

// checkReady is nil if all nodes are there and Ready.
func checkReady(nodes []string, have []corev1.Node) error {
	var wrong []string
	for _, name := range nodes {
		i := slices.IndexFunc(have, func(n corev1.Node) bool { return n.Name == name })
		if i < 0 {
			wrong = append(wrong, name+" is not there")
			continue
		}
		ready := slices.ContainsFunc(have[i].Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		if !ready {
			wrong = append(wrong, name+" is not Ready")
		}
	}
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	return nil
}

// nodesOf are the names of a cluster's nodes, sorted; nil unless all machines that it asks for run.
func nodesOf(c *clusterv1.Cluster, machines []clusterv1.Machine) (nodes []string) {
	running := 0
	for i := range machines {
		m := &machines[i]
		if m.Namespace != c.Namespace || m.Spec.ClusterName != c.Name {
			continue
		}
		if describeMachine(m, nil).State != status.ClusterReady || m.Status.NodeRef.Name == "" {
			return nil
		}
		running++
		nodes = append(nodes, m.Status.NodeRef.Name)
	}
	if running < replicas(c) {
		return nil
	}
	slices.Sort(nodes)
	return nodes
}

// isDue reports whether a cluster is to be tried: its nodes are others than at the last time, or it did not pass a while
// ago. It is pure.
func isDue(c *clusterv1.Cluster, nodes []string, now time.Time) bool {
	_, isPaused := c.Annotations[clusterv1.PausedAnnotation]
	if len(nodes) == 0 || !c.DeletionTimestamp.IsZero() || isPaused || ptr.Deref(c.Spec.Paused, false) {
		return false
	}
	v := readVerification(c)
	return v == nil || !reflect.DeepEqual(v.Nodes, nodes) || !v.Passed && now.Sub(v.Time) >= verifyAgain
}

// readVerification is the last verification of a cluster; nil if there is none.
func readVerification(c *clusterv1.Cluster) *contract.Verification {
	return contract.ReadVerification([]byte(c.Annotations[label.Verification]))
}

// verificationText is what came of a verification, in one sentence.
func verificationText(v *contract.Verification) string {
	var failed []string
	for _, k := range v.Checks {
		if !k.Passed {
			failed = append(failed, k.Name+": "+k.Message)
		}
	}
	at := v.Time.UTC().Format(time.RFC3339)
	if len(failed) > 0 {
		return fmt.Sprintf("at %s %d of %d checks failed: %s", at, len(failed), len(v.Checks), strings.Join(failed, "; "))
	}
	return fmt.Sprintf("all %d checks passed at %s", len(v.Checks), at)
}
