// Package daemonpod describes the pods of the appliance whose program is the daemon's own binary: the operators and the
// agent of uploads. The binary is mounted from the root, which has it anyway; the image is empty.
package daemonpod

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/daemon/engine/apply"
)

// Image is what the pods are named after. It holds nothing but a place to mount the binary.
const Image = assets.ImageDomain + "/firstlight:" + assets.Version

// Binary is the daemon on the appliance, and in the pod.
const Binary = "/usr/bin/firstlightd"

// NewDeployment is apply.NewDeployment of a pod on the appliance's own network, from which nodes are reached, with the
// ServiceAccount of its name.
func NewDeployment(meta metav1.ObjectMeta, annotations map[string]string, pod corev1.PodSpec) *appsv1.Deployment {
	meta.Labels = map[string]string{"app.kubernetes.io/name": meta.Name}
	pod.ServiceAccountName = meta.Name
	pod.HostNetwork = true
	pod.DNSPolicy = corev1.DNSDefault
	pod.EnableServiceLinks = ptr.To(false)
	return apply.NewDeployment(meta, annotations, pod)
}

// Manager is the pod of an operator: one container without privileges that answers /readyz on the loopback.
type Manager struct {
	Command string // of firstlightd
	Args    []string
	User    int64
	Health  int32 // port of /readyz
	Folders []Folder
}

// Folder is a directory of the appliance's, at the same path in the pod. It is created if it is missing.
type Folder struct {
	Name, Path string
	ReadOnly   bool
}

// Spec returns the pod.
func (m Manager) Spec() corev1.PodSpec {
	mounts := []corev1.VolumeMount{BinaryMount}
	volumes := []corev1.Volume{BinaryVolume()}
	for _, f := range m.Folders {
		mounts = append(mounts, corev1.VolumeMount{Name: f.Name, MountPath: f.Path, ReadOnly: f.ReadOnly})
		volumes = append(volumes, HostPath(f.Name, f.Path, corev1.HostPathDirectoryOrCreate))
	}

	return corev1.PodSpec{
		Containers: []corev1.Container{{
			Name:            "manager",
			Image:           Image,
			ImagePullPolicy: corev1.PullNever,
			Command:         []string{Binary, m.Command},
			Args:            m.args(),
			ReadinessProbe:  m.probe(),
			SecurityContext: &corev1.SecurityContext{
				RunAsUser:                ptr.To(m.User),
				RunAsGroup:               ptr.To(m.User),
				AllowPrivilegeEscalation: ptr.To(false),
				ReadOnlyRootFilesystem:   ptr.To(true),
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			VolumeMounts: mounts,
		}},
		Volumes: volumes,
	}
}

// args leave out the election of a leader, which would be a write to the stick every ten seconds. There is one node, the
// Deployment starts a pod when the one before is gone, and the pod has the node's own loopback: should two run after
// all, such as when one is deleted that takes its time to end, the second waits for the port of the first
// (ctrlmanager.New), which is the first one's until its controllers have ended.
func (m Manager) args() []string {
	return slices.Concat(m.Args, []string{"--elect=false", "--health", fmt.Sprintf("127.0.0.1:%d", m.Health)})
}

func (m Manager) probe() *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Host: "127.0.0.1",
			Path: "/readyz",
			Port: intstr.FromInt32(m.Health),
		}},
		PeriodSeconds:  5,
		TimeoutSeconds: 10,
	}
}

// BinaryMount is where a container finds the binary of BinaryVolume.
var BinaryMount = corev1.VolumeMount{Name: "binary", MountPath: Binary, ReadOnly: true}

// BinaryVolume is the daemon's binary on the appliance.
func BinaryVolume() corev1.Volume { return HostPath(BinaryMount.Name, Binary, corev1.HostPathFile) }

// HostPath is a volume that is a file or a directory of the appliance.
func HostPath(name, path string, kind corev1.HostPathType) corev1.Volume {
	return corev1.Volume{
		Name:         name,
		VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind}},
	}
}
