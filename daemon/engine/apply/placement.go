package apply

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/guest"
)

// Guest is the API of a Kubernetes that is not the appliance's own: sets that are applied to it say where their pods
// run. The appliance's own needs none of that.
type Guest struct {
	client.Client
	Placement guest.Placement
}

// privileged is the level of Pod Security that pods with folders of the node, or on its network, need.
const privileged = "pod-security.kubernetes.io/enforce"

// PlaceFor returns the set as the API c gets it: as it is, or with its pods placed. The digests are those of what is
// applied, so that another placement is a difference like any other.
func (s Set) PlaceFor(c client.Reader) (Set, error) {
	g, isGuest := c.(Guest)
	if !isGuest {
		return s, nil
	}

	objects := make([]client.Object, len(s.Objects))
	for i, o := range s.Objects {
		placed := o.DeepCopy()
		annotations := placed.GetAnnotations()
		delete(annotations, Annotation)
		placed.SetAnnotations(annotations)
		if err := placeObject(placed, g.Placement); err != nil {
			return Set{}, fmt.Errorf("place %s: %w", objectName(o), err)
		}
		objects[i] = placed
	}
	return New(s.Owner, objects...)
}

// program is the daemon's, which places pods itself.
const program = "/usr/bin/firstlightd"

func placeObject(o *unstructured.Unstructured, p guest.Placement) error {
	switch o.GetKind() {
	case "Namespace":
		labels := o.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[privileged] = "privileged"
		o.SetLabels(labels)
	case "Service":
		// The cluster's Services are in a network of its own.
		if address, _, _ := unstructured.NestedString(o.Object, "spec", "clusterIP"); address != "None" {
			unstructured.RemoveNestedField(o.Object, "spec", "clusterIP")
			unstructured.RemoveNestedField(o.Object, "spec", "clusterIPs")
		}
	case "Deployment":
		have, found, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
		if err != nil {
			return err
		}
		if !found {
			return errors.New("it has no pod")
		}

		var pod corev1.PodSpec
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(have, &pod); err != nil {
			return err
		}
		PlacePod(&pod, p)
		placed, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&pod)
		if err != nil {
			return err
		}
		return unstructured.SetNestedMap(o.Object, placed, "spec", "template", "spec")
	}
	return nil
}

// PlacePod has a pod of the appliance run on the node with guest.NodeLabel, with its folders below that of the
// placement, and with images that the node has or gets from the registry.
func PlacePod(pod *corev1.PodSpec, p guest.Placement) {
	if pod.NodeSelector == nil {
		pod.NodeSelector = map[string]string{}
	}
	maps.Copy(pod.NodeSelector, guest.NodeSelector())
	// A cluster of one node has its control plane there.
	pod.Tolerations = append(pod.Tolerations, corev1.Toleration{
		Key:      "node-role.kubernetes.io/control-plane",
		Operator: corev1.TolerationOpExists,
		Effect:   corev1.TaintEffectNoSchedule,
	})
	for i := range pod.Volumes {
		if h := pod.Volumes[i].HostPath; h != nil {
			h.Path = path.Join(p.Folder, h.Path)
		}
	}
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			c := &containers[i]
			c.Image, c.ImagePullPolicy = p.Image(c.Image), corev1.PullIfNotPresent
			if slices.Equal(c.Command[:min(len(c.Command), 1)], []string{program}) {
				c.Env = append(c.Env, corev1.EnvVar{Name: guest.Variable, Value: p.Encode()})
			}
		}
	}
}
