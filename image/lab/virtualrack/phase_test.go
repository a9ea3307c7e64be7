package virtualrack

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/assets/status"
)

func TestConsoleFollowsTheAppliance(t *testing.T) {
	var c phaseTracker
	c.powerOn()
	for _, step := range []struct {
		line, phase string
		percent     int
	}{
		{"SeaBIOS (version 1.16.2)", PhaseFirmware, 0},
		{"Firstlight 0.1.0: looking for the stick", PhaseInitramfs, 5},
		{"Welcome to Debian GNU/Linux 13 (trixie)!", PhaseSystemd, 10},
		{"firstlight 0.1.0: lab, boot 5b1a", PhaseSystemd, 10},
		{"firstlight: data-mounted: ok, 0.1 s", "data-mounted", 20},
		{"firstlight: provisioning 172.22.0.1/24 (ens3 52:54:00:f1:00:01, link)", "data-mounted", 20},
		{"firstlight: images-present: importing 7 images", "images-present", 20},
		{"firstlight: note: NIC ens9 is not used", "images-present", 20},
		{"firstlight: images-present: ok, 65.3 s", "images-present", 25},
		{"firstlight: node node-1: it is inspecting", "images-present", 25},
		{"kernel: something else", "images-present", 25},
		{"firstlight: images-present: the image is gone", "images-present", 20},
		{"firstlight: Ready. Log in: ssh root@172.22.0.1", PhaseReady, 100},
		{"firstlight: Needs you: not launched, 8 of 50 nodes. Do what is written next to the nodes.", PhaseReady, 100},
		{"Firstlight 0.1.0: looking for the stick", PhaseInitramfs, 5},
	} {
		c.handleLine(step.line)
		phase, percent := applianceState(true, c, nil)
		assert.Equal(t, step.phase, phase, step.line)
		assert.Equal(t, step.percent, percent, step.line)
	}
	phase, _ := applianceState(false, c, nil)
	assert.Equal(t, PhaseOff, phase)
}

func TestTheAppliancesOwnWordCounts(t *testing.T) {
	doc := &status.Document{Stages: []status.Stage{
		{Name: "links-up", State: status.StateReady}, {Name: "control-plane", State: status.StateWorking}, {Name: "node-ready", State: status.StateWaiting},
	}}
	phase, percent := applianceState(true, phaseTracker{phase: PhaseSystemd}, doc)
	assert.Equal(t, "control-plane", phase)
	assert.Equal(t, 66, percent)
	for i := range doc.Stages {
		doc.Stages[i].State = status.StateReady
	}
	doc.Stages = append(doc.Stages, status.Stage{Name: "cluster-api-ready", AfterReady: true, State: status.StateWorking})
	phase, percent = applianceState(true, phaseTracker{}, doc)
	assert.Equal(t, PhaseReady, phase)
	assert.Equal(t, 100, percent)
}

func TestNodeNow(t *testing.T) {
	doc := &status.Document{Nodes: []status.Node{
		{Name: "new", State: "absent", Why: "its BMC does not answer"},
		{Name: "old", State: "inspecting"},
		{Name: "far", State: "provisioning", Percent: 77},
		{Name: "done", State: "provisioned", Verified: true},
	}}
	for name, want := range map[string]struct {
		phase   string
		percent int
	}{"new": {PhaseWaiting, 0}, "old": {"inspecting", 15}, "far": {"provisioning", 77}, "done": {PhaseVerified, 100}, "unknown": {PhaseWaiting, 0}} {
		phase, percent, _ := nodeState(name, doc)
		assert.Equal(t, want.phase, phase, name)
		assert.Equal(t, want.percent, percent, name)
	}
	phase, _, _ := nodeState("old", nil)
	assert.Equal(t, PhaseWaiting, phase)
}

func TestStrangers(t *testing.T) {
	doc := &status.Document{Nodes: []status.Node{{Name: "node-1", Why: "is proven"}, {Name: "old", Why: "is not in site.yaml any more", Next: "give it up"},
		{Name: "52:54:00:f1:02:01", Why: "is not in site.yaml"}, {Name: "52:54:00:00:00:01", Why: "is not in site.yaml"}}}
	assert.Equal(t, []UnknownMachine{{"old", "", "is not in site.yaml any more", "give it up"}, {"52:54:00:f1:02:01", "node-2", "is not in site.yaml", ""}, {"52:54:00:00:00:01", "", "is not in site.yaml", ""}},
		Plan(DefaultOrder()).unknownMachines(doc))
}

func TestWhatTheApplianceCannotKnow(t *testing.T) {
	c := &machine{MachineSpec: MachineSpec{Name: "node-1"}, paused: true}
	said := Machine{On: true, Why: "boots from the network", Error: "an old one"}
	m := c.addOwnState(said)
	assert.True(t, m.Paused)
	assert.Equal(t, "its time stands still: it is paused", m.Why)
	assert.Equal(t, "`firstlight lab power node-1 resume` lets it go on", m.Next)
	c.paused, c.failed = false, errors.New("QEMU has ended: no memory")
	assert.Equal(t, "QEMU has ended: no memory", c.addOwnState(said).Why)
	c.failed = nil
	assert.Equal(t, said, c.addOwnState(said))
}

func TestSettled(t *testing.T) {
	nodes := func(states ...string) (all []status.Node) {
		for _, s := range states {
			all = append(all, status.Node{State: s})
		}
		return all
	}
	launched := func(clusters ...string) *status.Document {
		doc := &status.Document{Launch: status.Launch{State: status.LaunchSucceeded}}
		for _, state := range clusters {
			doc.Clusters = append(doc.Clusters, status.Cluster{Name: "edge", State: state})
		}
		return doc
	}
	for name, c := range map[string]struct {
		doc          *status.Document
		over, failed bool
		cluster      bool
	}{
		"not to be asked":            {nil, false, false, false},
		"stopped":                    {&status.Document{State: status.StateFailed}, true, true, false},
		"on their way":               {&status.Document{Nodes: nodes("provisioned", "provisioned"), Launch: status.Launch{State: status.LaunchRunning}}, false, false, false},
		"launched":                   {&status.Document{Launch: status.Launch{State: status.LaunchSucceeded}}, true, false, false},
		"launch failed":              {&status.Document{Launch: status.Launch{State: status.LaunchFailed}}, true, true, false},
		"no word, one is not":        {&status.Document{Nodes: nodes("provisioned", "provisioning")}, false, false, false},
		"no word, all are":           {&status.Document{Nodes: nodes("provisioned", "provisioned")}, true, false, false},
		"launched, no cluster yet":   {launched(), false, false, true},
		"launched, being installed":  {launched("installing"), false, false, true},
		"launched, one of two ready": {launched("ready", "installing"), false, false, true},
		"launched, ready":            {launched("ready"), true, false, true},
		"launched, refused":          {launched("refused"), true, true, true},
	} {
		over, failed, _ := rackOutcome(c.doc, Order{Nodes: 2, Cluster: c.cluster})
		assert.Equal(t, c.over, over, name)
		assert.Equal(t, c.failed, failed, name)
	}
}

func TestOffs(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	last := map[string]Event{
		"node-1": {at(100), "node-1", "inspecting", 20}, "node-2": {at(50), "node-2", PhaseOff, 7}, "appliance": {at(110), "appliance", "ready", 90},
		"cluster edge": {at(90), "cluster edge", "installing", 0},
	}
	assert.Equal(t, []Event{{at(200), "appliance", "off", 120}, {at(200), "cluster edge", "off", 0}, {at(200), "node-1", "off", 30}},
		closingEvents(last, at(200), map[string]float64{"appliance": 120, "node-1": 30, "node-2": 8}))
	assert.Equal(t, []Event{{at(110), "appliance", "off", 90}, {at(105), "cluster edge", "off", 0}, {at(105), "node-1", "off", 20}},
		closingEvents(last, at(105), nil), "a phase does not end before it began")
	assert.Empty(t, closingEvents(nil, at(1), nil))
}

func TestSpans(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	got := Spans([]Event{
		{at(0), "appliance", "firmware", 0}, {at(0), "node-1", "waiting", 0}, {at(4), "appliance", "initramfs", 3},
		{at(100), "node-1", "inspecting", 0}, {at(110), "appliance", "ready", 90},
		{at(200), "appliance", "off", 0}, // a supervisor that started again
	}, at(300), map[string]float64{"node-1": 50, "appliance": 5})
	assert.Equal(t, []Span{
		{"appliance", "firmware", 4, 3, false}, {"appliance", "initramfs", 106, 87, false}, {"appliance", "ready", 90, 0, false}, {"appliance", "off", 100, 5, true},
		{"node-1", "waiting", 100, 0, false}, {"node-1", "inspecting", 200, 50, true},
	}, got)
}
