package kube

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"firstlight.dev/firstlight/assets/manifest"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

const system = "kube-system"

// systemObjects are kube-proxy's and CoreDNS's.
func systemObjects(c Config, w HostTraits) (apply.Set, error) {
	var stream []byte
	for _, name := range []string{"kubelet-api.yaml", "kube-proxy.yaml", "coredns.yaml"} {
		text, err := manifestOf(name, c, w)
		if err != nil {
			return apply.Set{}, err
		}
		stream = append(append(stream, text...), "\n---\n"...)
	}
	return apply.Read("firstlight-kube", stream)
}

// manifestOf fills one of the templates, or CoreDNS's, which clusters of nodes have as well.
func manifestOf(name string, c Config, w HostTraits) ([]byte, error) {
	if name != "coredns.yaml" {
		return render(name, newValues(c, w))
	}
	return manifest.CoreDNS{
		Address:     site.NthAddress(c.ServiceCIDR, 10),
		Nameservers: c.Nameservers,
		API:         netip.AddrPortFrom(c.Address, 6443),
		Replicas:    1,
		PullPolicy:  "Never",
	}.YAML()
}

func (c *Cluster) podsDone(ctx context.Context) error {
	set, err := systemObjects(c.config(), c.HostTraits())
	if err != nil {
		return bringup.Permanent(err)
	}

	api, err := c.connect()
	if err != nil {
		return err
	}
	if err := c.routeState(ctx); err != nil {
		return err
	}
	if err := c.memory.CheckCurrent(ctx, set, api.client); err != nil {
		return err
	}

	return c.podsState(ctx, api)
}

// podsState says which of the system's pods is not ready.
func (c *Cluster) podsState(ctx context.Context, api *apiClient) error {
	pods, err := api.set.CoreV1().Pods(system).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}

	deployment, err := api.set.AppsV1().Deployments(system).Get(ctx, "coredns", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read deployment: %w", err)
	}

	return podsVerdict(pods.Items, deployment)
}

// podsVerdict holds that pods of kube-proxy and CoreDNS are ready and that no pod of the control
// plane has failed. What the API shows of the latter are mirrors of the kubelet's static pods,
// which come and change seconds after the parts themselves, and later still after a loss of etcd:
// that the parts work is what control-plane asks and what the other pods depend on.
func podsVerdict(pods []corev1.Pod, dns *appsv1.Deployment) error {
	for _, name := range manifest.StaticPods() {
		if state := stateOf(pods, name, mirrorState); state != absent && state != "" {
			return fmt.Errorf("pod of %s is %s", name, state)
		}
	}

	for _, name := range []string{"kube-proxy", "coredns"} {
		if state := stateOf(pods, name, podState); state != "" {
			return fmt.Errorf("pod of %s is %s", name, state)
		}
	}

	if dns.Status.ObservedGeneration != dns.Generation || dns.Status.UpdatedReplicas < 1 {
		return fmt.Errorf("deployment coredns is being rolled out")
	}

	return nil
}

const absent = "not there"

// stateOf is "" when one of a part's pods is well, else the words for the last of them.
func stateOf(pods []corev1.Pod, part string, of func(*corev1.Pod) string) string {
	state := absent
	for i := range pods {
		if !strings.HasPrefix(pods[i].Name, part+"-") || pods[i].DeletionTimestamp != nil {
			continue
		}
		if state = of(&pods[i]); state == "" {
			break
		}
	}
	return state
}

// mirrorState is podState, and "" for a pod that is only starting: its container was not
// reported yet, is being made, or runs and its startup probe has not succeeded yet.
func mirrorState(p *corev1.Pod) string {
	if p.Status.Phase == corev1.PodPending && len(p.Status.ContainerStatuses) == 0 {
		return ""
	}
	for _, container := range p.Status.ContainerStatuses {
		if w := container.State.Waiting; w != nil && w.Reason == "ContainerCreating" {
			return ""
		}
		if container.State.Running != nil && container.Started != nil && !*container.Started {
			return ""
		}
	}
	return podState(p)
}

// podState is "" for a ready pod, else a few words.
func podState(p *corev1.Pod) string {
	for _, condition := range p.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
			return ""
		}
	}

	for _, container := range p.Status.ContainerStatuses {
		if w := container.State.Waiting; w != nil && w.Reason != "" {
			return strings.TrimSpace("waiting: " + w.Reason + " " + w.Message)
		}
	}

	if p.Status.Phase == corev1.PodRunning {
		return "Running but not ready"
	}

	return strings.ToLower(string(p.Status.Phase))
}

func (c *Cluster) podsDo(ctx context.Context, report bringup.Report) error {
	set, err := systemObjects(c.config(), c.HostTraits())
	if err != nil {
		return bringup.Permanent(err)
	}

	api, err := c.connect()
	if err != nil {
		return err
	}

	if c.routeState(ctx) != nil {
		if err := c.addRoute(ctx); err != nil {
			return err
		}
	}

	if set.CheckCurrent(ctx, api.client) != nil {
		report("writing kube-proxy and CoreDNS")
		if err := set.Apply(ctx, api.client); err != nil {
			return err
		}
	}

	if c.beside != nil {
		c.beside(ctx, report)
	}

	return askUntil(ctx, 5*time.Minute,
		func(ctx context.Context) (watch.Interface, error) {
			return api.set.CoreV1().Pods(system).Watch(ctx, metav1.ListOptions{})
		},
		func(ctx context.Context) error {
			err := c.podsState(ctx, api)
			if err != nil {
				report(err.Error())
			}
			return err
		})
}
