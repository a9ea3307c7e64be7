// Package nodeupdate decides what is done next for a NodeUpdate: which nodes of a cluster are taken out of service,
// which are continued, and why the others wait. It is pure; package operator observes and acts.
//
// Nothing is remembered but on the nodes themselves. A Node of the cluster that is out of service has a Mark: one write
// cordons and marks it, one write takes both back. Everything else is asked of the node: its packages, its boot ID, its
// pods.
package nodeupdate

import (
	"encoding/json"
	"fmt"
	"time"

	"firstlight.dev/firstlight/daemon/clusters/bpa/software"
)

// Mark is what a Node of a cluster says while it is out of service for a NodeUpdate, as JSON in the annotation
// v1alpha1.AnnotationUpdating.
type Mark struct {
	Update string    `json:"update"` // namespace/name
	UID    string    `json:"uid"`
	Since  time.Time `json:"since"`            // when its last step began: the drain, the check or the reboot
	Closed bool      `json:"closed,omitempty"` // somebody had cordoned it before
	BootID string    `json:"bootID,omitempty"` // of the boot that a reboot ends; "" before it is asked for
}

// ReadMark reads an annotation. One that cannot be read is nobody's mark of a node that was in service.
func ReadMark(text string) *Mark {
	if text == "" {
		return nil
	}
	m := &Mark{}
	if json.Unmarshal([]byte(text), m) != nil {
		return &Mark{}
	}
	return m
}

// String is the mark as an annotation.
func (m Mark) String() string {
	text, err := json.Marshal(m)
	if err != nil {
		panic(err) // plain data
	}
	return string(text)
}

// Order is what a NodeUpdate asks for, and what keeps it from beginning with further nodes.
type Order struct {
	UID            string
	Token          string // of this generation: the value of v1alpha1.AnnotationUpdated
	Reboot         string // v1alpha1.RebootNever, …
	MaxUnavailable int
	Hold           *Hold           // nil: nothing
	Others         map[string]bool // UIDs of other NodeUpdates of the cluster
	Minor          int             // of the cluster's API server: 36 of v1.36.3
}

// Hold is why no further node is taken out of service.
type Hold struct{ Reason, Sentence string }

// Node is one node of a cluster, as it was observed.
type Node struct {
	Name         string
	ControlPlane bool

	// Its Node in the cluster.
	Version   string // of its kubelet; "" is not known
	IsReady   bool
	IsClosed  bool   // cordoned
	BootID    string // that its kubelet started in
	Mark      *Mark  // nil: it is in service
	UpdatedBy string // v1alpha1.AnnotationUpdated

	Pods    Pods   // of a node in service they are not asked for
	Refusal string // why one of them was not evicted when that was last tried; "" if none was refused

	Facts *Facts
	Error string // why there are no facts; "" if it was not asked yet
}

// Facts are what a node itself says, by SSH.
type Facts struct {
	BootID      string
	NeedsReboot bool // its system asks for it, or a kernel came since it started
	Preview     software.Preview
}

// What becomes of a node that is slower than this is reported as a failure; it is still continued.
const (
	drainTime  = 10 * time.Minute
	rebootTime = 20 * time.Minute
	healthTime = 10 * time.Minute
)

// Step is what is done on a node next.
type Step string

// Steps, in their order.
const (
	StepWait    Step = ""
	StepClose   Step = "close"   // mark and cordon it
	StepEvict   Step = "evict"   // evict Node.Pods
	StepInstall Step = "install" // install Facts.Preview.Changes
	StepReboot  Step = "reboot"  // write the boot ID to the mark, then restart it
	StepOpen    Step = "open"    // uncordon it and remove the mark
)

// Reasons of a NodeUpdate, besides those of a Hold.
const (
	ReasonUpToDate        = "UpToDate"
	ReasonUpdating        = "Updating"
	ReasonOtherUpdate     = "OtherUpdate"
	ReasonNodeSilent      = "NodeSilent"
	ReasonNodeNotReady    = "NodeNotReady"
	ReasonNotMovable      = "PodsNotMovable"
	ReasonDrainBlocked    = "DrainBlocked"
	ReasonPackagesUnknown = "PackagesUnknown"
	ReasonNotInstalled    = "NotInstalled"
	ReasonNotRebooted     = "NotRebooted"
	ReasonTooNew          = "KubernetesTooNew"
)

// Failure is why a node is not further, and what to do about it.
type Failure struct{ Reason, Sentence string }

func failf(reason, format string, args ...any) *Failure {
	return &Failure{Reason: reason, Sentence: fmt.Sprintf(format, args...)}
}
