package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/clusters/bpa/nodeupdate"
	"firstlight.dev/firstlight/daemon/clusters/bpa/software"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
)

// act does the steps of a decision, those of several nodes at once, and writes into it what failed. It reports whether
// there was anything to do.
func (s *nodeSession) act(ctx context.Context, nodes []nodeupdate.Node, d *nodeupdate.Decision) bool {
	acted := false
	var wg sync.WaitGroup
	for i := range d.Actions {
		a := &d.Actions[i]
		at := slices.IndexFunc(nodes, func(n nodeupdate.Node) bool { return n.Name == a.Node })
		if a.Step == nodeupdate.StepWait {
			continue
		}
		if a.Step != nodeupdate.StepEvict && a.Step != nodeupdate.StepReboot {
			acted = true // those two are waited for
		}
		wg.Go(func() {
			f := s.step(ctx, &nodes[at], a)
			if f == nil {
				return
			}
			a.Failure, a.Phase, a.Message = f, v1alpha1.NodeUpdateFailed, f.Sentence
		})
	}
	wg.Wait()
	return acted
}

// step does what is next on one node.
func (s *nodeSession) step(ctx context.Context, n *nodeupdate.Node, a *nodeupdate.Action) *nodeupdate.Failure {
	switch a.Step {
	case nodeupdate.StepClose:
		return s.closeNode(ctx, n)
	case nodeupdate.StepEvict:
		return s.evictPods(ctx, n)
	case nodeupdate.StepInstall:
		return s.installPackages(ctx, n)
	case nodeupdate.StepReboot:
		return s.rebootNode(ctx, n)
	case nodeupdate.StepOpen:
		if err := openNode(ctx, s.api, n.Name, *n.Mark, s.u.token()); err != nil {
			return silent(err)
		}
		s.asked.Delete(s.key(n.Name))
		s.refusals.Delete(s.key(n.Name))
		a.Phase, a.Message, a.IsAway = v1alpha1.NodeUpToDate, "", false
	}
	return nil
}

// silent is a failure to ask the cluster's API. The step is found undone, and done then.
func silent(err error) *nodeupdate.Failure {
	return &nodeupdate.Failure{Reason: ClusterSilent, Sentence: err.Error()}
}

// patchNode changes a Node of the cluster.
func patchNode(ctx context.Context, c client.Client, name string, change func(*corev1.Node)) error {
	o := &corev1.Node{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, o); err != nil {
		return fmt.Errorf("read node %s: %w", name, err)
	}
	before := o.DeepCopy()
	if o.Annotations == nil {
		o.Annotations = map[string]string{}
	}
	change(o)
	if err := c.Patch(ctx, o, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("write node %s: %w", name, err)
	}
	return nil
}

func (s *nodeSession) writeMark(ctx context.Context, n *nodeupdate.Node, mark nodeupdate.Mark) error {
	return patchNode(ctx, s.api, n.Name, func(o *corev1.Node) {
		o.Annotations[v1alpha1.AnnotationUpdating] = mark.String()
	})
}

// closeNode takes a node out of service, unless it has a pod that would be lost.
func (s *nodeSession) closeNode(ctx context.Context, n *nodeupdate.Node) *nodeupdate.Failure {
	pods, err := s.listPods(ctx, n.Name)
	if err != nil {
		return silent(err)
	}
	if lost := nodeupdate.SortPods(pods).Unmovable; len(lost) > 0 {
		return &nodeupdate.Failure{Reason: nodeupdate.ReasonNotMovable, Sentence: strings.Join(lost, "; ")}
	}

	err = patchNode(ctx, s.api, n.Name, func(o *corev1.Node) {
		mark := nodeupdate.Mark{
			Update: s.u.Namespace + "/" + s.u.Name,
			UID:    string(s.u.UID),
			Closed: o.Spec.Unschedulable,
		}
		if had := nodeupdate.ReadMark(o.Annotations[v1alpha1.AnnotationUpdating]); had != nil {
			mark = *had // somebody uncordoned it
		}
		mark.Since = s.Now().UTC()
		o.Annotations[v1alpha1.AnnotationUpdating] = mark.String()
		o.Spec.Unschedulable = true
	})
	if err != nil {
		return silent(err)
	}
	return nil
}

// openNode puts a node back into service.
func openNode(ctx context.Context, c client.Client, name string, mark nodeupdate.Mark, token string) error {
	return patchNode(ctx, c, name, func(o *corev1.Node) {
		delete(o.Annotations, v1alpha1.AnnotationUpdating)
		o.Annotations[v1alpha1.AnnotationUpdated] = token
		o.Spec.Unschedulable = mark.Closed
	})
}

// openNodes puts all nodes back into service that are out of it for a NodeUpdate. It is not told of any generation that
// they were updated by it: they may not have been.
func (r *NodeUpdates) openNodes(ctx context.Context, u *nodeUpdate) error {
	api, err := r.connect(u.cluster)
	if err != nil {
		return err
	}
	var list corev1.NodeList
	if err := api.List(ctx, &list); err != nil {
		return err
	}

	var failed []error
	for i := range list.Items {
		o := &list.Items[i]
		mark := nodeupdate.ReadMark(o.Annotations[v1alpha1.AnnotationUpdating])
		if mark != nil && mark.UID == string(u.UID) {
			failed = append(failed, openNode(ctx, api, o.Name, *mark, o.Annotations[v1alpha1.AnnotationUpdated]))
		}
	}
	return errors.Join(failed...)
}

// evictPods asks for the eviction of the pods that are to go. One that a PodDisruptionBudget protects stays for now.
func (s *nodeSession) evictPods(ctx context.Context, n *nodeupdate.Node) *nodeupdate.Failure {
	pods, err := s.listPods(ctx, n.Name)
	if err != nil {
		return silent(err)
	}

	s.refusals.Delete(s.key(n.Name))
	for i := range pods {
		pod := &pods[i]
		name := pod.Namespace + "/" + pod.Name
		if pod.DeletionTimestamp != nil || !slices.Contains(nodeupdate.SortPods(pods[i:i+1]).Movable, name) {
			continue
		}

		err := s.api.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace,
			Name:      pod.Name,
		}})
		if client.IgnoreNotFound(err) != nil {
			s.refusals.Store(s.key(n.Name), "pod "+name+": "+refusalText(err))
		}
	}
	return nil
}

// refusalText is why an eviction was refused: which budget, and how many pods it needs, are among the causes.
func refusalText(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return err.Error()
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Type == policyv1.DisruptionBudgetCause {
			return cause.Message
		}
	}
	return err.Error()
}

// installPackages installs what the node was seen to lack, as a Software does.
func (s *nodeSession) installPackages(ctx context.Context, n *nodeupdate.Node) *nodeupdate.Failure {
	ctx, cancel := context.WithTimeout(ctx, installTime)
	defer cancel()
	fail := func(sentence string) *nodeupdate.Failure {
		return &nodeupdate.Failure{Reason: nodeupdate.ReasonNotInstalled, Sentence: sentence}
	}

	packages := software.Targets(n.Facts.Preview.Changes)
	out, said, err := s.run(ctx, n.Name, software.Script(v1alpha1.OwnerOf(s.u.p), packages))
	if err != nil {
		return fail(fmt.Sprintf("packages were being installed: %v; it continues when the node answers", err))
	}

	var wrong []string
	for _, p := range software.Read(packages, out, said) {
		if p.Error != "" {
			wrong = append(wrong, p.Name+": "+p.Error)
		}
	}
	if len(wrong) > 0 {
		return fail(fmt.Sprintf("%s; see /var/log/apt on it", strings.Join(wrong, "; ")))
	}

	after, err := s.askFacts(ctx, n.Name)
	if err == nil && slices.Equal(after.Preview.Changes, n.Facts.Preview.Changes) {
		c := after.Preview.Changes[0]
		const text = "%s %s was installed and the node still asks for it; see apt-get --simulate upgrade on it"
		return fail(fmt.Sprintf(text, c.Name, c.To))
	}

	mark := *n.Mark
	mark.Since = s.Now().UTC()
	if err := s.writeMark(ctx, n, mark); err != nil {
		return silent(err)
	}
	return nil
}

// rebootNode has a node restart. Which boot is to end is written first: when it was is seen by another one then.
func (s *nodeSession) rebootNode(ctx context.Context, n *nodeupdate.Node) *nodeupdate.Failure {
	if n.Mark.BootID == "" {
		mark := *n.Mark
		mark.BootID, mark.Since = n.Facts.BootID, s.Now().UTC()
		if err := s.writeMark(ctx, n, mark); err != nil {
			return silent(err)
		}
	}

	_, _, _ = s.run(ctx, n.Name, nodeupdate.RebootScript) // its connection may end first; it is asked again
	return nil
}
