package page

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/stickupdate"
)

// versions are those of an appliance whose other slot has a version that is tried next, and that has one uploaded.
func versions() UpdateState {
	return UpdateState{
		Status: stickupdate.Status{
			Running: stick.SlotA, Starts: stick.SlotB,
			Slots:   map[stick.Slot]string{stick.SlotA: "0.1.0", stick.SlotB: "0.2.0"},
			Last:    stickupdate.Attempt{From: "0.1.0", To: "0.2.0", Slot: stick.SlotB},
			Outcome: stickupdate.Waiting, Text: "version 0.2.0 is written to slot b and is tried at the next start",
		},
		Images: []UpdateImage{
			{Name: "alpha/edge/firstlight.img", Version: "0.3.0"}, {Name: "alpha/edge/old.img", Version: "0.0.9"},
		},
	}
}

func previewedUpdate(image string) (stickupdate.Attempt, error) {
	if image != "alpha/edge/firstlight.img" {
		return stickupdate.Attempt{}, errors.New("0.0.9 is older than the running 0.1.0; nothing is written")
	}
	return stickupdate.Attempt{From: "0.1.0", To: "0.3.0", Slot: stick.SlotB, SignedBy: "K1"}, nil
}

// TestUpdatesAreShown in each state: waiting, on trial, being written, failed, and not to be read.
func TestUpdatesAreShown(t *testing.T) {
	r := newFixture(t)
	viewer, owner := logInAs(t, r.Server, Viewer), logInAs(t, r.Server, Owner)
	d := viewer.open("/updates")
	assert.Contains(t, d.id("versions").text(), "Version 0.1.0 runs.")
	assert.Equal(t, "a0.1.0running", d.id("slot-a").text())
	assert.Equal(t, "b0.2.0next start", d.id("slot-b").text())
	assert.Contains(t, d.id("last").text(), "On its way version 0.2.0 is written to slot b")
	assert.Nil(t, d.id("actions"))
	assert.Contains(t, d.id("updates-far").text(), "default/page-far updating, nodes 1/3 33 % 33 %: node far-2 is drained")
	assert.Contains(t, d.id("updates-edge").text(), "Nothing keeps its nodes up to date.")
	assert.Nil(t, logInAs(t, r.Server, Operator).open("/updates").id("actions"))

	d = owner.open("/updates")
	assert.Equal(t, []string{"Update the appliance", "Restart the appliance to try it"}, texts(d.id("actions").all("a")))
	assert.Contains(t, d.id("updates-edge").text(), "Begin node updates of edge")
	assert.Contains(t, d.id("updates-far").text(), "End node updates of far")
	assert.NotContains(t, d.id("updates-lab").text(), "Begin node updates", "it failed")

	now := versions()
	show := func(change func(*UpdateState)) document {
		now = versions()
		change(&now)
		r.versions.expire("")
		return owner.open("/updates")
	}
	r.of.updates = func() UpdateState { return now }
	d = show(func(s *UpdateState) {
		s.Running, s.Trial, s.Outcome, s.Text = stick.SlotB, true, stickupdate.OnTrial, "version 0.2.0 is on trial in slot b"
	})
	assert.Equal(t, "b0.2.0running, on trial, next start", d.id("slot-b").text())
	assert.Nil(t, d.id("actions"), "a version on trial is not updated")
	r.of.writing = stickupdate.BackgroundState{IsRunning: true, Phase: "writes root", Done: 50, Total: 200}
	d = show(func(*UpdateState) {})
	assert.Contains(t, d.id("writing").text(), "writes root 25 %")
	assert.Nil(t, d.id("actions"))
	now.Text = "version 0.3.0 is written"
	r.of.writing = stickupdate.BackgroundState{}
	r.hub.forget()
	mustPicture(t, r.Server) // sees the end
	assert.Contains(t, owner.open("/updates").id("last").text(), "0.3.0 is written", "the stick was read again")
	r.of.writing = stickupdate.BackgroundState{Error: "the disk is gone"}
	d = show(func(*UpdateState) {})
	assert.Contains(t, d.id("writing").text(), "was not written: the disk is gone")
	r.of.writing = stickupdate.BackgroundState{}
	d = show(func(s *UpdateState) {
		s.Outcome, s.Text = stickupdate.FellBack, "version 0.2.0 was tried, was not ready in time"
	})
	assert.Contains(t, d.id("last").text(), "Needs you version 0.2.0 was tried")
	d = show(func(s *UpdateState) { s.Outcome, s.Text, s.Images = stickupdate.None, "", nil })
	assert.Contains(t, d.id("versions").text(), "It was not updated yet.")
	assert.Contains(t, d.id("versions").text(), "No version is uploaded.")
	assert.Nil(t, d.id("actions"))

	r.of.updates = nil
	r.versions.expire("")
	assert.Contains(t, owner.open("/updates").id("failed").text(), "the stick is gone")
	r.api.forbids = true
	r.reviews.expire("ann@laptop\nowner\nget\nupdates")
	d = owner.open("/updates")
	assert.Contains(t, d.id("versions").text(), "Not shown: the appliance's API server does not allow that")
	assert.NotNil(t, d.id("updates-far"), "the rest is")
}

// TestOneVersionIsChosen: none, two, and one that is refused are told.
func TestOneVersionIsChosen(t *testing.T) {
	r := newFixture(t)
	b := logInAs(t, r.Server, Owner)
	d := b.open("/updates/update")
	var kinds []string
	for _, i := range d.id("main").all("input") {
		kinds = append(kinds, i.attr("type"))
	}
	assert.Equal(t, []string{"radio", "radio"}, kinds)
	w := b.ask("GET", "/updates/update?choice=alpha/edge/old.img", "")
	assert.Equal(t, http.StatusUnprocessableEntity, w.Code)
	assert.Contains(t, w.Body.String(), "0.0.9 is older than the running 0.1.0")
	w = b.ask("GET", "/updates/update?choice=a&choice=b", "")
	assert.Contains(t, w.Body.String(), "choose one version")
	d = b.open("/updates/update?choice=alpha/edge/firstlight.img")
	assert.Contains(t, d.id("main").text(), "It is written to slot b; 0.1.0 runs.")
	assert.Contains(t, d.id("main").text(), "It is signed by the key K1.")
	assert.Empty(t, r.api.takeDone())
}
