package ovn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	appsv1client "k8s.io/client-go/kubernetes/typed/apps/v1"
	"sigs.k8s.io/knftables"

	"firstlight.dev/firstlight/daemon/addons/removal"
)

// NodeName is that of the DaemonSet.
const NodeName = "ovn"

// Leave is what a pod does that is ending. If the DaemonSet was removed, the node is as it was before; pods lose their
// interfaces of OVN's networks.
func (u *Underlay) Leave(ctx context.Context, sets appsv1client.DaemonSetInterface) error {
	removed, err := removal.IsRemoved(ctx, sets, NodeName)
	if err != nil {
		u.Log.Warn("the underlay stays: whether it was removed is unknown", "error", err)
		return nil
	}
	if !removed {
		return nil
	}
	u.Log.Info("the add-on was removed; so is what it made", "node", u.Node)
	return errors.Join(removeTable(ctx), removeNamespace(Namespace), removeRun(Run))
}

func removeTable(ctx context.Context) error {
	nft, err := knftables.New(knftables.IPv4Family, TableName)
	if err != nil {
		return fmt.Errorf("open table %s: %w", TableName, err)
	}
	tx := nft.NewTransaction()
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Table{})
	if err := nft.Run(ctx, tx); err != nil {
		return fmt.Errorf("remove table %s: %w", TableName, err)
	}
	return nil
}

// removeRun empties the folder of sockets, which is mounted: the next installation begins with nothing.
func removeRun(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("empty %s: %w", dir, err)
	}
	var failed []error
	for _, e := range entries {
		failed = append(failed, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return errors.Join(failed...)
}
