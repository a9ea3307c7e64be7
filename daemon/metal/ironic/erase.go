package ironic

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"
)

// Node is one of Ironic's nodes with all its fields; nil if there is none.
func (c *Client) Node(ctx context.Context, node string) (*nodes.Node, error) {
	service, err := c.connect()
	if err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	n, err := nodes.Get(ctx, service, url.PathEscape(node)).Extract()
	switch {
	case gophercloud.ResponseCodeIs(err, http.StatusNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("ask Ironic for node %s: %w", node, err)
	}
	return n, nil
}

// EraseDisks has Ironic run the ramdisk's step erase_disks on a node that is manageable (Ironic API, PUT
// /v1/nodes/NODE/states/provision with clean_steps; overlays/ramdisk, firstlight_eraser.py). disks are what the step
// gets as its argument. Ironic answers before the server is switched on.
func (c *Client) EraseDisks(ctx context.Context, node string, disks any) error {
	return c.change(ctx, node, nodes.ProvisionStateOpts{Target: nodes.TargetClean, CleanSteps: []nodes.CleanStep{{
		Interface: nodes.InterfaceDeploy,
		Step:      EraseStep,
		Args:      map[string]any{"disks": disks},
	}}})
}

// EraseStep is the name of the ramdisk's step.
const EraseStep = "erase_disks"

// Manage has Ironic take a node from those that are available, or from those whose cleaning failed.
func (c *Client) Manage(ctx context.Context, node string) error {
	return c.change(ctx, node, nodes.ProvisionStateOpts{Target: nodes.TargetManage})
}

// Provide has Ironic make a manageable node available. It cleans the node if its automated_clean is not false.
func (c *Client) Provide(ctx context.Context, node string) error {
	return c.change(ctx, node, nodes.ProvisionStateOpts{Target: nodes.TargetProvide})
}

// Abort has Ironic stop to wait for the agent of a node that it cleans.
func (c *Client) Abort(ctx context.Context, node string) error {
	return c.change(ctx, node, nodes.ProvisionStateOpts{Target: nodes.TargetAbort})
}

// Protect has Ironic clean no disk of a node on its own (automated_clean).
func (c *Client) Protect(ctx context.Context, node string) error {
	service, err := c.connect()
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	patch := nodes.UpdateOpts{nodes.UpdateOperation{Op: nodes.ReplaceOp, Path: "/automated_clean", Value: false}}
	if err := nodes.Update(ctx, service, url.PathEscape(node), patch).Err; err != nil {
		return fmt.Errorf("have Ironic clean no disk of node %s: %w", node, err)
	}
	return nil
}

func (c *Client) change(ctx context.Context, node string, to nodes.ProvisionStateOpts) error {
	service, err := c.connect()
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	if err := nodes.ChangeProvisionState(ctx, service, url.PathEscape(node), to).ExtractErr(); err != nil {
		return fmt.Errorf("ask Ironic to %s node %s: %w", to.Target, node, err)
	}
	return nil
}
