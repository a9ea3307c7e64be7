package daemon

import (
	"context"
	"slices"
	"sync/atomic"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// holdFollowers has stages begin when nothing is left that precedes them: precedes says what that is,
// or "". What has held once no longer waits.
func holdFollowers(stages []bringup.Stage, precedes func() string) []bringup.Stage {
	for i, s := range stages {
		var held atomic.Bool
		stages[i].Done = func(ctx context.Context) error {
			if !held.Load() {
				if what := precedes(); what != "" {
					return bringup.Wait("%s", what)
				}
			}

			err := s.Done(ctx)
			held.Store(held.Load() || err == nil)
			return err
		}
	}

	return stages
}

// precedesFollowers is what the site asked for and comes before Cluster API and add-ons, which would take the
// processors from it: its servers, then the clusters of servers that are proven, whichever way each ends. Nothing precedes
// where the launch itself needs Cluster API.
func (d *Daemon) precedesFollowers() string {
	if d.needsClusterAPI() {
		return ""
	}
	return precedingWork(d.verifier.Launch().State, d.finder.Site().ClustersBy(site.ByOperator), d.cluster.Clusters())
}

func precedingWork(launch status.LaunchState, wanted []site.Cluster, clusters []status.Cluster) string {
	if launch == status.LaunchRunning {
		return "the servers that are being inspected and installed"
	}

	if launch != status.LaunchSucceeded {
		return "" // nobody knows when such a cluster gets its servers
	}

	for _, c := range wanted {
		state := status.ClusterNew
		if i := slices.IndexFunc(clusters, func(s status.Cluster) bool { return s.Name == string(c.Name) }); i >= 0 {
			state = clusters[i].State
		}

		switch state {
		case status.ClusterNew, status.ClusterWaiting, status.ClusterInstalling:
			return "the installation of the site's cluster " + string(c.Name)
		}
	}

	return ""
}
