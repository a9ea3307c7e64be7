package bench_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/clusters/kpa/operator"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// cluster is an API server with the controllers that Deployments need.
type cluster struct {
	*sandbox.API
	name   string
	client client.Client
}

type fleet []*cluster

// startFleet starts clusters without objects, and returns when each would take any.
func startFleet(ctx context.Context, dir string, n int) (fleet, error) {
	f := make(fleet, n)
	var starting errgroup.Group
	starting.SetLimit(2)
	for i := range f {
		starting.Go(func() (err error) {
			f[i], err = startCluster(ctx, filepath.Join(dir, strconv.Itoa(i)), fmt.Sprintf("cluster-%d", i))
			return err
		})
	}
	if err := starting.Wait(); err != nil {
		f.close()
		return nil, fmt.Errorf("start clusters: %w", err)
	}

	return f, nil
}

func startCluster(ctx context.Context, dir, name string) (*cluster, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	api, err := sandbox.StartAPI(ctx, dir)
	if err != nil {
		return nil, err
	}

	c := &cluster{API: api, name: name}
	err = api.RunControllers(ctx, "deployment-controller", "replicaset-controller")
	if err == nil {
		c.client, err = connect(api)
	}
	if err == nil {
		err = c.await(ctx)
	}
	if err != nil {
		api.Close()
		return nil, err
	}
	return c, nil
}

// connect is a client that is never held back.
func connect(api *sandbox.API) (client.Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", api.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 200, 200
	scheme, err := operator.Scheme()
	if err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme})
}

// await waits until Services get addresses and the controllers work.
func (c *cluster) await(ctx context.Context) error {
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "begin"}
	labels := map[string]string{"app": "begin"}
	service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	deployment := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
		Replicas: new(int32),
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.example/app:1"}}},
		},
	}}
	for _, o := range []client.Object{service, deployment} {
		if err := poll(ctx, time.Minute, func() error { return c.client.Create(ctx, o) }); err != nil {
			return err
		}
	}

	err := poll(ctx, time.Minute, func() error {
		err := c.client.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)
		if err == nil && deployment.Status.ObservedGeneration == 0 {
			err = fmt.Errorf("%s: no controller works on Deployments", c.name)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, o := range []client.Object{service, deployment} {
		if err := c.client.Delete(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// poll asks until the answer is nil, or time is up.
func poll(ctx context.Context, limit time.Duration, ask func() error) error {
	for end := time.Now().Add(limit); ; {
		err := ask()
		if err == nil || time.Now().After(end) {
			return err
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// check sees that the clusters have what was installed.
func (f fleet) check(ctx context.Context, bundles int) error {
	for _, c := range f {
		for i := range bundles {
			name := newBundle(i).name
			d := &appsv1.Deployment{}
			if err := c.client.Get(ctx, client.ObjectKey{Namespace: name, Name: name}, d); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if d.Status.ObservedGeneration != d.Generation {
				return fmt.Errorf("%s: Deployment %s: nobody waited for it", c.name, name)
			}
		}
	}
	return nil
}

func (f fleet) close() {
	for _, c := range f {
		if c != nil {
			c.Close()
		}
	}
}
