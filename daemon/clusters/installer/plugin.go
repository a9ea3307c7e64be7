package installer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// plugin is a bundle of manifests that a cluster may have besides what every cluster has: the template
// plugin-NAME.yaml. Its images are on the stick.
type plugin struct {
	name string
	fact string
	// ready says what it still waits for; it changes nothing.
	ready func(context.Context, *cluster, *api) error
	// test has it do what it is for, once in a run; nil if ready shows that already.
	test func(context.Context, *cluster, *api) error
}

// catalogue lists the plugins of the stick.
func catalogue() []plugin {
	return []plugin{
		{name: "metrics-server", fact: "kubectl top shows what every node uses",
			ready: metricsReady},
		{name: "local-path-provisioner", fact: "a claim for storage gets a directory on its node's disk",
			ready: func(ctx context.Context, _ *cluster, a *api) error {
				return deploymentReady(ctx, a, "local-path-storage", "local-path-provisioner")
			},
			test: storageTest},
	}
}

// Plugins are the names of the plugins that the stick carries.
func Plugins() []string {
	var names []string
	for _, p := range catalogue() {
		names = append(names, p.name)
	}
	return names
}

// choosePlugins finds plugins by name, in the order asked for, each once.
func choosePlugins(names []string) (chosen []plugin, err error) {
	for _, name := range names {
		i := slices.IndexFunc(catalogue(), func(p plugin) bool { return p.name == name })
		if i < 0 {
			return nil, fmt.Errorf("plugin %q is not on this stick; it has %s", name, strings.Join(Plugins(), ", "))
		}
		if p := catalogue()[i]; !slices.ContainsFunc(chosen, func(c plugin) bool { return c.name == p.name }) {
			chosen = append(chosen, p)
		}
	}
	return chosen, nil
}

// renderObjects fills a template of objects.
func (c *cluster) renderObjects(template, owner string) (apply.Set, error) {
	text, err := render(template, newValues(c.Settings, c.inv))
	if err != nil {
		return apply.Set{}, bringup.Permanent(err)
	}

	set, err := apply.Read(owner, text)
	if err != nil {
		return apply.Set{}, bringup.Permanent(err)
	}

	return set, nil
}

func (c *cluster) pluginStage(p plugin) bringup.Stage {
	tested := p.test == nil
	begin := func(ctx context.Context) (apply.Set, *api, error) {
		set, err := c.renderObjects("plugin-"+p.name+".yaml", "firstlight-"+p.name)
		if err != nil {
			return set, nil, err
		}

		a, err := c.connect(ctx)
		return set, a, err
	}
	return bringup.Stage{
		Name: "plugin-" + p.name,
		Fact: p.fact,
		Why:  "In the order of the Provisioning: a later plugin may rely on an earlier one.",
		Done: func(ctx context.Context) error {
			set, a, err := begin(ctx)
			if err != nil {
				return err
			}
			if err := set.CheckCurrent(ctx, a.client); err != nil {
				return err
			}
			if err := p.ready(ctx, c, a); err != nil || tested {
				return err
			}

			return errors.New("it was not tried yet")
		},
		Do: func(ctx context.Context, report bringup.Report) error {
			set, a, err := begin(ctx)
			if err != nil {
				return err
			}

			if set.CheckCurrent(ctx, a.client) != nil {
				if err := set.Apply(ctx, a.client); err != nil {
					return err
				}
			}

			if tested || p.ready(ctx, c, a) != nil {
				return nil
			}

			report("trying it")
			if err := p.test(ctx, c, a); err != nil {
				return err
			}

			tested = true
			return nil
		},
	}
}

func deploymentReady(ctx context.Context, a *api, namespace, name string) error {
	list, err := a.set.AppsV1().Deployments(namespace).List(
		ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name},
	)
	if err != nil {
		return fmt.Errorf("read deployment %s: %w", name, err)
	}
	if len(list.Items) == 0 {
		return fmt.Errorf("deployment %s is not there", name)
	}

	return workloadsVerdict(nil, list.Items)
}

// metricsReady asks for what every node uses.
func metricsReady(ctx context.Context, c *cluster, a *api) error {
	text, err := a.set.Discovery().RESTClient().Get().AbsPath("/apis/metrics.k8s.io/v1beta1/nodes").DoRaw(ctx)
	if err != nil {
		return bringup.Wait("the metrics API: %v", err)
	}
	return metricsVerdict(text, c.nodes)
}

// metricsVerdict holds that an answer of the metrics API has something of every node.
func metricsVerdict(text []byte, nodes []*node) error {
	var list struct {
		Items []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
			Usage map[string]string `json:"usage"`
		} `json:"items"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return fmt.Errorf("read metrics of nodes: %w", err)
	}

	used := map[string]string{}
	for _, i := range list.Items {
		used[i.Metadata.Name] = i.Usage["memory"]
	}

	for _, n := range nodes {
		if used[n.Label] == "" {
			return bringup.Wait("metrics of %s", n.Label)
		}
	}

	return nil
}

const storageNamespace = "firstlight-test-storage"

// storageTest has a volume written and read, and removed again.
func storageTest(ctx context.Context, c *cluster, a *api) error {
	set, err := c.renderObjects("test-local-path-provisioner.yaml", "firstlight-installer")
	if err != nil {
		return err
	}
	if err := c.firstControlPlane().waitFor(
		ctx, time.Minute, func(ctx context.Context) error { return set.Apply(ctx, a.client) },
	); err != nil {
		return err
	}

	err = c.firstControlPlane().waitFor(ctx, 3*time.Minute, func(ctx context.Context) error {
		pod, err := a.set.CoreV1().Pods(storageNamespace).Get(ctx, "test", metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read pod: %w", err)
		}
		if pod.Status.Phase != corev1.PodSucceeded {
			return fmt.Errorf("the pod that tries a volume is %s", strings.ToLower(string(pod.Status.Phase)))
		}

		return nil
	})
	// Also what failed goes: the next try begins with nothing.
	removed := a.set.CoreV1().Namespaces().Delete(ctx, storageNamespace, metav1.DeleteOptions{})
	if apierrors.IsNotFound(removed) {
		removed = nil
	}

	if err := errors.Join(err, removed); err != nil {
		return err
	}

	return c.firstControlPlane().waitFor(ctx, 2*time.Minute, func(ctx context.Context) error {
		volumes, err := a.set.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("list volumes: %w", err)
		}

		for _, v := range volumes.Items {
			if v.Spec.ClaimRef != nil && v.Spec.ClaimRef.Namespace == storageNamespace {
				return fmt.Errorf("the volume %s of the trial is still there", v.Name)
			}
		}

		return nil
	})
}
