package plan

import (
	"fmt"
	"strings"

	"firstlight.dev/firstlight/daemon/clusters/kpa/v1alpha1"
)

// Reasons that a status gives. docs/addons.md says what each means; a test compares the two.
const (
	ReasonReady             = "Ready"
	ReasonSuspended         = "Suspended"
	ReasonDependencyCycle   = "DependencyCycle"
	ReasonDependencyMissing = "DependencyMissing"
	ReasonDependencyWaits   = "DependencyNotReady"
	ReasonDependencySkipped = "DependencySkipped"
	ReasonRequirements      = "RequirementsMissing"
	ReasonNoCluster         = "NoCluster"
	ReasonNoKubeconfig      = "NoKubeconfig"
	ReasonKubeconfigRefused = "KubeconfigRefused"
	ReasonClusterSilent     = "ClusterSilent"
	ReasonNoRights          = "NoRights"
	ReasonSourceMissing     = "SourceMissing"
	ReasonBundleMissing     = "BundleMissing"
	ReasonImageMissing      = "ImageMissing"
	ReasonSourceRefused     = "SourceRefused"
	ReasonImmutable         = "ImmutableField"
	ReasonConflict          = "OwnedByAnother"
	ReasonApplyFailed       = "ApplyFailed"
	ReasonPruning           = "Pruning"
	ReasonNotHealthy        = "NotHealthy"
	ReasonObjectFailed      = "ObjectFailed"
	ReasonExpression        = "ExpressionNotMet"
	ReasonHookRuns          = "HookRuns"
	ReasonHookFailed        = "HookFailed"
	ReasonTestRuns          = "SelfTestRuns"
	ReasonTestFailed        = "SelfTestFailed"
	ReasonTimeout           = "Timeout"
	ReasonDeleting          = "Deleting"
	ReasonDependents        = "DependentsRemain"
)

// Verdict is how a Component was found on one cluster.
type Verdict struct {
	Phase   string
	Reason  string
	Message string
}

// Dependency is a Component that another one depends on, as it stands on one cluster.
type Dependency struct {
	Name    string
	Exists  bool
	Current bool   // its status is about what it asks for now
	Phase   string // there, or of all clusters if it is not on that one

	OrSkipped bool // it is enough that it is skipped
}

// CheckDependencies says what the first dependency is that is not ready; nil if all are.
func CheckDependencies(all []Dependency) *Verdict {
	for _, d := range all {
		switch {
		case !d.Exists:
			return &Verdict{
				v1alpha1.PhaseWaiting, ReasonDependencyMissing,
				fmt.Sprintf("it depends on %s, which does not exist in this namespace; create it", d.Name),
			}
		case d.Current && d.Phase == v1alpha1.PhaseSkipped && d.OrSkipped:
		case d.Current && d.Phase == v1alpha1.PhaseSkipped:
			return &Verdict{
				v1alpha1.PhaseSkipped, ReasonDependencySkipped,
				fmt.Sprintf("%s, on which it depends, is skipped", d.Name),
			}
		case !d.Current || d.Phase != v1alpha1.PhaseReady:
			return &Verdict{v1alpha1.PhaseWaiting, ReasonDependencyWaits, fmt.Sprintf("waits for %s%s", d.Name, phaseClause(d))}
		}
	}

	return nil
}

func phaseClause(d Dependency) string {
	if !d.Current || d.Phase == "" {
		return ""
	}
	return ", which is " + d.Phase
}

// RefuseCycle is the verdict of a Component that waits for itself.
func RefuseCycle(way []string) Verdict {
	return Verdict{
		v1alpha1.PhaseRefused, ReasonDependencyCycle,
		fmt.Sprintf("it waits for itself: %s; take one of these dependencies out", strings.Join(way, " → ")),
	}
}

// IsInProgress reports whether a phase ends without anyone's help, within the timeout of an attempt.
func IsInProgress(phase string) bool {
	switch phase {
	case v1alpha1.PhaseApplying, v1alpha1.PhaseHealth, v1alpha1.PhaseTesting:
		return true
	}
	return false
}

// badness orders phases from the worst: a Component has the worst of its clusters.
var badness = []string{
	v1alpha1.PhaseRefused,
	v1alpha1.PhaseFailed,
	v1alpha1.PhaseDegraded,
	v1alpha1.PhaseWaiting,
	v1alpha1.PhaseDeleting,
	v1alpha1.PhaseApplying,
	v1alpha1.PhaseHealth,
	v1alpha1.PhaseTesting,
	v1alpha1.PhaseSuspended,
	v1alpha1.PhaseReady,
	v1alpha1.PhaseSkipped,
}
