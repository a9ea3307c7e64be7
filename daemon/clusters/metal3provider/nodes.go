package metal3provider

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/contract/kubeconfig"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/providerid"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
)

const labelCluster = clusterv1.ClusterNameLabel

// Ends of the names of Secrets that are rendered for a Metal3Machine.
const (
	suffixMetaData    = "-metadata"
	suffixNetworkData = "-networkdata"
)

// soonest is how soon a Node is looked for again.
const soonest = 2 * time.Second

// nodePause is after what time a Node is looked for again that was not there: a Node is no event of this API server. It
// is a twentieth of the time that its host has been provisioned for, so that no Node is found much later than it came,
// and one that does not come is asked for as seldom as everything else. It is pure.
func nodePause(h *host, now time.Time) time.Duration {
	provisioned := h.Status.OperationHistory.Provision.End
	if provisioned.IsZero() {
		return lookAgain
	}
	return min(max(now.Sub(provisioned.Time)/20, soonest), lookAgain)
}

// findNode gives a machine whose host is provisioned its providerID, and its Node the same.
func (r *Machines) findNode(ctx context.Context, m *machine, s surroundings, h *host) (reconcile.Result, error) {
	v := verdict{Type: v1beta2.ConditionHostProvisioned, Reason: v1beta2.ReasonWaitingForNode}
	again := reconcile.Result{RequeueAfter: nodePause(h, r.Now())}
	workload, err := r.Workload(ctx, key(s.cluster))
	if err != nil {
		v.Message = fmt.Sprintf("the API of cluster %s: %v", s.cluster.Name, err)
		r.set(m, v)
		return again, nil
	}

	var nodes corev1.NodeList
	if err := workload.List(ctx, &nodes); err != nil {
		v.Message = fmt.Sprintf("the API of cluster %s: list Nodes: %v", s.cluster.Name, err)
		r.set(m, v)
		return again, nil
	}

	d := providerid.Decide(idMachine(m, s, h), idNodes(nodes.Items))
	if d.ProviderID == "" {
		v.Message = fmt.Sprintf("host %s is provisioned; %s", h.Name, d.Sentence)
		r.set(m, v)
		return again, nil
	}

	if err := r.write(ctx, m, func(m *machine) { m.Spec.ProviderID = d.ProviderID }); err != nil {
		return reconcile.Result{}, err
	}
	if d.Node != "" {
		if err := setProviderID(ctx, workload, d.Node, d.ProviderID); err != nil {
			return reconcile.Result{}, err
		}
	}

	m.Status.Initialization.Provisioned = ptr.To(true)
	r.set(m, verdict{Type: v1beta2.ConditionHostProvisioned, Holds: true, Reason: v1beta2.ReasonHostProvisioned})
	return reconcile.Result{}, nil
}

func setProviderID(ctx context.Context, workload client.Client, node, id string) error {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	patch := client.RawPatch(types.StrategicMergePatchType, fmt.Appendf(nil, `{"spec":{"providerID":%q}}`, id))
	if err := workload.Patch(ctx, n, patch); err != nil {
		// An error of the cluster's own API server is no refusal of this appliance's.
		return fmt.Errorf("give Node %s its providerID: %v", node, err)
	}
	return nil
}

// idMachine is a machine as its providerID depends on it.
func idMachine(m *machine, s surroundings, h *host) providerid.Machine {
	id := providerid.Machine{
		Namespace:     m.Namespace,
		Host:          h.Name,
		HostUID:       string(h.UID),
		Name:          m.Name,
		ProviderID:    m.Spec.ProviderID,
		Format:        s.infra.Annotations[label.ProviderIDFormat],
		CloudProvider: ptr.Deref(s.infra.Spec.CloudProviderEnabled, false),
		OwnData:       s.machine.Spec.Bootstrap.ConfigRef.Name == "",
	}
	for _, a := range m.Status.Addresses {
		if a.Type == string(clusterv1.MachineHostName) {
			id.Hostnames = append(id.Hostnames, a.Address)
		}
	}
	return id
}

func idNodes(nodes []corev1.Node) []providerid.Node {
	all := make([]providerid.Node, 0, len(nodes))
	for i := range nodes {
		all = append(all, providerid.Node{
			Name:       nodes[i].Name,
			ProviderID: nodes[i].Spec.ProviderID,
			UUID:       nodes[i].Labels[providerid.LabelUUID],
			Hostname:   nodes[i].Labels[corev1.LabelHostname],
		})
	}
	return all
}

// Workloads makes clients of clusters from the Secrets that their control planes write. A client is kept as long as its
// Secret is the same.
type Workloads struct {
	Reader client.Reader

	mu      sync.Mutex
	clients map[types.NamespacedName]workload
}

type workload struct {
	version string // of the Secret
	client  client.Client
}

// workloadTimeout is how long a cluster's API may take to answer: one that is down keeps no other cluster waiting.
const workloadTimeout = 10 * time.Second

// Client is that of a Cluster.
func (w *Workloads) Client(ctx context.Context, cluster types.NamespacedName) (client.Client, error) {
	secret := &corev1.Secret{}
	name := types.NamespacedName{Namespace: cluster.Namespace, Name: cluster.Name + "-kubeconfig"}
	err := w.Reader.Get(ctx, name, secret)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no Secret %s yet", name.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", name.Name, err)
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	if had, ok := w.clients[cluster]; ok && had.version == secret.ResourceVersion {
		return had.client, nil
	}

	config, err := kubeconfig.Parse(secret.Data["value"])
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of Secret %s is not used: %w", name.Name, err)
	}
	config.Timeout = workloadTimeout

	c, err := client.New(config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("reach cluster %s: %w", cluster.Name, err)
	}
	if w.clients == nil {
		w.clients = map[types.NamespacedName]workload{}
	}
	w.clients[cluster] = workload{version: secret.ResourceVersion, client: c}

	return c, nil
}
