package kube

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"firstlight.dev/firstlight/daemon/engine/bringup"
)

const roleLabel = "node-role.kubernetes.io/control-plane"

func (c *Cluster) nodeDone(ctx context.Context) error {
	api, err := c.connect()
	if err != nil {
		return err
	}

	node, err := api.set.CoreV1().Nodes().Get(ctx, NodeName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("node %s is not registered", NodeName)
	}
	if err != nil {
		return fmt.Errorf("read node: %w", err)
	}

	return c.nodeState(node)
}

// nodeState says what a node object lacks. Ready counts only from a kubelet of this boot: after a
// power cut the object still says what the last one knew.
func (c *Cluster) nodeState(node *corev1.Node) error {
	if len(node.Spec.PodCIDRs) == 0 {
		return fmt.Errorf("node %s has no addresses for pods yet", node.Name)
	}

	conflist, err := networkFile(node.Spec.PodCIDRs)
	if err != nil {
		return bringup.Permanent(err)
	}
	if path := c.differingFile([]file{conflist}); path != "" {
		return fmt.Errorf("%s is not as wanted", path)
	}
	if boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil && node.Status.NodeInfo.BootID != strings.TrimSpace(string(boot)) {
		return fmt.Errorf("the kubelet has not reported since this boot")
	}
	if _, there := node.Labels[roleLabel]; !there {
		return fmt.Errorf("node %s has no role", node.Name)
	}

	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			if condition.Status == corev1.ConditionTrue {
				return nil
			}
			return fmt.Errorf("node %s is not Ready: %s", node.Name, condition.Message)
		}
	}

	return fmt.Errorf("node %s has not said how it is", node.Name)
}

// nodeDo follows the node object: it writes the pods' network as soon as the node has addresses, and
// again if they change, and returns when the node is Ready.
func (c *Cluster) nodeDo(ctx context.Context, report bringup.Report) error {
	api, err := c.connect()
	if err != nil {
		return err
	}
	return askUntil(ctx, 5*time.Minute,
		func(ctx context.Context) (watch.Interface, error) {
			return api.set.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{
				FieldSelector: fields.OneTermEqualSelector("metadata.name", NodeName).String()})
		},
		func(ctx context.Context) error {
			node, err := api.set.CoreV1().Nodes().Get(ctx, NodeName, metav1.GetOptions{})
			if err != nil {
				report("waiting for the kubelet to register the node")
				return fmt.Errorf("read node: %w", err)
			}
			if err := c.repairNode(ctx, api, node); err != nil {
				return err
			}

			err = c.nodeState(node)
			if err != nil {
				report(err.Error())
			}

			return err
		})
}

// expectedPodCIDR is the part of the pods' network that the first node gets: its first /24.
func (c *Cluster) expectedPodCIDR() string {
	bits := max(c.config().PodCIDR.Bits(), 24)
	return netip.PrefixFrom(c.config().PodCIDR.Masked().Addr(), bits).String()
}

// expectNetwork writes the pods' network before there is a node object, as it will most likely be: so
// pods need not wait for the API server's. What the object says is followed later.
func (c *Cluster) expectNetwork() error {
	conflist, err := networkFile([]string{c.expectedPodCIDR()})
	if err != nil {
		return bringup.Permanent(err)
	}
	if c.exists(conflist.path) {
		return nil
	}

	_, err = c.put([]file{conflist})
	return err
}

func (c *Cluster) repairNode(ctx context.Context, api *apiClient, node *corev1.Node) error {
	if len(node.Spec.PodCIDRs) > 0 {
		conflist, err := networkFile(node.Spec.PodCIDRs)
		if err != nil {
			return bringup.Permanent(err)
		}
		if _, err := c.put([]file{conflist}); err != nil {
			return err
		}
	}

	if len(node.Spec.PodCIDRs) == 0 {
		// The controller manager would do it too, but only once it has started.
		patch := fmt.Appendf(nil, `{"spec":{"podCIDR":%[1]q,"podCIDRs":[%[1]q]}}`, c.expectedPodCIDR())
		if _, err := api.set.CoreV1().Nodes().Patch(
			ctx, NodeName, types.StrategicMergePatchType, patch, metav1.PatchOptions{},
		); err != nil {
			return fmt.Errorf("give node its addresses for pods: %w", err)
		}
	}

	if _, there := node.Labels[roleLabel]; there {
		return nil
	}

	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:""}}}`, roleLabel)
	if _, err := api.set.CoreV1().Nodes().Patch(
		ctx, NodeName, types.MergePatchType, patch, metav1.PatchOptions{},
	); err != nil {
		return fmt.Errorf("label node: %w", err)
	}

	return nil
}

// askUntil asks, and asks again at every event of a watch, until the answer is nil or atMost has passed;
// then it returns the last answer. A watch that cannot be had or ends is begun anew.
func askUntil(
	ctx context.Context,
	atMost time.Duration,
	begin func(context.Context) (watch.Interface, error),
	ask func(context.Context) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	var answer error
	for ctx.Err() == nil {
		events, err := begin(ctx)
		if err != nil {
			answer = fmt.Errorf("watch: %w", err)
			sleep(ctx, time.Second)
			continue
		}
		if answer = ask(ctx); answer == nil {
			events.Stop()
			return nil
		}

		answer = eachEvent(ctx, events, ask, answer)
		events.Stop()
		if answer == nil {
			return nil
		}
	}

	return answer
}

func eachEvent(ctx context.Context, events watch.Interface, ask func(context.Context) error, answer error) error {
	for {
		select {
		case <-ctx.Done():
			return answer
		case _, open := <-events.ResultChan():
			if !open {
				sleep(ctx, 200*time.Millisecond)
				return answer
			}
			if err := ask(ctx); err == nil {
				return nil
			} else if ctx.Err() == nil {
				answer = err
			}
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
