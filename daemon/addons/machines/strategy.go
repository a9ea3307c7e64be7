package machines

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "firstlight.dev/firstlight/daemon/addons/machines/v1"
)

// Verdict is what is to be done about a machine's instance.
type Verdict int

// Verdicts.
const (
	Leave Verdict = iota
	Create
	Delete
	Record // the failure, which is deleted the next time
	Refuse // the instance of the name is not the machine's
)

// Times between an instance that failed and the next.
const (
	firstBackOff   = 10 * time.Second
	longestBackOff = 5 * time.Minute
)

// Decide says what is to be done about a machine's instance; nil if there is none. With Leave, wait is how long until
// that may change without anybody's doing; 0 if it does not.
func Decide(m *v1.VirtualMachine, i *v1.VirtualMachineInstance, now time.Time) (do Verdict, wait time.Duration) {
	strategy := m.Spec.Strategy()
	switch {
	case !m.DeletionTimestamp.IsZero():
		return Leave, 0 // its instance goes with it
	case i != nil && !metav1.IsControlledBy(i, m):
		return Refuse, 0
	case i != nil && !i.DeletionTimestamp.IsZero():
		return Leave, 0
	case strategy == v1.Manual:
		return Leave, 0
	case strategy == v1.Halted && i != nil:
		return Delete, 0
	case strategy == v1.Halted:
		return Leave, 0
	case i == nil:
		if wait := retryTime(m).Sub(now); wait > 0 {
			return Leave, wait
		}
		return Create, 0
	case i.Status.Phase == v1.Succeeded && strategy == v1.RerunOnFailure:
		return Leave, 0
	case i.Status.Phase == v1.Succeeded:
		return Delete, 0
	case i.Status.Phase == v1.Failed && isRecorded(m, i):
		return Delete, 0
	case i.Status.Phase == v1.Failed:
		return Record, 0
	}
	return Leave, 0
}

func retryTime(m *v1.VirtualMachine) time.Time {
	if f := m.Status.StartFailure; f != nil && f.RetryAfterTimestamp != nil {
		return f.RetryAfterTimestamp.Time
	}
	return time.Time{}
}

func isRecorded(m *v1.VirtualMachine, i *v1.VirtualMachineInstance) bool {
	return m.Status.StartFailure != nil && m.Status.StartFailure.LastFailedVMIUID == i.UID
}

// nextFailure counts one more instance that failed.
func nextFailure(m *v1.VirtualMachine, i *v1.VirtualMachineInstance, now time.Time) *v1.StartFailure {
	count := 1
	if m.Status.StartFailure != nil {
		count += m.Status.StartFailure.ConsecutiveFailCount
	}
	pause := longestBackOff
	if n := count - 1; n < 5 {
		pause = min(longestBackOff, firstBackOff<<n)
	}
	return &v1.StartFailure{
		ConsecutiveFailCount: count,
		LastFailedVMIUID:     i.UID,
		RetryAfterTimestamp:  &metav1.Time{Time: now.Add(pause).Truncate(time.Second)},
	}
}

// isRestarting reports whether a strategy starts another instance after one that failed.
func isRestarting(s v1.RunStrategy) bool { return s == v1.Always || s == v1.RerunOnFailure }

// DescribeMachine writes into the status what there is of a machine, and what is wrong with it; nil if nothing is.
func DescribeMachine(m *v1.VirtualMachine, i *v1.VirtualMachineInstance, wrong *problem, now time.Time) {
	s := &m.Status
	s.ObservedGeneration, s.Created = m.Generation, i != nil
	s.PrintableStatus = printableStatus(m, i, now)
	ready := machineCondition(m, i, now)
	if wrong == nil {
		meta.RemoveStatusCondition(&s.Conditions, v1.ConditionFailure)
	} else {
		failure := newCondition(v1.ConditionFailure, true, wrong.reason, wrong.message, m.Generation)
		meta.SetStatusCondition(&s.Conditions, failure)
		if i == nil {
			s.PrintableStatus = "Error"
			ready = newCondition(v1.ConditionReady, false, wrong.reason, wrong.message, m.Generation)
		}
	}
	s.Ready = ready.Status == metav1.ConditionTrue
	meta.SetStatusCondition(&s.Conditions, ready)
}

// machineCondition is whether a machine is ready: as its instance is, if it has one that has not failed.
func machineCondition(m *v1.VirtualMachine, i *v1.VirtualMachineInstance, now time.Time) metav1.Condition {
	is := func(reason, message string) metav1.Condition {
		return newCondition(v1.ConditionReady, false, reason, message, m.Generation)
	}
	have := meta.FindStatusCondition(m.Status.Conditions, v1.ConditionReady)
	switch {
	case i == nil && isRestarting(m.Spec.Strategy()) && retryTime(m).After(now):
		if have != nil && have.Reason == v1.ReasonBackOff {
			return is(have.Reason, have.Message) // the instance that it is about is gone
		}
		return is(v1.ReasonBackOff, "its last instance failed; the next one is started "+clock(retryTime(m)))
	case i == nil && isRestarting(m.Spec.Strategy()):
		return is(v1.ReasonNoInstance, "its instance is being created")
	case i == nil:
		return is(v1.ReasonNoInstance, "it is stopped")
	}

	of := meta.FindStatusCondition(i.Status.Conditions, v1.ConditionReady)
	switch {
	case of == nil:
		return is(v1.ReasonStarting, "its instance is being started")
	case i.Status.Phase == v1.Failed && isRestarting(m.Spec.Strategy()):
		return is(v1.ReasonBackOff, of.Message+"; the next instance is started "+clock(retryTime(m)))
	}
	return newCondition(v1.ConditionReady, of.Status == metav1.ConditionTrue, of.Reason, of.Message, m.Generation)
}

func clock(t time.Time) string { return "at " + t.UTC().Format(time.RFC3339) }

// printableStatus is a word for people, one of upstream's.
func printableStatus(m *v1.VirtualMachine, i *v1.VirtualMachineInstance, now time.Time) string {
	strategy := m.Spec.Strategy()
	switch {
	case !m.DeletionTimestamp.IsZero():
		return "Terminating"
	case i == nil && isRestarting(strategy) && retryTime(m).After(now):
		return "CrashLoopBackOff"
	case i == nil && isRestarting(strategy):
		return "Starting"
	case i == nil:
		return "Stopped"
	case !i.DeletionTimestamp.IsZero():
		return "Stopping"
	case i.Status.Phase == v1.Failed && isRestarting(strategy):
		return "CrashLoopBackOff"
	case i.Status.Phase.IsFinal():
		return "Stopped"
	case strategy == v1.Halted:
		return "Stopping"
	case i.Status.Phase == v1.Running:
		return "Running"
	}

	if c := meta.FindStatusCondition(i.Status.Conditions, v1.ConditionReady); c != nil {
		switch c.Reason {
		case v1.ReasonUnschedulable:
			return "ErrorUnschedulable"
		case v1.ReasonClaim:
			return "ErrorPvcNotFound"
		}
	}
	return "Starting"
}
