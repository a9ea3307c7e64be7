package clusterapi

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"firstlight.dev/firstlight/daemon/engine/apply"
)

// program is the one binary of all managers in their images.
const program = "/cluster-api"

// adaptDeployment makes a manager's Deployment one for a machine with one node, little memory and, maybe, a slow
// processor.
func adaptDeployment(p Provider, d *appsv1.Deployment) {
	// One node runs one pod of it: with the old one gone before the new one starts, no lease has to keep two apart. A
	// lease is a write to the stick every two seconds.
	d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}

	pod := &d.Spec.Template.Spec
	c := &pod.Containers[0]
	c.Args = slices.DeleteFunc(c.Args, func(arg string) bool { return arg == "--leader-elect" })
	c.Args = append(c.Args, p.Args...)
	c.Image, c.ImagePullPolicy = p.image(), corev1.PullNever
	c.Command = []string{program, p.Name}
	c.Env = append(c.Env, corev1.EnvVar{Name: "GOGC", Value: "50"}) // what it holds is small and changes seldom
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
		if probe != nil {
			probe.TimeoutSeconds, probe.FailureThreshold = 30, 30
		}
	}
	if c.ReadinessProbe != nil {
		c.ReadinessProbe.PeriodSeconds = 5
	}
	if c.LivenessProbe != nil {
		c.LivenessProbe.PeriodSeconds, c.LivenessProbe.FailureThreshold = 60, 5
	}

	if c.SecurityContext != nil {
		c.SecurityContext.ReadOnlyRootFilesystem = ptr.To(true)
	}

	pod.EnableServiceLinks = ptr.To(false)
	*pod = apply.MakeCritical(*pod)
}
