package daemon

import (
	"context"

	"firstlight.dev/firstlight/daemon/engine/bringup"
	"firstlight.dev/firstlight/daemon/metal/ironic"
	"firstlight.dev/firstlight/daemon/metal/verify/fact"
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

// ironicAccess is how Ironic is asked.
func (m *metal) ironicAccess() (ironic.Access, error) {
	authority, err := m.ca()
	if err != nil {
		return ironic.Access{}, err
	}
	credentials, err := ironic.OpenCredentials(secretDir)
	return ironic.Access{
		Endpoint: m.ironic().Endpoint(), Username: credentials.Username, Password: credentials.Password, CA: string(authority.PEM()),
	}, err
}

// ironicNodes are Ironic's nodes, by the name of their host.
func (m *metal) ironicNodes(ctx context.Context) (map[string]fact.Ironic, error) {
	all, err := m.ironicClient.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	return fact.IronicNodes(all), nil
}
