package daemon

import (
	"context"
	"time"

	"firstlight.dev/firstlight/daemon/engine/bringup"
	"firstlight.dev/firstlight/daemon/metal/ironic"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// ironicStage is begun beside the system's pods: Ironic is on the appliance's own network and asks neither the
// API nor the name server, and it takes as long to start as they do.
func (m *metal) ironicStage() bringup.Stage {
	stage := ironic.Stage(m.pod, m.client)
	m.kube.Beside = func(ctx context.Context, report bringup.Report) {
		if err := bringup.Begin(ctx, stage, report); err != nil {
			m.log.Info("Ironic cannot be started yet", "error", err)
		}
	}
	return stage
}

// diskContents asks Ironic what a node's inspection found on its disks.
func (m *metal) diskContents(ctx context.Context, node string) (metal3.Contents, error) {
	api, err := m.ironicAPI()
	if err != nil {
		return nil, err
	}
	return api.DiskContents(ctx, node)
}

// agentsDue asks Ironic on which agents it would count that have not called yet.
func (m *metal) agentsDue(ctx context.Context) (map[string]bool, error) {
	api, err := m.ironicAPI()
	if err != nil {
		return nil, err
	}
	return api.AgentsDue(ctx, time.Now())
}

func (m *metal) ironicAPI() (ironic.API, error) {
	authority, err := m.ca()
	if err != nil {
		return ironic.API{}, err
	}
	credentials, err := ironic.OpenCredentials(secretDir)
	return ironic.API{Endpoint: m.ironic().Endpoint(), Credentials: credentials, CA: authority.PEM()}, err
}
