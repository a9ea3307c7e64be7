package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/manifest"
	"firstlight.dev/firstlight/daemon/engine/rights"
)

// CheckRotation is nil if all of the appliance's Kubernetes is as far as a rotation is: files and certificates, the control
// plane, which has read them, what pods that start are told, and nobody but pods has a token of the former key.
func (c *Cluster) CheckRotation(ctx context.Context) error {
	if err := c.controlPlaneDone(ctx); err != nil {
		return err
	}
	r, err := c.Rotation()
	if err != nil {
		return err
	}
	api, err := c.connect()
	if err != nil {
		return err
	}

	pods, err := api.set.CoreV1().Pods(system).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	if err := trustVerdict(pods.Items, c.trustDigest()); err != nil {
		return err
	}

	roots, err := api.set.CoreV1().ConfigMaps("").List(
		ctx, metav1.ListOptions{FieldSelector: "metadata.name=kube-root-ca.crt"},
	)
	if err != nil {
		return fmt.Errorf("list ConfigMaps kube-root-ca.crt: %w", err)
	}
	for _, o := range roots.Items {
		if o.Data["ca.crt"] != string(r.PEM()) {
			return fmt.Errorf("the controller manager has not written ConfigMap %s/%s yet", o.Namespace, o.Name)
		}
	}
	return rights.CheckTokens(ctx, api.set, r.FormerAccountKey())
}

// trustVerdict holds that each part of the control plane was started with whom to trust now, and is ready. What the API
// shows of them is the kubelet's: a pod of before is there until the next one runs.
func trustVerdict(pods []corev1.Pod, digest string) error {
	for _, name := range manifest.StaticPods() {
		state := stateOf(pods, name, func(p *corev1.Pod) string {
			if p.Annotations[label.Certificates] != digest {
				return "not started again yet"
			}
			return podState(p)
		})
		if state != "" {
			return fmt.Errorf("pod of %s is %s", name, state)
		}
	}
	return nil
}
