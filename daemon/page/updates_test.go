package page

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
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
	far := d.id("update-default/page-far")
	assert.Contains(t, far.text(), "Windowat any time")
	assert.Contains(t, far.text(), "Pacecontrol planes one after the other; one worker at a time; nodes restart if they must")
	assert.Equal(t, []string{"far-2", "far-3", "far-1"}, texts(rowHeads(far)), "those that are not up to date first")
	assert.Equal(t, "far-2 | Draining: 2 pods are still there | v1.36.2 | 4 change | not yet", cells(d.id("update-default/page-far-far-2")))
	assert.Equal(t, "far-3 | Unknown: no route to host | not known | – | not yet", cells(d.id("update-default/page-far-far-3")))
	assert.Equal(t, "check failed", d.id("update-default/page-far-far-3").attr("class"))
	assert.Equal(t, "far-1 | UpToDate | v1.36.3 | 4 changed | 2026-11-20 12:00:00 UTC", cells(d.id("update-default/page-far-far-1")))
	night := d.id("update-default/nightly")
	assert.Contains(t, night.text(), "default/nightly waiting, paused, nodes 3/3")
	assert.Contains(t, night.text(), "WindowSat, Sun from 22:00 UTC, for 4 hours")
	assert.Contains(t, night.text(), "2 workers at a time; nodes always restart")
	assert.Empty(t, night.all("a"), "a viewer changes nothing")
	assert.Contains(t, d.id("updates-edge").text(), "Nothing keeps its nodes up to date.")
	assert.Nil(t, logInAs(t, r.Server, Operator).open("/updates").id("actions"))

	d = owner.open("/updates")
	assert.Equal(t, []string{"Update the appliance", "Restart the appliance to try it"}, texts(d.id("actions").all("a")))
	assert.Contains(t, d.id("updates-edge").text(), "Begin node updates of edge")
	assert.Equal(t, []string{"Pause the node update default/page-far", "End the node update default/page-far"}, texts(d.id("update-default/page-far").all("a")))
	assert.Equal(t, []string{"Resume the node update default/nightly", "End the node update default/nightly"}, texts(d.id("update-default/nightly").all("a")))
	assert.Equal(t, texts(d.id("update-default/nightly").all("a")),
		texts(owner.open("/clusters/far").id("update-default/nightly").all("a")), "its cluster's page has them, too")
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

// TestANodeUpdateIsPausedResumedAndEnded: with what becomes of it, and its name typed where the page cannot make it again.
func TestANodeUpdateIsPausedResumedAndEnded(t *testing.T) {
	r := newFixture(t)
	b := logInAs(t, r.Server, Owner)
	ask := func(action, name string) document { return b.open("/updates/" + url.PathEscape(name) + "/" + action) }
	d := ask("pause-node-updates", "default/page-far")
	assert.Contains(t, d.id("main").text(), "One that is out of service is completed first.")
	assert.Contains(t, d.id("main").text(), "cluster far")
	assert.Nil(t, d.id("name"), "it can be resumed")
	assert.Contains(t, ask("resume-node-updates", "default/nightly").id("main").text(), "all nodes restart again")
	assert.NotNil(t, ask("end-node-updates", "default/nightly").id("name"))
	assert.Nil(t, ask("end-node-updates", "default/page-far").id("name"), "it is begun again here")

	for _, wrong := range []string{
		"/updates/default%2Fnightly/pause-node-updates", "/updates/default%2Fpage-far/resume-node-updates",
		"/updates/default%2Fgone/end-node-updates",
	} {
		w := b.ask("GET", wrong, "")
		require.Equal(t, http.StatusSeeOther, w.Code, wrong)
		assert.Equal(t, notOffered, b.open(w.Header().Get("Location")).id("notice").text())
	}

	of := r.of.doc.Clusters[len(r.of.doc.Clusters)-1].Updates
	of[0].State = "deleting"
	r.hub.forget()
	assert.Empty(t, b.open("/updates").id("update-default/page-far").all("a"), "it ends already")
}

// TestFewNodesOfANodeUpdateAreListed: those that are not up to date are.
func TestFewNodesOfANodeUpdateAreListed(t *testing.T) {
	of := rack(1)
	u := updatingFar()
	for i := range 200 {
		u.Members = append(u.Members, status.UpdatedNode{Name: fmt.Sprint("w-", i), State: "UpToDate"})
	}
	u.Members = append(u.Members, status.UpdatedNode{Name: "last", State: "Failed", Text: "DNS"})
	of.doc.Clusters[0].Updates = []status.NodeUpdate{u}
	d := logIn(t, newServer(t, of)).open("/updates").id("update-default/page-far")
	heads := texts(rowHeads(d))
	assert.Len(t, heads, maxUpdatedNodes)
	assert.Equal(t, []string{"far-2", "far-3", "last", "far-1"}, heads[:4])
	assert.Contains(t, d.text(), "104 more are not listed.")
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
