// Package joined is the Kubernetes of an appliance that runs as a guest on someone else's: it is asked for, and changed
// in nothing but the objects of the appliance. docs/install.md says what such an appliance is.
package joined

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/guest"
	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// StageName is the stage that stands for all stages of a Kubernetes of the appliance's own.
const StageName = "cluster-joined"

// apiextensionsv1 has the definitions of kinds.
var apiextensionsv1 = schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}

// Cluster is the cluster that the daemon's pod is on.
type Cluster struct {
	Config func() (*rest.Config, error) // nil: that of the pod

	beside func(ctx context.Context, report bringup.Report)

	mu     sync.Mutex
	config *rest.Config
	begun  bool // beside was started
}

// REST is how the API is reached as the pod's ServiceAccount. It is the same from the first one on.
func (c *Cluster) REST() (*rest.Config, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.config != nil {
		return c.config, nil
	}

	read := c.Config
	if read == nil {
		read = rest.InClusterConfig
	}
	config, err := read()
	if err != nil {
		return nil, fmt.Errorf("find the API of the cluster: %w", err)
	}
	config.UserAgent, config.QPS, config.Burst = "firstlightd", 100, 200
	c.config = config
	return config, nil
}

// User is who the appliance is for the API server.
func (c *Cluster) User() string { return guest.User }

// StartBeside has something started as soon as the cluster can have the appliance. It is called before the stage runs.
func (c *Cluster) StartBeside(start func(ctx context.Context, report bringup.Report)) {
	c.beside = start
}

// Stage is the fact that the cluster can have the appliance.
func (c *Cluster) Stage() bringup.Stage {
	return bringup.Stage{
		Name:    StageName,
		Title:   "The cluster is checked",
		Fact:    "The cluster's API answers, is of a version that was tried, and has no Metal3 or Cluster API of others.",
		Why:     "Before anything is written to a cluster that others use.",
		Done:    c.done,
		Do:      c.do,
		Recheck: time.Minute,
	}
}

func (c *Cluster) done(ctx context.Context) error {
	if err := c.check(ctx); err != nil {
		return err
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.beside != nil && !c.begun {
		return errors.New("what the next stage needs was not started yet")
	}
	return nil
}

// do starts what is asked for beside the next stage, once: Metal3's operator is not ready without Ironic.
func (c *Cluster) do(ctx context.Context, report bringup.Report) error {
	if err := c.check(ctx); err != nil {
		return err
	}
	if c.beside != nil {
		c.beside(ctx, report)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun = true
	return nil
}

func (c *Cluster) check(ctx context.Context) error {
	config, err := c.REST()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()

	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	if err := checkVersion(api.Discovery()); err != nil {
		return err
	}
	nodes, err := api.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: guest.NodeLabel})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	if err := checkNodes(nodes.Items); err != nil {
		return err
	}

	definitions, err := client.New(config, client.Options{})
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	return checkForeign(ctx, definitions)
}

// minVersion is the oldest Kubernetes that a guest was tried on.
var minVersion = version.MajorMinor(1, 33)

// checkVersion returns an error if the API server is older than that. Distributions add to the version what is theirs.
func checkVersion(api discovery.DiscoveryInterface) error {
	has, err := api.ServerVersion()
	if err != nil {
		return fmt.Errorf("ask the API server for its version: %w", err)
	}
	v, err := version.ParseGeneric(has.GitVersion)
	if err != nil {
		return fmt.Errorf("read the API server's version: %w", err)
	}
	if v.LessThan(minVersion) {
		return bringup.Permanent(fmt.Errorf("the API server is of Kubernetes %s, and the appliance was never tried with one "+
			"before %s; use a cluster of that version or a later one", has.GitVersion, minVersion))
	}
	return nil
}

// checkNodes returns an error unless one node is the appliance's: what it keeps is on that one.
func checkNodes(labelled []corev1.Node) error {
	if len(labelled) == 1 {
		return nil
	}
	return bringup.Wait("one node to have the label %s; %d have it: what the appliance keeps is on one node",
		guest.NodeLabel, len(labelled))
}

// checkForeign returns an error if someone else's Metal3 or Cluster API is on the cluster: two would work on the same
// objects.
func checkForeign(ctx context.Context, api client.Reader) error {
	for _, name := range []string{"baremetalhosts.metal3.io", "clusters.cluster.x-k8s.io"} {
		definition := &metav1.PartialObjectMetadata{}
		definition.SetGroupVersionKind(apiextensionsv1.WithKind("CustomResourceDefinition"))
		err := api.Get(ctx, client.ObjectKey{Name: name}, definition)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read definition %s: %w", name, err)
		}
		if definition.Annotations[label.Applied] == "" {
			return bringup.Permanent(errors.New("the cluster has " + name + ", and not from an appliance: another " +
				"installation would work on the same objects; remove that one, or use another cluster"))
		}
	}
	return nil
}
