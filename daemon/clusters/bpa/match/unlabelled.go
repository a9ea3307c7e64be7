package match

import (
	"fmt"
	"slices"

	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
)

// kubectlDrops is why an item may come without its label.
const kubectlDrops = "kubectl apply drops a label whose body is empty"

// assignUnlabelled makes masters workers for the items of workers that came without a label, if it is clear which.
func assignUnlabelled(s v1alpha1.ProvisioningSpec, nodes []Node) (problems []Problem) {
	missing := func(list string, at int, way string) {
		problems = append(problems, Problem{
			Reason:   LabelMissing,
			Sentence: fmt.Sprintf("spec.%s[%d] names no node: %s; write `%s`", list, at, kubectlDrops, way),
		})
	}
	for i, item := range s.Masters {
		if len(item) == 0 {
			missing("masters", i, "- master-1: {mac-address: 52:54:00:12:34:01}")
		}
	}

	unlabelled := unlabelledWorkers(s)
	var idle []int // masters that no item of workers names
	for i, n := range nodes {
		if n.Master && !n.Worker {
			idle = append(idle, i)
		}
	}

	if len(unlabelled) == len(idle) {
		for _, i := range idle {
			nodes[i].Worker = true
		}
		return problems
	}

	for _, at := range unlabelled {
		missing("workers", at, "- LABEL: {}")
	}

	return problems
}

// unlabelledWorkers are the positions of the items of workers that have no label.
func unlabelledWorkers(s v1alpha1.ProvisioningSpec) (at []int) {
	for i, item := range s.Workers {
		if len(item) == 0 {
			at = append(at, i)
		}
	}
	return at
}

// UnlabelledWarning says what was made of items of workers without a label; "" if there are none, or if it was
// not clear what to make of them.
func UnlabelledWarning(s v1alpha1.ProvisioningSpec) string {
	count := len(unlabelledWorkers(s))
	_, problems := ParseNodes(s)
	if count == 0 || slices.ContainsFunc(problems, func(p Problem) bool { return p.Reason == LabelMissing }) {
		return ""
	}
	return fmt.Sprintf("spec.workers: %d of its items came without a label and are taken for masters, which run workloads "+
		"as well: %s; `- LABEL: {}` says it in full", count, kubectlDrops)
}
