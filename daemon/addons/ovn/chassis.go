package ovn

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"firstlight.dev/firstlight/daemon/addons/ovsdb"
)

// Chassis forgets nodes that left the cluster: the others take down their tunnels to them, and another node may have the
// address of one.
type Chassis struct {
	Nodes    corev1client.NodeInterface
	Database string // the southbound one, in the form of ovsdb.Dial
	Log      *slog.Logger

	missing map[string]bool // those that were no nodes the last time
}

// ChassisOf is for the databases of a central part.
func (c Central) ChassisOf(nodes corev1client.NodeInterface, log *slog.Logger) *Chassis {
	return &Chassis{Nodes: nodes, Database: "unix:" + c.socket("sb"), Log: log}
}

const chassisEvery = 30 * time.Second

// Run works until ctx ends.
func (c *Chassis) Run(ctx context.Context) error {
	for {
		if err := c.forget(ctx); err != nil && ctx.Err() == nil {
			c.Log.Warn("nodes that left are not forgotten yet", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(chassisEvery):
		}
	}
}

// forget removes what was no node twice in a row.
func (c *Chassis) forget(ctx context.Context) error {
	nodes, err := c.Nodes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	isNode := map[string]bool{}
	for _, n := range nodes.Items {
		isNode[n.Name] = true
	}
	results, err := ovsdb.Transact(ctx, c.Database, nil, Southbound, ovsdb.Select("Chassis", nil, "name"))
	if err != nil {
		return err
	}

	missing := map[string]bool{}
	var operations []ovsdb.Operation
	for _, r := range results[0].Rows {
		name := r.String("name")
		if isNode[name] {
			continue
		}
		missing[name] = true
		if c.missing[name] {
			c.Log.Info("a node left the cluster", "node", name)
			itself := []ovsdb.Condition{ovsdb.Equal("name", name)}
			operations = append(operations, ovsdb.Delete("Chassis", itself), ovsdb.Delete("Chassis_Private", itself))
		}
	}
	c.missing = missing
	if len(operations) == 0 {
		return nil
	}
	_, err = ovsdb.Transact(ctx, c.Database, nil, Southbound, operations...)
	return err
}
