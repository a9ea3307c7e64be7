package operator

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/contract"
)

// verifiedCondition is the condition Verified: what the installer saw when it tried the cluster, as long as
// it is about the nodes that the cluster has. It is pure.
func verifiedCondition(w *clusterState) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionVerified, Status: metav1.ConditionUnknown, Reason: NotVerified}
	if w.verification == nil {
		c.Message = "the installer has not written what it saw of the cluster, " + w.dir.path(contract.FileVerification)
		return c
	}

	at := w.verification.Time.UTC().Format(time.RFC3339)
	var failed []string
	for _, k := range w.verification.Checks {
		if !k.Passed {
			failed = append(failed, k.Name+": "+k.Message)
		}
	}

	if len(failed) > 0 {
		c.Status, c.Reason = metav1.ConditionFalse, CheckFailed
		c.Message = fmt.Sprintf(
			"at %s %d of %d checks failed: %s; every question and its answer: %s", at, len(failed),
			len(w.verification.Checks), strings.Join(failed, "; "), w.dir.path(contract.FileVerification),
		)
		return c
	}

	var untried []string
	if w.record != nil {
		for _, m := range w.record.Members {
			if !slices.Contains(w.verification.Nodes, m.Label) {
				untried = append(untried, m.Label)
			}
		}
	}

	if len(untried) > 0 {
		c.Message = fmt.Sprintf(
			"all checks passed at %s, but %s was not part of the cluster then", at, strings.Join(untried, ", "),
		)
		return c
	}

	c.Status, c.Reason = metav1.ConditionTrue, "Verified"
	c.Message = fmt.Sprintf(
		"all %d checks passed at %s on %s", len(w.verification.Checks), at, strings.Join(w.verification.Nodes, ", "),
	)
	return c
}

// checkStatuses are what the verification tried, one by one.
func checkStatuses(v *contract.Verification) (all []v1alpha1.CheckStatus) {
	if v == nil {
		return nil
	}
	for _, k := range v.Checks {
		s := v1alpha1.CheckStatus{
			Name:    k.Name,
			Outcome: v1alpha1.CheckFailed,
			Message: k.Message,
			Time:    metav1.NewTime(v.Time),
		}
		if k.Passed {
			s.Outcome = v1alpha1.CheckPassed
		}
		all = append(all, s)
	}
	return all
}
