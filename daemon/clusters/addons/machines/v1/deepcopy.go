package v1

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// DeepCopyObject implements runtime.Object.
func (i *VirtualMachineInstance) DeepCopyObject() runtime.Object { return i.DeepCopy() }

// DeepCopyObject implements runtime.Object.
func (m *VirtualMachine) DeepCopyObject() runtime.Object { return m.DeepCopy() }

// DeepCopyObject implements runtime.Object.
func (l *VirtualMachineInstanceList) DeepCopyObject() runtime.Object {
	out := &VirtualMachineInstanceList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	out.Items = copyAll(l.Items, func(i *VirtualMachineInstance) VirtualMachineInstance { return *i.DeepCopy() })
	return out
}

// DeepCopyObject implements runtime.Object.
func (l *VirtualMachineList) DeepCopyObject() runtime.Object {
	out := &VirtualMachineList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	out.Items = copyAll(l.Items, func(m *VirtualMachine) VirtualMachine { return *m.DeepCopy() })
	return out
}

// DeepCopy shares nothing with the original.
func (i *VirtualMachineInstance) DeepCopy() *VirtualMachineInstance {
	out := &VirtualMachineInstance{TypeMeta: i.TypeMeta, Spec: i.Spec.DeepCopy(), Status: i.Status.deepCopy()}
	i.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return out
}

// DeepCopy shares nothing with the original.
func (m *VirtualMachine) DeepCopy() *VirtualMachine {
	out := &VirtualMachine{TypeMeta: m.TypeMeta, Spec: m.Spec.deepCopy(), Status: m.Status.deepCopy()}
	m.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return out
}

func (s MachineSpec) deepCopy() MachineSpec {
	s.Running = copyPointer(s.Running)
	s.Template.Metadata.Labels = maps.Clone(s.Template.Metadata.Labels)
	s.Template.Metadata.Annotations = maps.Clone(s.Template.Metadata.Annotations)
	s.Template.Spec = s.Template.Spec.DeepCopy()
	s.Unknown = slices.Clone(s.Unknown)
	return s
}

func (s MachineStatus) deepCopy() MachineStatus {
	if s.StartFailure != nil {
		failure := *s.StartFailure
		failure.RetryAfterTimestamp = copyPointer(failure.RetryAfterTimestamp)
		s.StartFailure = &failure
	}
	s.Conditions = copyConditions(s.Conditions)
	return s
}

// DeepCopy shares nothing with the original.
func (s InstanceSpec) DeepCopy() InstanceSpec {
	s.Domain = s.Domain.deepCopy()
	s.Networks = copyAll(s.Networks, func(n *Network) Network {
		return Network{Name: n.Name, Pod: copyPointer(n.Pod)}
	})
	s.Volumes = copyAll(s.Volumes, func(v *Volume) Volume { return v.deepCopy() })
	s.NodeSelector = maps.Clone(s.NodeSelector)
	s.Tolerations = copyAll(s.Tolerations, func(t *corev1.Toleration) corev1.Toleration { return *t.DeepCopy() })
	s.TerminationGracePeriodSeconds = copyPointer(s.TerminationGracePeriodSeconds)
	s.Unknown = slices.Clone(s.Unknown)
	return s
}

func (d Domain) deepCopy() Domain {
	d.CPU = copyPointer(d.CPU)
	if d.Memory != nil {
		d.Memory = &Memory{Guest: copyQuantity(d.Memory.Guest)}
	}
	d.Resources.Requests, d.Resources.Limits = d.Resources.Requests.DeepCopy(), d.Resources.Limits.DeepCopy()
	d.Firmware = copyPointer(d.Firmware)
	if d.Firmware != nil && d.Firmware.Bootloader != nil {
		b := *d.Firmware.Bootloader
		b.BIOS, b.EFI = copyPointer(b.BIOS), copyPointer(b.EFI)
		if b.EFI != nil {
			b.EFI.SecureBoot = copyPointer(b.EFI.SecureBoot)
		}
		d.Firmware.Bootloader = &b
	}

	d.Devices.RNG = copyPointer(d.Devices.RNG)
	d.Devices.Disks = copyAll(d.Devices.Disks, func(in *Disk) Disk {
		out := *in
		out.Disk, out.CDROM, out.BootOrder = copyPointer(in.Disk), copyPointer(in.CDROM), copyPointer(in.BootOrder)
		return out
	})
	d.Devices.Interfaces = copyAll(d.Devices.Interfaces, func(in *Interface) Interface {
		out := *in
		out.Masquerade, out.Ports = copyPointer(in.Masquerade), slices.Clone(in.Ports)
		return out
	})
	return d
}

func (v Volume) deepCopy() Volume {
	v.PersistentVolumeClaim = copyPointer(v.PersistentVolumeClaim)
	if c := copyPointer(v.CloudInitNoCloud); c != nil {
		c.UserDataSecret, c.NetworkDataSecret = copyPointer(c.UserDataSecret), copyPointer(c.NetworkDataSecret)
		v.CloudInitNoCloud = c
	}
	if v.EmptyDisk != nil {
		v.EmptyDisk = &EmptyDisk{Capacity: v.EmptyDisk.Capacity.DeepCopy()}
	}
	if i := copyPointer(v.FirstlightImage); i != nil {
		i.Capacity = copyQuantity(i.Capacity)
		v.FirstlightImage = i
	}
	return v
}

func (s InstanceStatus) deepCopy() InstanceStatus {
	s.ActivePods = maps.Clone(s.ActivePods)
	s.Interfaces = copyAll(s.Interfaces, func(in *InterfaceStatus) InterfaceStatus {
		out := *in
		out.IPAddresses = slices.Clone(in.IPAddresses)
		return out
	})
	s.Conditions = copyConditions(s.Conditions)
	return s
}

func copyConditions(all []metav1.Condition) []metav1.Condition {
	return copyAll(all, func(c *metav1.Condition) metav1.Condition { return *c.DeepCopy() })
}

func copyQuantity(q *resource.Quantity) *resource.Quantity {
	if q == nil {
		return nil
	}
	out := q.DeepCopy()
	return &out
}

func copyAll[T any](all []T, deepCopy func(*T) T) []T {
	if all == nil {
		return nil
	}
	out := make([]T, len(all))
	for i := range all {
		out[i] = deepCopy(&all[i])
	}
	return out
}

func copyPointer[T any](p *T) *T {
	if p == nil {
		return nil
	}
	out := *p
	return &out
}
