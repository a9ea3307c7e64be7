package daemon

import (
	"context"
	"sync/atomic"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// waitForLaunch has stages that follow Ready begin when the launch is over, whichever way: the servers that are being
// inspected and installed come first. What has held once no longer waits, and nothing does where the launch itself needs
// them: of a site that gives nodes to Cluster API.
func waitForLaunch(plan []bringup.Stage, launch func() status.Launch, needed func() bool) []bringup.Stage {
	for i, s := range plan {
		if !s.AfterReady {
			continue
		}

		var held atomic.Bool
		plan[i].Done = func(ctx context.Context) error {
			if !held.Load() && !needed() && launch().State == status.LaunchRunning {
				return bringup.Wait("the servers that are being inspected and installed")
			}

			err := s.Done(ctx)
			held.Store(held.Load() || err == nil)
			return err
		}
	}

	return plan
}
