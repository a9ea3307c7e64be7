package operator

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"firstlight.dev/firstlight/assets/excerpt"
	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/bpa/software"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/engine/ctrlmanager"
	"firstlight.dev/firstlight/daemon/engine/remote"
)

// Softwares installs what every Software asks for on the nodes of its cluster.
type Softwares struct {
	Config
	Client   client.Client
	Reader   client.Reader
	Recorder events.EventRecorder
	Now      func() time.Time
}

// Reasons of a Software.
const (
	InvalidSoftware     = "InvalidSoftware"
	ClusterNotInstalled = "ClusterNotInstalled"
	NotInstalled        = "NotInstalled"
)

// installTime is how long the packages of one node may take.
const installTime = 20 * time.Minute

// target is one node and what it gets.
type target struct {
	name     string
	addr     netip.Addr
	packages []software.Package
}

// planTargets turns a Software and the nodes of its cluster, as its ConfigMap has them, into targets, by name. It is
// pure; the error says what is wrong with what is asked.
func planTargets(s v1alpha1.SoftwareSpec, nodes map[string]string) ([]target, error) {
	masters, errM := software.List("masterSoftware", s.MasterSoftware)
	workers, errW := software.List("workerSoftware", s.WorkerSoftware)
	for _, err := range []error{errM, errW} {
		if err != nil {
			return nil, err
		}
	}

	lists, addrs := map[string][][]software.Package{}, map[string]netip.Addr{}
	for _, key := range slices.Sorted(maps.Keys(nodes)) { // masters before workers
		for prefix, list := range map[string][]software.Package{"MASTER_": masters, "WORKER_": workers} {
			name, ok := strings.CutPrefix(key, prefix)
			if !ok {
				continue
			}

			addr, err := netip.ParseAddr(nodes[key])
			if err != nil {
				return nil, fmt.Errorf("node %s: %q is not an address", name, nodes[key])
			}

			lists[name], addrs[name] = append(lists[name], list), addr
		}
	}

	var all []target
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		packages, err := software.Merge(lists[name]...)
		if err != nil {
			return nil, fmt.Errorf("node %s: %w", name, err)
		}
		all = append(all, target{name, addrs[name], packages})
	}

	return all, nil
}

// Reconcile installs on all nodes that are not as asked, at once, and waits for them.
func (r *Softwares) Reconcile(ctx context.Context, q reconcile.Request) (reconcile.Result, error) {
	sw := &v1alpha1.Software{}
	if err := r.Reader.Get(ctx, q.NamespacedName, sw); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !sw.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}

	cluster := v1alpha1.ClusterOf(sw)
	status := v1alpha1.SoftwareStatus{
		ObservedGeneration: sw.Generation,
		Cluster:            cluster,
		Conditions:         slices.Clone(sw.Status.Conditions),
	}
	finish := func(phase, reason, message string, wait time.Duration) (reconcile.Result, error) {
		status.Phase, status.Message = phase, excerpt.Line(message)
		meta.SetStatusCondition(
			&status.Conditions, readyCondition(sw.Generation, phase == v1alpha1.PhaseReady, reason, message),
		)
		return reconcile.Result{RequeueAfter: wait}, r.updateStatus(ctx, sw, status)
	}
	p, nodes, err := r.clusterNodes(ctx, sw.Namespace, cluster)
	if err != nil {
		return reconcile.Result{}, err
	}

	targets, err := planTargets(sw.Spec, nodes)
	if err != nil {
		return finish(v1alpha1.PhaseRefused, InvalidSoftware, err.Error(), 0)
	}
	if p == nil {
		return finish(v1alpha1.PhaseWaiting, ClusterNotInstalled, notInstalledSentence(cluster, sw.Namespace), lookSettled)
	}
	if next := sw.Status.Next; next != nil && r.Now().Before(next.Time) && sw.Status.ObservedGeneration == sw.Generation {
		return reconcile.Result{RequeueAfter: next.Sub(r.Now())}, nil
	}

	shell, done, err := r.login(ctx, cluster)
	if err != nil {
		return finish(v1alpha1.PhaseWaiting, NoSSHKey, err.Error(), lookWaiting)
	}
	defer done()

	dir := r.clusterDir(cluster)
	known, err := dir.knownHosts()
	if err != nil {
		return reconcile.Result{}, err
	}

	systems, err := dir.readSystems()
	if err != nil {
		return reconcile.Result{}, err
	}

	attempt := int32(1)
	if sw.Status.ObservedGeneration == sw.Generation {
		attempt = sw.Status.Attempt + 1
	}

	if sw.Status.Phase != v1alpha1.PhaseReady || sw.Status.ObservedGeneration != sw.Generation {
		status.Nodes, status.Attempt = sw.Status.Nodes, attempt-1 // those that have ended
		if _, err := finish(
			v1alpha1.PhaseInstalling, Installing, fmt.Sprintf("asking %d nodes", len(targets)), 0,
		); err != nil {
			return reconcile.Result{}, err
		}
	}

	status.Nodes = r.install(ctx, shell, nodeKeys{dir, known, systems}, v1alpha1.OwnerOf(p), targets)
	if ctx.Err() != nil {
		return reconcile.Result{}, ctx.Err()
	}

	wrong := nodeFaults(status.Nodes)
	status.NodesReady = fmt.Sprintf("%d/%d", len(targets)-len(wrong), len(targets))
	if len(wrong) == 0 {
		return finish(
			v1alpha1.PhaseReady, "Installed", fmt.Sprintf("all packages are on all %d nodes", len(targets)), 0,
		)
	}

	status.Attempt = attempt
	pause := kud.RetryDelay(status.Attempt)
	status.Next = &metav1.Time{Time: r.Now().Add(pause)}
	return finish(
		v1alpha1.PhaseFailed, NotInstalled,
		fmt.Sprintf("%s%s; tried again at %s", missingText(status.Nodes), strings.Join(wrong, "; "),
			status.Next.UTC().Format("15:04:05")), pause,
	)
}

func notInstalledSentence(cluster, namespace string) string {
	const text = "cluster %s is not installed yet: no Provisioning in namespace %s has installed it; see kubectl -n %s get bpa"
	return fmt.Sprintf(text, cluster, namespace, namespace)
}

// clusterNodes are the nodes of a cluster, as its ConfigMap has them, and the Provisioning that installed it; nil if
// none in that namespace has. They are read from the operator's own record: what somebody writes into a namespace says
// nothing about the nodes of another one.
func (r *Softwares) clusterNodes(
	ctx context.Context,
	namespace, cluster string,
) (*v1alpha1.Provisioning, map[string]string, error) {
	record, err := r.clusterDir(cluster).readInstalled()
	if err != nil || record == nil {
		return nil, nil, err
	}

	in, name, _ := strings.Cut(record.Provisioning, "/")
	if in != namespace {
		return nil, nil, nil
	}

	p := &v1alpha1.Provisioning{}
	if err := r.Reader.Get(ctx, client.ObjectKey{Namespace: in, Name: name}, p); err != nil {
		return nil, nil, client.IgnoreNotFound(err)
	}

	return p, nodeAddresses(record), nil
}

// login is how the nodes of a cluster are logged in to: by the cluster's key, or by the appliance's where an older
// appliance installed it. done ends its use.
func (r *Softwares) login(ctx context.Context, cluster string) (shell remote.Shell, done func(), err error) {
	key, err := readClusterKey(ctx, r.Reader, r.Namespace, cluster)
	if err != nil {
		return shell, nil, err
	}

	keys, done, err := r.applianceKeys(ctx)
	switch {
	case err != nil && key == nil:
		return shell, nil, err
	case err != nil: // the cluster's own will do
		keys, done = nil, func() {}
	}

	if key != nil {
		keys = append([]ssh.Signer{key}, keys...)
	}
	if len(keys) == 0 {
		return shell, nil, fmt.Errorf("cluster %s has no log-in to its nodes: there is no Secret %s/%s", cluster, r.Namespace, kud.KeySecret(cluster))
	}

	return remote.Shell{Signer: keys[0], Others: keys[1:], Port: r.SSHPort}, done, nil
}

// install runs the scripts on all nodes at once and returns when the last has ended.
func (r *Softwares) install(
	ctx context.Context,
	shell remote.Shell,
	keys nodeKeys,
	owner string,
	targets []target,
) []v1alpha1.SoftwareNode {
	nodes := make([]v1alpha1.SoftwareNode, len(targets))
	var wg sync.WaitGroup
	for i, t := range targets {
		wg.Go(func() {
			nodes[i] = v1alpha1.SoftwareNode{Name: t.name, Address: t.addr.String()}
			ctx, cancel := context.WithTimeout(ctx, installTime)
			defer cancel()
			key, err := keys.hostKey(ctx, shell, t.addr)
			if err != nil {
				nodes[i].Error = err.Error()
				return
			}

			out, said, err := shell.Run(ctx, t.addr, key, software.Script(owner, t.packages))
			if err != nil {
				nodes[i].Error = keys.hostKeyError(t.addr, err).Error()
				return
			}

			nodes[i].Packages = software.Read(t.packages, out, said)
		})
	}

	wg.Wait()
	return nodes
}

// missingText names, in one sentence, the packages that no repository has; "" if there are none.
func missingText(nodes []v1alpha1.SoftwareNode) string {
	var missing []string
	for _, n := range nodes {
		for _, p := range n.Packages {
			if p.Missing != "" && !slices.Contains(missing, p.Missing) {
				missing = append(missing, p.Missing)
			}
		}
	}
	if len(missing) == 0 {
		return ""
	}

	slices.Sort(missing)
	return fmt.Sprintf("not in the nodes' repositories: %s: upload them (docs/artifacts.md), or take them out here; ",
		strings.Join(missing, ", "))
}

// nodeFaults are what went wrong, one sentence for each node that is not as asked.
func nodeFaults(nodes []v1alpha1.SoftwareNode) []string {
	var all []string
	for _, n := range nodes {
		var wrong []string
		if n.Error != "" {
			wrong = append(wrong, n.Error)
		}

		for _, p := range n.Packages {
			if p.Error != "" {
				wrong = append(wrong, p.Name+": "+p.Error)
			}
		}

		if len(wrong) > 0 {
			all = append(all, "node "+n.Name+": "+strings.Join(wrong, ", "))
		}
	}
	return all
}

func (r *Softwares) updateStatus(ctx context.Context, sw *v1alpha1.Software, status v1alpha1.SoftwareStatus) error {
	if equality.Semantic.DeepEqual(sw.Status, status) {
		return nil
	}

	before := sw.DeepCopy()
	sw.Status = status
	if err := r.Client.Status().Patch(ctx, sw, client.MergeFrom(before)); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("write status: %w", err))
	}

	was, is := meta.FindStatusCondition(
		before.Status.Conditions, v1alpha1.ConditionReady,
	), meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	if was != nil && was.Reason == is.Reason && was.Message == is.Message {
		return nil
	}

	kind := corev1.EventTypeWarning
	if status.Phase == v1alpha1.PhaseReady || status.Phase == v1alpha1.PhaseInstalling {
		kind = corev1.EventTypeNormal
	}

	r.Recorder.Eventf(sw, nil, kind, is.Reason, "Reconcile", "%s", ctrlmanager.TruncateNote(is.Message))
	return nil
}
