package metal3

import (
	"fmt"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNextErase: from each state of Ironic's, also from those that a power cut leaves behind.
func TestNextErase(t *testing.T) {
	done := func(e *Erasure, _ *metal3api.BareMetalHost) { e.Disks[0].Erased = time.Now() }
	work := func(_ *Erasure, h *metal3api.BareMetalHost) { h.Spec.Image = &metal3api.Image{URL: "x"} }
	cancelled := func(e *Erasure, _ *metal3api.BareMetalHost) { e.Cancelled = time.Now() }
	lost := func(e *Erasure, _ *metal3api.BareMetalHost) { e.Disks, e.Lost = nil, true }
	paused := func(_ *Erasure, h *metal3api.BareMetalHost) { h.Annotations[annotationPaused] = "" } // by its owner
	for i, c := range []struct {
		node   *EraseNode
		change func(*Erasure, *metal3api.BareMetalHost)
		want   EraseStep
	}{
		{&EraseNode{State: "available"}, func(_ *Erasure, h *metal3api.BareMetalHost) { delete(h.Annotations, annotationPaused) }, ErasePause},
		{&EraseNode{State: "available"}, nil, EraseManage},
		{&EraseNode{State: "manageable"}, nil, EraseClean},
		{&EraseNode{State: "cleaning"}, nil, EraseWait},
		{&EraseNode{State: "clean wait", Silent: false}, nil, EraseWait},
		{&EraseNode{State: "clean wait", Silent: true}, nil, EraseAbort},
		{&EraseNode{State: "clean wait", Quiet: time.Now()}, nil, EraseWait},
		{&EraseNode{State: "clean wait", IsOff: true}, nil, EraseAbort},
		{&EraseNode{State: "cleaning", IsOff: true}, nil, EraseWait}, // Ironic is about to switch it on
		{&EraseNode{State: "manageable", BMC: "it does not answer"}, nil, EraseWait},
		{&EraseNode{State: "manageable", BMC: "it does not answer"}, done, EraseProvide},
		{&EraseNode{State: "clean failed"}, nil, EraseRecover},
		{&EraseNode{State: "manageable", Maintenance: true}, nil, EraseRecover},
		{&EraseNode{State: "manageable"}, done, EraseProvide},
		{&EraseNode{State: "manageable", Cleans: true}, done, EraseProtect},
		{&EraseNode{State: "available"}, done, EraseRelease},
		{&EraseNode{State: "manageable"}, func(e *Erasure, _ *metal3api.BareMetalHost) { e.Tries = maxEraseTries }, EraseProvide},
		{&EraseNode{State: "manageable"}, func(e *Erasure, _ *metal3api.BareMetalHost) { e.Refused = "x" }, EraseProvide},
		{&EraseNode{State: "manageable"}, work, EraseProvide},
		{&EraseNode{State: "available"}, work, EraseRelease},
		{nil, nil, EraseResume},
		{nil, func(_ *Erasure, h *metal3api.BareMetalHost) { delete(h.Annotations, annotationPaused) }, EraseWait},
		{&EraseNode{State: "enroll", Unregistered: true}, nil, EraseResume},
		{&EraseNode{State: "manageable", Unregistered: true}, func(_ *Erasure, h *metal3api.BareMetalHost) {
			delete(h.Annotations, annotationPaused)
		}, EraseWait},
		{&EraseNode{State: "available"}, func(_ *Erasure, h *metal3api.BareMetalHost) { h.UID = "uid-2" }, EraseEnd},
		{&EraseNode{State: "available"}, func(_ *Erasure, h *metal3api.BareMetalHost) { h.Status.Provisioning.State = metal3api.StateProvisioned }, EraseEnd},
		{&EraseNode{State: "available"}, func(_ *Erasure, h *metal3api.BareMetalHost) { h.Annotations[annotationPaused] = "me" }, EraseEnd},
		{&EraseNode{State: "available"}, func(_ *Erasure, h *metal3api.BareMetalHost) {
			delete(h.Annotations, annotationPaused)
			h.Spec.Image = &metal3api.Image{URL: "x"}
		}, EraseEnd},
		{&EraseNode{State: "manageable"}, func(_ *Erasure, h *metal3api.BareMetalHost) { h.DeletionTimestamp = &metav1.Time{} }, EraseRelease},
		// Taken back: the ramdisk need not come up.
		{&EraseNode{State: "clean wait"}, cancelled, EraseAbort},
		{&EraseNode{State: "cleaning"}, cancelled, EraseWait},
		{&EraseNode{State: "clean failed"}, cancelled, EraseRecover},
		{&EraseNode{State: "manageable"}, cancelled, EraseProvide},
		{&EraseNode{State: "available"}, cancelled, EraseRelease},
		{nil, func(e *Erasure, h *metal3api.BareMetalHost) {
			cancelled(e, h)
			delete(h.Annotations, annotationPaused)
		}, EraseEnd},
		{&EraseNode{State: "available"}, func(e *Erasure, h *metal3api.BareMetalHost) {
			cancelled(e, h)
			delete(h.Annotations, annotationPaused)
		}, EraseEnd},
		// All that is left to do for one of which the record was lost.
		{&EraseNode{State: "clean wait"}, lost, EraseWait},
		{&EraseNode{State: "clean wait"}, func(e *Erasure, h *metal3api.BareMetalHost) { lost(e, h); paused(e, h) }, EraseWait},
		{&EraseNode{State: "clean failed"}, lost, EraseRecover},
		{&EraseNode{State: "manageable"}, lost, EraseProvide},
		{&EraseNode{State: "available"}, lost, EraseRelease},
		{nil, lost, EraseResume},
		{&EraseNode{State: "available"}, func(e *Erasure, h *metal3api.BareMetalHost) {
			lost(e, h)
			delete(h.Annotations, annotationPaused)
		}, EraseEnd},
		// Ironic's node comes back before the erasure ends, and the owner's pause stays.
		{&EraseNode{State: "available"}, paused, EraseEnd},
		{&EraseNode{State: "manageable"}, paused, EraseProvide},
		{&EraseNode{State: "manageable", Cleans: true}, paused, EraseProtect},
		{&EraseNode{State: "clean failed"}, paused, EraseRecover},
		{&EraseNode{State: "clean wait"}, paused, EraseAbort},
		{&EraseNode{State: "cleaning"}, paused, EraseWait},
		{&EraseNode{State: "clean wait"}, func(e *Erasure, h *metal3api.BareMetalHost) {
			paused(e, h)
			e.Disks[0].Begun = time.Now()
		}, EraseWait},
		{&EraseNode{State: "inspecting"}, func(e *Erasure, h *metal3api.BareMetalHost) {
			paused(e, h)
			h.Status.Provisioning.State = metal3api.StateInspecting
		}, EraseEnd},
		{&EraseNode{State: "manageable"}, func(e *Erasure, h *metal3api.BareMetalHost) {
			h.DeletionTimestamp = &metav1.Time{}
			paused(e, h)
		}, EraseProvide},
		{nil, paused, EraseEnd},
		{&EraseNode{State: "clean wait"}, func(e *Erasure, _ *metal3api.BareMetalHost) { e.Tries = maxEraseTries }, EraseWait},
	} {
		t.Run(fmt.Sprintf("%d %s", i, c.want), func(t *testing.T) {
			e, h := asked(t)
			if c.change != nil {
				c.change(&e, h)
			}
			step, _ := NextErase(e, h, c.node)
			assert.Equal(t, c.want, step)
		})
	}
	e, h := asked(t)
	step, _ := NextErase(e, nil, nil)
	assert.Equal(t, EraseEnd, step)
	_, why := NextErase(e, h, &EraseNode{State: "clean failed"})
	assert.NotEmpty(t, why, "without a reason the node would not be managed")
	e.Aborted = "its server lost its power"
	_, why = NextErase(e, h, &EraseNode{State: "clean failed", LastError: "By request, the clean operation was aborted"})
	assert.Equal(t, e.Aborted, why)
	_, why = NextErase(e, h, &EraseNode{State: "manageable", BMC: "the BMC 10.30.0.1:443 does not answer"})
	assert.Equal(t, "it waits until its BMC answers: the BMC 10.30.0.1:443 does not answer", why)
	e.Waits = why
	assert.Contains(t, e.Sentence(), "; "+why)
}
