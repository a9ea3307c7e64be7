package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/console"
	"firstlight.dev/firstlight/daemon/metal/provisioning"
	"firstlight.dev/firstlight/daemon/metal/verify"
)

// newVerifier wires what verifies nodes to those who know of them.
func (d *Daemon) newVerifier() *verify.Engine {
	sources := d.metal.Sources()
	sources.Appliance, sources.Clock = d.beforeNodes, d.clockFacts
	sources.HandsOver = d.stageBegun("site-handed-over")
	return &verify.Engine{
		Sources:  sources,
		Outcomes: verify.Store{API: d.metal.Client},
		Logins:   d.metal.Logins(),
		Refusals: &verify.Refusals{Path: provisioning.RefusalsFile, Log: d.log},
		Pins:     d.metal.Pins,
		Changed:  d.nodesChanged,
		Logger:   d.log.With("part", "verify"),
	}
}

// nodesChanged kicks whatever waits for nodes: the registration, and the screens.
func (d *Daemon) nodesChanged() {
	d.metal.Recheck()
	select {
	case d.drawn <- struct{}{}:
	default:
	}
}

// beforeNodes is what the appliance still waits for before it knows of nodes.
func (d *Daemon) beforeNodes() string {
	if d.metal.Hosts.IsCurrent() {
		return ""
	}

	for _, s := range d.runner.Snapshot().Stages {
		if s.State != status.StateReady && !s.AfterReady {
			return console.StageText(s)
		}
	}

	return "its hosts are being read"
}

func (d *Daemon) clockFacts() verify.Clock {
	built, asked, answered := d.host.Clock()
	return verify.Clock{Now: time.Now(), Built: built, HasServers: asked, Server: answered}
}

// recordsFile holds what was heard on the wire, for when the daemon is dead; it lies in
// memory, as the records do.
const recordsFile = stick.RunDir + "/wire.json"

// writeTraces writes that file now and then, as long as something moves.
func (d *Daemon) writeTraces(ctx context.Context) error {
	var last []byte
	for ctx.Err() == nil {
		text, err := json.Marshal(d.boot.Traces())
		if err == nil && !bytes.Equal(text, last) {
			err = atomicfile.Write(recordsFile, text, 0o600)
			last = text
		}

		if err != nil {
			d.log.Debug("records not kept", "error", err)
		}

		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Second):
		}
	}
	return nil
}
