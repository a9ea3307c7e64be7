package operator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/excerpt"
	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/bpa/match"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/contract"
)

// describeStatus is the status that follows from what was seen and decided. It is pure.
func describeStatus(w *clusterState, a resolution, d decision, progress contract.Progress) v1alpha1.ProvisioningStatus {
	s := v1alpha1.ProvisioningStatus{
		ObservedGeneration: w.cr.Generation, Cluster: w.cluster,
		Conditions: slices.Clone(w.cr.Status.Conditions), Job: jobStatus(w, d),
	}
	for _, wrong := range w.warnings() {
		s.Warnings = append(s.Warnings, wrong.Sentence)
	}

	if w.nameOwner != "" && w.cr.Status.Cluster == "" {
		s.Cluster = v1alpha1.ClusterOf(w.cr)
	}

	for _, r := range a.rejected {
		s.Rejected = append(s.Rejected, v1alpha1.Rejected{Host: r.Host, Reason: r.Reason})
	}

	if w.record != nil && len(w.config) > 0 {
		s.Kubeconfig = kubeconfigName(w.cluster)
	}

	accepted, claimed, installed := conditions(w, a, d, progress)
	ready := metav1.Condition{
		Type:    v1alpha1.ConditionReady,
		Status:  metav1.ConditionTrue,
		Reason:  "Ready",
		Message: installed.Message,
	}
	for _, c := range []metav1.Condition{accepted, claimed, installed} {
		if c.Status != metav1.ConditionTrue {
			ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, c.Reason, c.Message
			break
		}
	}

	verified := verifiedCondition(w)
	s.Checks = checkStatuses(w.verification)
	for _, c := range []metav1.Condition{accepted, claimed, installed, verified, ready} {
		c.ObservedGeneration = w.cr.Generation
		c.Message = excerpt.Start(c.Message, 30000)
		meta.SetStatusCondition(&s.Conditions, c)
	}

	if c := w.plugins.condition(); c != nil {
		c.ObservedGeneration = w.cr.Generation
		meta.SetStatusCondition(&s.Conditions, *c)
	} else {
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionPlugins)
	}

	s.Phase, s.Percent = phaseAndPercent(w, a, d, progress)
	s.Message = excerpt.Start(excerpt.Line(ready.Message), 1000)

	s.Nodes = nodeStatuses(w, a, d, progress)
	done := 0
	for _, n := range s.Nodes {
		if n.State == v1alpha1.NodeInstalled {
			done++
		}
	}

	s.NodesReady = fmt.Sprintf("%d/%d", done, max(len(a.nodes), len(s.Nodes)))
	return s
}

// failCondition joins problems into a condition that is not true: what needs an edit comes first, what
// comes by itself after it.
func failCondition(c metav1.Condition, problems []match.Problem) metav1.Condition {
	problems = slices.Clone(problems)
	slices.SortStableFunc(problems, func(a, b match.Problem) int { return boolToInt(a.Waits) - boolToInt(b.Waits) })
	var all []string
	for _, p := range problems {
		all = append(all, p.Sentence)
	}

	c.Status, c.Reason, c.Message = metav1.ConditionFalse, problems[0].Reason, strings.Join(all, " | ")
	return c
}

// boolToInt is 1 or 0.
func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func conditions(
	w *clusterState,
	a resolution,
	d decision,
	progress contract.Progress,
) (accepted, claimed, installed metav1.Condition) {
	accepted = metav1.Condition{
		Type:    v1alpha1.ConditionAccepted,
		Status:  metav1.ConditionTrue,
		Reason:  "Accepted",
		Message: "what is asked makes sense",
	}
	claimed = metav1.Condition{
		Type:    v1alpha1.ConditionClaimed,
		Status:  metav1.ConditionTrue,
		Reason:  "Claimed",
		Message: fmt.Sprintf("all %d hosts are claimed", len(a.nodes)),
	}
	installed = metav1.Condition{
		Type:    v1alpha1.ConditionInstalled,
		Status:  metav1.ConditionFalse,
		Reason:  Installing,
		Message: runText(w, d, progress),
	}
	refused := slices.Clone(a.spec)
	hosts := slices.Clone(a.hosts)
	for _, p := range d.problems {
		if p.Reason == kud.ControlPlaneFixed || p.Reason == kud.SubnetFixed {
			refused = append(refused, p)
		} else {
			hosts = append(hosts, p)
		}
	}

	if len(refused) > 0 {
		accepted = failCondition(accepted, refused)
	}

	switch {
	case len(hosts) > 0:
		claimed = failCondition(claimed, hosts)
	case len(a.spec) > 0:
		claimed.Status, claimed.Reason, claimed.Message = metav1.ConditionUnknown, "NotLooked", "hosts are looked for when what is asked makes sense"
	case d.step == stepClaim:
		claimed.Status, claimed.Reason, claimed.Message = metav1.ConditionFalse, Claiming, "claiming "+commandline.Amount(len(d.claim), "host")
	}

	switch {
	case d.step == stepSettled:
		installed.Status, installed.Reason = metav1.ConditionTrue, "Installed"
	case d.step == stepHold && w.record == nil:
		installed.Reason = NotBegun
	case d.step == stepHold:
		installed.Reason = NotAsAsked
	case w.jobFailed() && w.outcome.Succeeded:
		installed.Reason = NoKubeconfig
	case w.jobFailed() && d.step == stepRefused:
		installed.Reason = InstallerRefused
	case w.jobFailed() && d.step == stepPause:
		installed.Reason = InstallFailed
	}

	return accepted, claimed, installed
}

// runText is a sentence about the last run and what follows.
func runText(w *clusterState, d decision, progress contract.Progress) string {
	name := kud.JobName(w.cluster)
	log := "log " + w.dir.path(w.run.LogFile())
	switch d.step {
	case stepSettled:
		without := ""
		if len(w.plugins.missing) > 0 {
			without = ", without plugins " + strings.Join(w.plugins.missing, ", ")
		}
		return fmt.Sprintf(
			"cluster %s is installed%s; kubeconfig: firstlightd kubeconfig %s, or Secret %s", w.cluster, without,
			w.cluster, kubeconfigName(w.cluster),
		) + w.rotationText()
	case stepWatch:
		s := fmt.Sprintf("Job %s: %s, attempt %d", name, actionText(w.run), w.run.Attempt)
		switch {
		case progress.Doing != "":
			s += ": " + progress.Doing
		case !w.outcome.Started && w.outcome.Message != "":
			s += ": the installer's image " + w.run.Image + " does not start: " + w.outcome.Message
		case !w.outcome.Started:
			s += ": starting"
		}

		if w.run.Generation != w.cr.Generation {
			s += "; the edit is taken up when it has ended, at once if the Job is deleted"
		}

		return s
	case stepPause:
		why := w.outcome.Message
		if w.outcome.Succeeded {
			why = "the installer ended well, but left no " + w.dir.path(contract.FileKubeconfig)
			if w.refusal != "" {
				why = "the kubeconfig that the installer left is not handed out: " + w.refusal
			}
		}
		return fmt.Sprintf(
			"Job %s: %s, attempt %d failed: %s; the next begins at %s, at once if the Job is deleted; %s%s", name,
			actionText(w.run), w.run.Attempt, why, d.until.UTC().Format("15:04:05"), w.partText(), log,
		)
	case stepRefused:
		return fmt.Sprintf("Job %s: the installer says that it will not work as asked: %s; correct this Provisioning, or delete the Job to try again; %s%s", name, w.outcome.Message, w.partText(), log)
	case stepClear:
		return fmt.Sprintf("Job %s: removing it and its pods before the next run", name)
	case stepStart:
		return fmt.Sprintf("Job %s: %s, attempt %d: starting", name, actionText(*d.run), d.run.Attempt)
	case stepRecord:
		return fmt.Sprintf("Job %s: %s is done", name, actionText(w.run))
	}

	if w.record != nil {
		return "cluster " + w.cluster + " is installed and left as it is; what is asked differs from it"
	}

	return "not begun"
}

func actionText(r kud.Run) string {
	switch r.Action {
	case contract.Add:
		return "adding " + strings.Join(r.Nodes, ", ")
	case contract.Remove:
		return "removing " + strings.Join(r.Nodes, ", ")
	case contract.Rotate:
		return "replacing its authorities"
	}
	return "installing"
}

func phaseAndPercent(w *clusterState, a resolution, d decision, progress contract.Progress) (string, int32) {
	busy, percent := v1alpha1.PhaseInstalling, int32(10)
	if w.record != nil && !w.record.Begun {
		busy = v1alpha1.PhaseChanging
	}

	switch d.step {
	case stepSettled:
		return v1alpha1.PhaseReady, 100
	case stepWatch:
		return busy, percent + int32(progress.Percent)*85/100
	case stepRecord:
		return busy, 95
	case stepPause:
		return v1alpha1.PhaseFailed, percent
	case stepRefused:
		return v1alpha1.PhaseRefused, percent
	case stepHold:
		all := slices.Concat(a.spec, a.hosts, d.problems)
		if slices.ContainsFunc(all, func(p match.Problem) bool { return !p.Waits }) {
			return v1alpha1.PhaseRefused, 0
		}
		return v1alpha1.PhaseWaiting, 0
	}

	return busy, percent
}

func jobStatus(w *clusterState, d decision) *v1alpha1.JobStatus {
	if w.job == nil { // the last one counts attempts
		return w.cr.Status.Job
	}

	j := &v1alpha1.JobStatus{
		Name:       w.job.Name,
		Action:     w.run.Action,
		Attempt:    w.run.Attempt,
		Generation: w.run.Generation,
		State:      v1alpha1.JobRunning,
		Started:    w.job.CreationTimestamp,
		Log:        w.dir.path(w.run.LogFile()),
	}
	switch {
	case w.jobFailed():
		j.State = v1alpha1.JobFailed
	case w.outcome.Ended:
		j.State = v1alpha1.JobSucceeded
	}

	if d.step == stepPause {
		j.Next = &metav1.Time{Time: d.until}
	}

	return j
}

// nodeStatuses are those that are asked for, then those that are still to be taken out.
func nodeStatuses(w *clusterState, a resolution, d decision, progress contract.Progress) []v1alpha1.NodeStatus {
	before := map[string]v1alpha1.NodeStatus{}
	for _, n := range w.cr.Status.Nodes {
		before[n.Name+" "+n.Host] = n
	}

	members := map[string]kud.Node{}
	for _, m := range a.members {
		members[m.Label] = m
	}

	var all []v1alpha1.NodeStatus
	for _, n := range a.nodes {
		m, found := members[n.Label]
		if !found {
			m = kud.Node{Label: n.Label, Master: n.Master, Worker: n.Worker, MAC: n.MAC}
		}
		all = append(all, nodeStatus(w, a, d, m, progress))
	}

	if w.record != nil {
		for _, m := range slices.Concat(w.record.Members, w.record.Unready) {
			if now, asked := members[m.Label]; !asked || now.Host != m.Host {
				all = append(all, nodeStatus(w, a, d, m, progress))
			}
		}
	}

	for i := range all {
		all[i].Login = cmp.Or(w.logins[all[i].Name], before[all[i].Name+" "+all[i].Host].Login)
	}

	return all
}

func nodeStatus(w *clusterState, a resolution, d decision, m kud.Node, progress contract.Progress) v1alpha1.NodeStatus {
	s := v1alpha1.NodeStatus{
		Name:        m.Label,
		Roles:       m.Roles(),
		Host:        m.Host,
		MAC:         m.MAC,
		AddressFrom: m.From,
		State:       v1alpha1.NodeWaiting,
	}
	if m.Address.IsValid() {
		s.Address = m.Address.String()
	}

	run := w.run
	if d.step == stepStart {
		run = *d.run
	}

	inRun := slices.ContainsFunc(run.Members, func(o kud.Node) bool { return o.Label == m.Label && o.Host == m.Host })
	touched := (d.step == stepWatch || d.step == stepStart) && inRun && (len(run.Nodes) == 0 || slices.Contains(
		run.Nodes, m.Label,
	))
	b := w.host(m)
	claimed := b != nil && claimOf(b.Spec.ConsumerRef) == (match.Claim{Owner: w.owner, Node: m.Label})
	switch installed := recordedNode(w.record, m) != nil; {
	case touched && run.Action == contract.Remove:
		s.State = v1alpha1.NodeRemoving
	case touched && !installed:
		s.State, s.Reason = v1alpha1.NodeInstalling, progress.Nodes[m.Label]
	case installed:
		s.State = v1alpha1.NodeInstalled
	case w.jobFailed() && (d.step == stepPause || d.step == stepRefused):
		s.State, s.Reason = v1alpha1.NodeFailed, progress.Nodes[m.Label]
		if w.isUnready(m) {
			s.Reason = strings.TrimPrefix(
				s.Reason+"; ", "; ",
			) + "the other nodes are installed: fix it and it is joined, or take " + m.Label + " out of this Provisioning"
		}
	case claimed || w.virtlet && len(a.hosts) == 0 && m.Address.IsValid():
		s.State, s.Reason = v1alpha1.NodeClaimed, w.rejoinReason(m)
	}

	if s.State == v1alpha1.NodeWaiting || s.State == v1alpha1.NodeInstalled {
		for _, p := range slices.Concat(a.spec, a.hosts, d.problems) {
			if match.IsAbout(m.Label)(p) {
				s.Reason = p.Sentence
			}
		}
	}

	return s
}

// sameStatus tells whether nothing changed that anybody would want to read.
func sameStatus(a, b v1alpha1.ProvisioningStatus) bool { return equality.Semantic.DeepEqual(a, b) }
