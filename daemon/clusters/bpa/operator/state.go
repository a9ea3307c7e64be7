package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/clusters/bpa/address"
	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/bpa/match"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/clusters/contract/kubeconfig"
)

// clusterState is all that is looked at for one Provisioning.
type clusterState struct {
	cr      *v1alpha1.Provisioning
	cluster string
	owner   string // as claims name it
	virtlet bool
	now     time.Time
	dir     clusterDir
	plugins plugins

	nameOwner string // the other Provisioning that has this cluster's name
	renamed   string // the name that the label says now, of a cluster that has another already
	hosts     *match.Hosts
	bmh       map[string]*metal3api.BareMetalHost // by namespace/name; from the cache, read only
	vm        map[string]address.Host             // virtual machines
	leases    address.Leases

	record       *kud.InstalledCluster
	job          *batchv1.Job // nil if there is none, or it is not ours
	rejoining    []string     // workers of it with another system than the last run found (noteReinstalled)
	emptied      []string     // control planes, likewise
	orphan       bool         // that Job was made for a Provisioning of this name that is no more
	run          kud.Run      // of that Job
	outcome      kud.Outcome
	pods         []corev1.Pod
	config       []byte                 // the kubeconfig that the installer left
	refusal      string                 // why that is not handed out; ""
	verification *contract.Verification // of the cluster, the last that the installer wrote down; nil if there is none
	rotation     contract.Rotation      // of its authorities, as the installer left it
	logins       map[string]string      // of nodes that the appliance's key was brought to just now
}

// host is the BareMetalHost of a member; nil if that is a virtual machine, or gone.
func (w *clusterState) host(m kud.Node) *metal3api.BareMetalHost {
	if w.virtlet {
		return nil
	}
	return w.bmh[m.Host]
}

// isRecorded tells whether what the Job did is in the record.
func (w *clusterState) isRecorded() bool {
	return w.job != nil && w.record != nil && w.record.Job == string(w.job.UID)
}

func (r *Provisionings) observe(ctx context.Context, cr *v1alpha1.Provisioning) (*clusterState, error) {
	w := &clusterState{
		cr:      cr,
		cluster: v1alpha1.ClusterOf(cr),
		owner:   ownerName(cr.Namespace, cr.Name),
		now:     r.Now(),
		virtlet: cr.Labels[v1alpha1.LabelClusterType] == v1alpha1.VirtletVM,
		plugins: choosePlugins(cr.Spec, r.AddOns),
	}
	if old := cr.Status.Cluster; old != "" && old != w.cluster {
		has, err := r.hasCluster(ctx, cr, old)
		if err != nil {
			return nil, err
		}
		if has {
			w.cluster, w.renamed = old, w.cluster
		}
	}

	w.dir = r.clusterDir(w.cluster)
	var others v1alpha1.ProvisioningList
	err := r.Client.List(ctx, &others)
	if err != nil {
		return nil, fmt.Errorf("list Provisionings: %w", err)
	}
	if w.record, err = w.dir.readInstalled(); err != nil {
		return nil, err
	}

	w.nameOwner = sameName(cr, w.cluster, w.record, others.Items)
	if err := r.observeHosts(ctx, w, others.Items); err != nil {
		return nil, err
	}

	if w.virtlet {
		if err := r.observePods(ctx, w); err != nil {
			return nil, err
		}
	}

	if err := r.observeLeases(w); err != nil {
		return nil, err
	}

	if w.nameOwner != "" { // its files and its Job are the other's
		w.record = nil
		return w, nil
	}
	w.noteReinstalled()
	if w.config, err = w.dir.read(contract.FileKubeconfig); err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	if err := kubeconfig.Check(w.config); err != nil { // it comes from a node, which is its owner's
		w.config, w.refusal = nil, err.Error()
	}

	text, err := w.dir.read(contract.FileVerification)
	if err != nil {
		return nil, fmt.Errorf("read verification: %w", err)
	}

	w.verification = contract.ReadVerification(text)
	if text, err = w.dir.read(contract.FileRotation); err != nil {
		return nil, fmt.Errorf("read how far the rotation is: %w", err)
	}
	w.rotation = contract.ReadRotation(text)
	return w, r.observeJob(ctx, w)
}

// observeLeases reads the leases of servers. A virtual machine has its pod's address and no other, as in ICN.
func (r *Provisionings) observeLeases(w *clusterState) error {
	if w.virtlet {
		return nil
	}

	text, err := os.ReadFile(r.LeaseFile)
	if err == nil {
		w.leases = address.ParseISC(text)
	} else if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read leases: %w", err)
	}

	return nil
}

// sameName finds the other Provisioning that has this cluster's name: the one that the record
// names, else one that has claimed hosts, else the oldest.
func sameName(
	cr *v1alpha1.Provisioning,
	cluster string,
	record *kud.InstalledCluster,
	all []v1alpha1.Provisioning,
) string {
	key := func(p *v1alpha1.Provisioning) string { return p.Namespace + "/" + p.Name }
	first := cr
	for i := range all {
		o := &all[i]
		if o.UID == cr.UID || v1alpha1.ClusterOf(o) != cluster && o.Status.Cluster != cluster {
			continue
		}
		if record != nil && record.Provisioning == key(o) {
			return key(o)
		}

		if cmp.Or(
			claimRank(o)-claimRank(first), o.CreationTimestamp.Compare(first.CreationTimestamp.Time),
			strings.Compare(key(o), key(first)),
		) < 0 {
			first = o
		}
	}

	if first == cr || record != nil && record.Provisioning == key(cr) {
		return ""
	}

	return key(first)
}

// claimRank is 0 for a Provisioning that has hosts, 1 for any other.
func claimRank(p *v1alpha1.Provisioning) int {
	if slices.ContainsFunc(
		p.Status.Nodes, func(n v1alpha1.NodeStatus) bool { return n.State != v1alpha1.NodeWaiting },
	) {
		return 0
	}
	return 1
}

// hasCluster tells whether a Provisioning's cluster has been begun under a name.
func (r *Provisionings) hasCluster(ctx context.Context, cr *v1alpha1.Provisioning, name string) (bool, error) {
	record, err := r.clusterDir(name).readInstalled()
	if err != nil || record != nil && record.Provisioning == cr.Namespace+"/"+cr.Name {
		return record != nil, err
	}

	var job batchv1.Job
	err = r.Reader.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: kud.JobName(name)}, &job)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}

	run, ours := kud.RunOf(&job)
	return ours && run.UID == string(cr.UID), nil
}

func (r *Provisionings) observeHosts(ctx context.Context, w *clusterState, others []v1alpha1.Provisioning) error {
	var list metal3api.BareMetalHostList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list hosts: %w", err)
	}

	macs, names := pinnedByOthers(w.cr, others)
	facts := make([]match.Host, len(list.Items))
	w.bmh = make(map[string]*metal3api.BareMetalHost, len(list.Items))
	for i := range list.Items {
		b := &list.Items[i]
		f := hostFacts(b)
		f.PinnedBy = names[b.Name]
		for _, mac := range f.MACs {
			if by := macs[mac]; by != "" {
				f.PinnedBy = by
			}
		}

		facts[i], w.bmh[f.Name] = f, b
	}

	w.hosts = match.NewHosts(facts)
	return nil
}

// pinnedByOthers are the MACs and the hosts' names that other Provisionings ask for: who asks for any
// host does not get these.
func pinnedByOthers(cr *v1alpha1.Provisioning, others []v1alpha1.Provisioning) (macs, names map[string]string) {
	macs, names = map[string]string{}, map[string]string{}
	for i := range others {
		o := &others[i]
		if o.UID == cr.UID || !o.DeletionTimestamp.IsZero() {
			continue
		}
		for _, item := range slices.Concat(o.Spec.Masters, o.Spec.Workers) {
			for _, body := range item {
				if body == nil {
					continue
				}
				if mac, err := site.ParseMAC(body.MACAddress); err == nil {
					macs[string(mac)] = ownerName(o.Namespace, o.Name)
				}
				if body.Host != "" {
					names[body.Host] = ownerName(o.Namespace, o.Name)
				}
			}
		}
	}
	return macs, names
}

// observePods takes virtual machines for hosts. Nothing is written on a pod: who has which is
// in the status of the other Provisionings, read from the API itself.
func (r *Provisionings) observePods(ctx context.Context, w *clusterState) error {
	var pods corev1.PodList
	if err := r.Reader.List(ctx, &pods); err != nil {
		return fmt.Errorf("list pods: %w", err)
	}

	var others v1alpha1.ProvisioningList
	if err := r.Reader.List(
		ctx, &others, client.MatchingLabels{v1alpha1.LabelClusterType: v1alpha1.VirtletVM},
	); err != nil {
		return fmt.Errorf("list Provisionings: %w", err)
	}

	claims := map[string]match.Claim{}
	for _, o := range others.Items {
		for _, n := range o.Status.Nodes {
			if n.State != v1alpha1.NodeWaiting {
				claims[n.Host] = match.Claim{Owner: ownerName(o.Namespace, o.Name), Node: n.Name}
			}
		}
	}

	w.vm = map[string]address.Host{}
	var facts []match.Host
	for i := range pods.Items {
		if f, d, ok := virtualMachine(&pods.Items[i]); ok {
			f.Claim = claims[f.Name]
			facts, w.vm[f.Name] = append(facts, f), d
		}
	}

	w.hosts = match.NewHosts(facts)
	return nil
}

func (r *Provisionings) observeJob(ctx context.Context, w *clusterState) error {
	var job batchv1.Job
	err := r.Reader.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: kud.JobName(w.cluster)}, &job)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("read Job: %w", err)
	}

	run, ours := kud.RunOf(&job)
	if !ours {
		return fmt.Errorf(
			"job %s/%s is not the operator's; remove it: kubectl -n %s delete job %s", job.Namespace, job.Name,
			job.Namespace, job.Name,
		)
	}
	if w.pods, err = r.jobPods(ctx, w); err != nil {
		return err
	}

	w.job, w.run, w.outcome = &job, run, kud.OutcomeOf(&job, w.pods)
	w.orphan = run.UID != string(w.cr.UID)
	return nil
}

func (r *Provisionings) jobPods(ctx context.Context, w *clusterState) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := r.Reader.List(
		ctx, &pods, client.InNamespace(r.Namespace),
		client.MatchingLabels{batchv1.JobNameLabel: kud.JobName(w.cluster)},
	)
	if err != nil {
		return nil, fmt.Errorf("list pods of Job: %w", err)
	}

	return pods.Items, nil
}
