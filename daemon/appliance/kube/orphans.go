package kube

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// skew is by how much the maker's clock and this one may differ.
const skew = time.Minute

// orphan is a container, or the sandbox of a pod, that ended and says that it will be made later
// than now: the clock was set back. The kubelet takes the one made last for the present one, counts
// on from that and then asks for a name that another has, so that its pod never starts again.
type orphan struct {
	sandbox bool
	id      string
	name    string // POD/CONTAINER, or POD
}

// findOrphans are those that must go. What runs is left alone: the kubelet needs nothing else of it.
func findOrphans(sandboxes []*cri.PodSandbox, containers []*cri.Container, now time.Time) []orphan {
	later := func(at int64) bool { return at > now.Add(skew).UnixNano() }
	var all []orphan
	for _, c := range containers {
		if c.State != cri.ContainerState_CONTAINER_RUNNING && later(c.CreatedAt) {
			all = append(all, orphan{false, c.Id, c.Labels["io.kubernetes.pod.name"] + "/" + c.GetMetadata().GetName()})
		}
	}

	for _, s := range sandboxes {
		runs := slices.ContainsFunc(containers, func(c *cri.Container) bool {
			return c.PodSandboxId == s.Id && c.State == cri.ContainerState_CONTAINER_RUNNING
		})
		if s.State != cri.PodSandboxState_SANDBOX_READY && !runs && later(s.CreatedAt) {
			all = append(all, orphan{true, s.Id, s.GetMetadata().GetName()})
		}
	}

	return all
}

// callRuntime calls containerd by the Container Runtime Interface.
func (c *Cluster) callRuntime(call func(cri.RuntimeServiceClient) error) error {
	return c.dial(func(conn *grpc.ClientConn) error { return call(cri.NewRuntimeServiceClient(conn)) })
}

// listOrphans waits for containerd as long as it does not answer.
func (c *Cluster) listOrphans(ctx context.Context) (found []orphan, err error) {
	err = c.callRuntime(func(r cri.RuntimeServiceClient) error {
		sandboxes, err := r.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
		if err != nil {
			return bringup.Wait("containerd to list pods: %v", err)
		}

		containers, err := r.ListContainers(ctx, &cri.ListContainersRequest{})
		if err != nil {
			return bringup.Wait("containerd to list containers: %v", err)
		}

		found = findOrphans(sandboxes.Items, containers.Containers, c.Now())
		return nil
	})
	return found, err
}

func (c *Cluster) removeOrphans(ctx context.Context, all []orphan) error {
	return c.callRuntime(func(r cri.RuntimeServiceClient) error {
		for _, s := range all {
			var err error
			if s.sandbox {
				// Stopping gives back the pod's address.
				if _, err = r.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: s.id}); err == nil {
					_, err = r.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: s.id})
				}
			} else {
				_, err = r.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: s.id})
			}
			if err != nil {
				return fmt.Errorf("remove %s, made before the clock was set back: %w", s.name, err)
			}
		}
		return nil
	})
}
