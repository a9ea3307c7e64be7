package machines

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/addons/machines/launcher"
	v1 "firstlight.dev/firstlight/daemon/addons/machines/v1"
)

// KVMResource is what a node offers on which KVM works, by KubeVirt's name.
const KVMResource corev1.ResourceName = "devices.kubevirt.io/kvm"

// Container is a launcher's only one, by KubeVirt's name.
const Container = "compute"

// qemuUser is who QEMU is, as with KubeVirt. The file systems of claims are made its own by the kubelet.
const qemuUser = 107

// overhead is what QEMU needs besides the guest's memory: itself, what it translated, what is in RunDir, and tables of the
// guest's pages.
func overhead(guest int64) int64 { return (128+launcher.TranslationCache+64)<<20 + guest/512 }

// PodName is an instance's: the same each time it is asked for, so that an instance has one pod whatever is interrupted.
func PodName(i *v1.VirtualMachineInstance) string {
	const longest = 253 - len("virt-launcher--") - suffixLength
	name := i.Name[:min(len(i.Name), longest)]
	sum := sha256.Sum256([]byte(i.UID))
	suffix := strings.ToLower(base32.HexEncoding.EncodeToString(sum[:]))[:suffixLength]
	return "virt-launcher-" + strings.TrimRight(name, ".-") + "-" + suffix
}

const suffixLength = 5

// claimSizes are bytes of claims, by volume.
type claimSizes = map[string]int64

// RenderPod is the pod of an instance whose spec has passed CheckSpec. With KVM it asks the node for it.
func RenderPod(i *v1.VirtualMachineInstance, image string, claims claimSizes, with launcher.Accelerator) (*corev1.Pod, error) {
	spec := i.Spec.DeepCopy()
	spec.NodeSelector, spec.Tolerations = nil, nil // of the pod alone
	machine, err := json.Marshal(launcher.Machine{Namespace: i.Namespace, Name: i.Name, Spec: *spec, Claims: claims})
	if err != nil {
		return nil, fmt.Errorf("write instance: %w", err)
	}

	labels := maps.Clone(i.Labels) // what Services select
	if labels == nil {
		labels = map[string]string{}
	}
	labels[v1.LabelApp] = v1.AppLauncher
	labels[v1.LabelCreatedBy] = string(i.UID)
	labels[v1.LabelMachine] = labelValue(i.Name)

	volumes, mounts := renderVolumes(i.Spec)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   i.Namespace,
			Name:        PodName(i),
			Labels:      labels,
			Annotations: map[string]string{label.Instance: string(machine)},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1.GroupVersion.String(),
				Kind:       "VirtualMachineInstance",
				Name:       i.Name,
				UID:        i.UID,
				Controller: ptr.To(true),
			}},
		},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			AutomountServiceAccountToken:  ptr.To(false),
			EnableServiceLinks:            ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To(launcher.GraceSeconds(i.Spec) + int64(launcher.EndTimeout.Seconds())),
			NodeSelector:                  i.Spec.NodeSelector,
			Tolerations:                   i.Spec.Tolerations,
			PriorityClassName:             i.Spec.PriorityClassName,
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot:        ptr.To(true),
				RunAsUser:           ptr.To[int64](qemuUser),
				RunAsGroup:          ptr.To[int64](qemuUser),
				FSGroup:             ptr.To[int64](qemuUser),
				FSGroupChangePolicy: ptr.To(corev1.FSGroupChangeOnRootMismatch),
				SeccompProfile:      &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
				Sysctls:             renderSysctls(i.Spec),
			},
			Containers: []corev1.Container{{
				Name:            Container,
				Image:           image,
				ImagePullPolicy: corev1.PullIfNotPresent,
				Command:         []string{"/usr/bin/firstlight-addons", "machine", "run"},
				Ports:           renderPorts(i.Spec),
				Resources:       renderResources(i.Spec.Domain, with),
				VolumeMounts:    mounts,
				ReadinessProbe: &corev1.Probe{
					ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{
						Command: []string{"/usr/bin/firstlight-addons", "machine", "ready"},
					}},
					PeriodSeconds:    5,
					TimeoutSeconds:   10,
					FailureThreshold: 3,
				},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false),
					ReadOnlyRootFilesystem:   ptr.To(true),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
			Volumes: volumes,
		},
	}, nil
}

// labelValue is a name as the value of a label, which is shorter than names are.
func labelValue(name string) string { return strings.TrimRight(name[:min(len(name), 63)], ".-") }

func renderVolumes(s v1.InstanceSpec) (volumes []corev1.Volume, mounts []corev1.VolumeMount) {
	add := func(name, path string, isReadOnly bool, source corev1.VolumeSource) {
		volumes = append(volumes, corev1.Volume{Name: name, VolumeSource: source})
		mounts = append(mounts, corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: isReadOnly})
	}
	add("instance", launcher.InstanceDir, true, corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
		Items: []corev1.DownwardAPIVolumeFile{{
			Path:     launcher.InstanceFile,
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['" + label.Instance + "']"},
		}},
	}})
	add("run", launcher.RunDir, false, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
		Medium: corev1.StorageMediumMemory, SizeLimit: resource.NewQuantity(32<<20, resource.BinarySI),
	}})
	add("disks", launcher.DiskDir, false, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})

	for n, v := range s.Volumes {
		number := strconv.Itoa(n)
		if claim := claimName(v); claim != "" {
			isReadOnly := v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly
			add("claim-"+number, filepath.Join(launcher.ClaimDir, number), isReadOnly, corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim, ReadOnly: isReadOnly},
			})
		}
		if c := v.CloudInitNoCloud; c != nil {
			for _, s := range []struct {
				dir    string
				secret *corev1.LocalObjectReference
			}{
				{launcher.UserDir, c.UserDataSecret},
				{launcher.NetworkDir, c.NetworkDataSecret},
			} {
				if s.secret != nil {
					add(s.dir+"-"+number, filepath.Join(launcher.SecretDir, number, s.dir), true, corev1.VolumeSource{
						Secret: &corev1.SecretVolumeSource{SecretName: s.secret.Name, DefaultMode: ptr.To[int32](0o440)},
					})
				}
			}
		}
	}
	return volumes, mounts
}

func renderPorts(s v1.InstanceSpec) (ports []corev1.ContainerPort) {
	for _, i := range s.Domain.Devices.Interfaces {
		for _, p := range i.Ports {
			protocol := corev1.ProtocolTCP
			if p.Protocol != "" {
				protocol = corev1.Protocol(p.Protocol)
			}
			ports = append(ports, corev1.ContainerPort{Name: p.Name, ContainerPort: p.Port, Protocol: protocol})
		}
	}
	return ports
}

// renderSysctls lets QEMU, which is not root, listen below port 1024. The kubelet calls this one safe.
func renderSysctls(s v1.InstanceSpec) []corev1.Sysctl {
	for _, i := range s.Domain.Devices.Interfaces {
		for _, p := range i.Ports {
			if p.Port < 1024 {
				return []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"}}
			}
		}
	}
	return nil
}

// renderResources gives a pod the guest's memory and QEMU's, as request and as limit. Of processors it asks for a tenth
// of the guest's, as KubeVirt does (cpuAllocationRatio 10), unless something else is said.
func renderResources(d v1.Domain, with launcher.Accelerator) corev1.ResourceRequirements {
	guest := launcher.GuestMemory(d)
	memory := resource.NewQuantity(guest+overhead(guest), resource.BinarySI)
	r := corev1.ResourceRequirements{
		Requests: corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewMilliQuantity(int64(launcher.Cores(d))*100, resource.DecimalSI),
			corev1.ResourceMemory: *memory,
		},
		Limits: corev1.ResourceList{corev1.ResourceMemory: *memory},
	}
	if q, ok := d.Resources.Requests[corev1.ResourceCPU]; ok {
		r.Requests[corev1.ResourceCPU] = q
	}
	if q, ok := d.Resources.Limits[corev1.ResourceCPU]; ok {
		r.Limits[corev1.ResourceCPU] = q
	}
	if with == launcher.KVM {
		one := *resource.NewQuantity(1, resource.DecimalSI)
		r.Requests[KVMResource], r.Limits[KVMResource] = one, one
	}
	return r
}
