package kube

import (
	"context"
	"fmt"
)

// bridge has the address of Config.Address; it is there without a cable.
const bridge = "provisioning"

// routeState says that what runs on the box itself, such as the API server calling a
// webhook, can address Services. kube-proxy gives their packets another destination, but
// the kernel wants a route to the first one before that; a box without a default route,
// which is an appliance without an outer network, has none.
func (c *Cluster) routeState(ctx context.Context) error {
	if _, err := c.Run(ctx, nil, "ip", "route", "get", c.config().ServiceCIDR.Addr().Next().String()); err != nil {
		return fmt.Errorf("no route to Services: %w", err)
	}
	return nil
}

func (c *Cluster) addRoute(ctx context.Context) error {
	_, err := c.Run(
		ctx, nil, "ip", "route", "replace", c.config().ServiceCIDR.String(), "dev", bridge, "src",
		c.config().Address.String(), "metric", "9999",
	)
	return err
}
