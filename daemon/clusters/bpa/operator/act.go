package operator

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/bpa/match"
	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/engine/ctrlmanager"
	"firstlight.dev/firstlight/daemon/engine/remote"
)

// FieldManager owns what the operator writes by server-side apply.
const FieldManager = "bpa-operator"

// act does one step. What keeps it from being done and is for a person to know comes back as
// a problem; an error is tried again soon. Each part of a step may be repeated.
func (r *Provisionings) act(ctx context.Context, w *clusterState, d *decision) error {
	for _, name := range d.release {
		if err := r.release(ctx, w, name); err != nil {
			return err
		}
	}

	if err := r.recordPart(ctx, w); err != nil {
		return err
	}

	switch d.step {
	case stepClaim:
		for _, m := range d.claim {
			if err := r.claim(ctx, w, m); err != nil {
				return err
			}
		}
	case stepStart:
		return r.start(ctx, w, d)
	case stepWatch:
		return r.authorizeLate(ctx, w)
	case stepPause, stepRefused:
		return r.fetchLog(ctx, w)
	case stepRecord:
		if err := r.fetchLog(ctx, w); err != nil {
			return err
		}

		if err := r.markEmptied(ctx, w); err != nil {
			return err
		}
		done := w.run.CompletedRecord(w.cr.Namespace+"/"+w.cr.Name, string(w.job.UID), w.record)
		if err := w.dir.write(contract.FileInstalled, done.Encode(), 0o644); err != nil {
			return err
		}

		w.record = &done
		return r.publishResults(ctx, w)
	case stepClear:
		if err := r.fetchLog(ctx, w); err != nil {
			return err
		}
		_, err := r.removeJob(ctx, w)
		return err
	case stepSettled:
		return r.publishResults(ctx, w)
	}

	return nil
}

// claim writes the claim on a host, if the host is still as it was looked at. With another system in a member's place
// it writes that no run has seen it, which tells it from a host that was restored.
func (r *Provisionings) claim(ctx context.Context, w *clusterState, m kud.Node) error {
	return r.patchHost(ctx, w, m.Host, func(b *host) {
		b.Spec.ConsumerRef = consumerRef(w.cr, m.Label)
		if w.isAnotherSystem(m) && b.Annotations[label.Installed] == "" {
			metav1.SetMetaDataAnnotation(&b.ObjectMeta, label.Installed, w.cluster+"@")
		}
	})
}

// patchHost changes a host, if nobody has since it was read: the API server refuses the
// patch otherwise, and all is looked at again.
func (r *Provisionings) patchHost(ctx context.Context, w *clusterState, name string, change func(*host)) error {
	read := w.bmh[name]
	b := read.DeepCopy()
	change(b)
	if err := r.Client.Patch(
		ctx, b, client.MergeFromWithOptions(read, client.MergeFromWithOptimisticLock{}),
	); err != nil {
		return fmt.Errorf("write host %s: %w", name, err)
	}

	w.bmh[name] = b
	return nil
}

// start makes all that a run needs, then the run.
func (r *Provisionings) start(ctx context.Context, w *clusterState, d *decision) error {
	if gone, err := r.removeJob(ctx, w); !gone || err != nil {
		d.step = stepClear
		return err
	}

	key, own, err := r.ensureKey(ctx, w)
	if err != nil {
		return err
	}
	if d.run.Environment, err = r.provideEnvironment(ctx, w); err != nil {
		return err
	}

	keys, err := r.hostKeys(ctx, w, d.run.Members)
	if err != nil {
		return err
	}
	if problems, err := r.adoptNodes(ctx, w, key, d.run.Members, keys); len(problems) > 0 || err != nil {
		d.holdFor(problems...)
		return err
	}
	if !own {
		if err := r.authorize(ctx, w, key, d.run.Members, keys); err != nil {
			d.holdFor(&match.Problem{Reason: NoSSHKey, Waits: true, Sentence: fmt.Sprintf(
				"%v; wait until the daemon serves it, or put a Secret %s with %s and %s into namespace %s", err, kud.SSHSecret,
				contract.FilePrivateKey, contract.FilePublicKey, w.cr.Namespace,
			)})
			return nil
		}
	}

	if w.record == nil { // or the run would be taken for a good one by what another left
		if err := w.dir.remove(contract.FileKubeconfig, contract.FileVerification); err != nil {
			return err
		}
	}

	if err := w.dir.remove(contract.FileProgress, contract.FileRemoved); err != nil {
		return err
	}
	if err := r.writeInventory(w, d.run.Members, keys); err != nil {
		return err
	}

	if err := w.saveReinstalled(); err != nil {
		return err
	}

	d.run.Clear = w.leftovers(d.run.Members)
	for _, m := range d.run.Members {
		b := w.host(m)
		if b == nil || previousCluster(b) == w.cluster || slices.Contains(w.emptied, m.Label) {
			continue // an emptied one is none of the cluster until a run has ended well
		}
		if err := r.markInstalled(ctx, w, m); err != nil {
			return err
		}
	}

	d.run.Provisioning, d.run.UID = w.cr.Namespace+"/"+w.cr.Name, string(w.cr.UID)
	job, err := d.run.Job(r.Namespace, w.cluster)
	if err != nil {
		return err
	}
	if r.Place != nil {
		r.Place(&job.Spec.Template.Spec)
	}
	if err := r.Client.Create(ctx, job); err != nil {
		return fmt.Errorf("create Job: %w", err)
	}

	return nil
}

// holdFor makes a decision one that waits for a person, if there are problems.
func (d *decision) holdFor(problems ...*match.Problem) {
	for _, p := range problems {
		if p != nil {
			d.step, d.problems = stepHold, append(d.problems, *p)
		}
	}
}

func (r *Provisionings) writeInventory(w *clusterState, members []kud.Node, keys map[netip.Addr]string) error {
	inventory := kud.Inventory
	if w.virtlet {
		inventory = kud.VirtualInventory
	}

	if err := w.dir.write(contract.FileInventory, inventory(members), 0o644); err != nil {
		return err
	}

	return w.dir.write(contract.FileKnownHosts, remote.KnownHosts(keys), 0o644)
}

// managedLabels labels what the operator makes and may change again.
func managedLabels() map[string]string {
	return map[string]string{LabelManaged: FieldManager}
}

// LabelManaged is on objects that the operator may change again; its value is FieldManager.
const LabelManaged = "app.kubernetes.io/managed-by"

// provideEnvironment makes ICN's ConfigMap where it is missing, and returns what an installer gets of it: one that is
// there is its owner's to edit, and the installer has rights that its owner has not.
func (r *Provisionings) provideEnvironment(ctx context.Context, w *clusterState) (map[string]string, error) {
	made := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.cr.Namespace, Name: kud.Environment, Labels: managedLabels()},
		Data:       kud.DefaultEnvironment(),
	}
	err := r.Client.Create(ctx, made)
	if apierrors.IsAlreadyExists(err) {
		made = &corev1.ConfigMap{}
		err = r.Reader.Get(ctx, client.ObjectKey{Namespace: w.cr.Namespace, Name: kud.Environment}, made)
	}
	if err != nil {
		return nil, fmt.Errorf("create ConfigMap %s: %w", kud.Environment, err)
	}

	passed, rest := kud.FilterEnvironment(made.Data)
	if len(rest) > 0 {
		r.Recorder.Eventf(w.cr, nil, corev1.EventTypeWarning, EnvironmentFiltered, "Reconcile", "%s", ctrlmanager.TruncateNote(fmt.Sprintf(
			"ConfigMap %s: not passed to the installer: %s; it is given %s, and of these only words", kud.Environment,
			strings.Join(rest, ", "), strings.Join(slices.Sorted(maps.Keys(kud.DefaultEnvironment())), ", "),
		)))
	}

	return passed, nil
}

// apply writes objects that are not as wanted.
func (r *Provisionings) apply(ctx context.Context, objects ...client.Object) error {
	set, err := apply.New(FieldManager, objects...)
	if err != nil {
		return err
	}
	if set.CheckCurrent(ctx, r.Reader) == nil {
		return nil
	}

	return set.Apply(ctx, r.Client)
}

// publishResults gives out what the record says: the inventory, the ConfigMap that ICN's Software
// reads, the kubeconfig as a Secret.
func (r *Provisionings) publishResults(ctx context.Context, w *clusterState) error {
	keys, err := r.hostKeys(ctx, w, w.record.Members)
	if err != nil {
		return err
	}
	if err := r.writeInventory(w, w.record.Members, keys); err != nil {
		return err
	}
	if err := r.clearLeftoverMark(ctx, w); err != nil {
		return err
	}
	if err := r.markRestored(ctx, w); err != nil {
		return err
	}

	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace:       w.cr.Namespace,
			Name:            name,
			Labels:          map[string]string{kud.LabelCluster: w.cluster},
			OwnerReferences: []metav1.OwnerReference{controllerRef(w.cr)},
		}
	}
	objects := []client.Object{&corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{
			APIVersion: "v1",
			Kind:       "ConfigMap",
		}, ObjectMeta: meta(configMapName(w.cluster)), Data: nodeAddresses(w.record),
	}}
	if len(w.config) > 0 {
		objects = append(objects, &corev1.Secret{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: meta(kubeconfigName(w.cluster)),
			Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"value": w.config},
		})
	}

	return r.apply(ctx, objects...)
}

// nodeAddresses are the nodes of a cluster by role and label: the content of its ConfigMap.
func nodeAddresses(record *kud.InstalledCluster) map[string]string {
	data := map[string]string{}
	for _, m := range record.Members {
		if m.Master {
			data["MASTER_"+m.Label] = m.Address.String()
		}
		if m.Worker {
			data["WORKER_"+m.Label] = m.Address.String()
		}
	}
	return data
}

func configMapName(cluster string) string  { return cluster + "-configmap" }
func kubeconfigName(cluster string) string { return cluster + "-kubeconfig" }

// removeJob removes the Job and its pods: two installers at work on one cluster would undo each
// other. It tells whether nothing is left.
func (r *Provisionings) removeJob(ctx context.Context, w *clusterState) (bool, error) {
	if w.job != nil {
		err := r.Client.Delete(
			ctx, w.job, client.PropagationPolicy(metav1.DeletePropagationBackground),
			client.Preconditions{UID: &w.job.UID},
		)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("delete Job: %w", err)
		}
		if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(w.job), &batchv1.Job{}); !apierrors.IsNotFound(err) {
			return false, err
		}
	}

	pods, err := r.jobPods(ctx, w)
	if err != nil {
		return false, err
	}

	for i := range pods {
		if err := r.Client.Delete(ctx, &pods[i]); client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("delete pod of Job: %w", err)
		}
	}

	if len(pods) > 0 {
		pods, err = r.jobPods(ctx, w)
	}

	return len(pods) == 0, err
}

// fetchLog writes what the run printed beside the installer's own logs, once.
func (r *Provisionings) fetchLog(ctx context.Context, w *clusterState) error {
	name := w.run.LogFile()
	if _, err := os.Stat(w.dir.path(name)); err == nil || w.job == nil || len(w.pods) == 0 {
		return nil
	}

	pod := w.pods[len(w.pods)-1]
	log, err := r.Logs(ctx, pod.Namespace, pod.Name)
	if err != nil {
		r.Log.Error("log of a run is lost", "cluster", w.cluster, "pod", pod.Name, "error", err)
		return nil
	}
	defer log.Close()

	return w.dir.saveLog(name, log)
}
