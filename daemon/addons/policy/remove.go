package policy

import (
	"context"

	"firstlight.dev/firstlight/daemon/addons/removal"
)

// The DaemonSet that runs the agent.
const (
	Namespace = "kube-system"
	Name      = "network-policy"
)

// end leaves the table for the agent that comes next, or removes it with the add-on.
func (a *Agent) end() error {
	removed, err := removal.IsRemoved(context.Background(), a.Client.AppsV1().DaemonSets(Namespace), Name)
	switch {
	case err != nil:
		a.Log.Warn("table stays, as nobody says whether the add-on was removed; if so: nft delete table inet "+TableName, "error", err)
		return nil
	case !removed:
		a.Log.Info("table stays for the next agent")
		return nil
	}

	a.Log.Info("add-on is being removed: table goes, and every pod is open")
	return a.Table.Remove(context.Background())
}
