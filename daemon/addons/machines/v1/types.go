// Package v1 is a subset of the group kubevirt.io as Go sees it: the kinds VirtualMachine and VirtualMachineInstance.
// Names, shapes and meanings are those of KubeVirt's API v1 (kubevirt.io/api/core/v1), but for the volume
// firstlightImage. The API server knows the subset by the add-on's definitions in
// daemon/clusters/kpa/builtin/virtual-machines; a test holds the two together.
//
// +kubebuilder:object:generate=true
package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.20.0 object paths=.

// GroupVersion is the group and version of the kinds.
var GroupVersion = schema.GroupVersion{Group: "kubevirt.io", Version: "v1"}

// Keys on pods, as KubeVirt has them.
const (
	LabelApp       = "kubevirt.io"            // on pods: AppLauncher
	LabelCreatedBy = "kubevirt.io/created-by" // on pods: the UID of the instance
	LabelMachine   = "vm.kubevirt.io/name"    // on pods and instances: the name of the instance, or of the machine
	AppLauncher    = "virt-launcher"
)

// RunStrategy is when a VirtualMachine runs.
type RunStrategy string

// Strategies. Always restarts whatever ended, RerunOnFailure what failed. Manual is whatever its user does with instances.
const (
	Always         RunStrategy = "Always"
	Halted         RunStrategy = "Halted"
	Manual         RunStrategy = "Manual"
	RerunOnFailure RunStrategy = "RerunOnFailure"
)

// Phase is how far an instance is.
type Phase string

// Phases of an instance, in order. Of the last two one is the end.
const (
	Pending    Phase = "Pending"    // it has no pod
	Scheduling Phase = "Scheduling" // its pod has no node
	Scheduled  Phase = "Scheduled"  // its pod is on a node and prepares disks
	Running    Phase = "Running"
	Succeeded  Phase = "Succeeded"
	Failed     Phase = "Failed"
)

// IsFinal reports whether an instance has ended.
func (p Phase) IsFinal() bool { return p == Succeeded || p == Failed }

// Types of conditions.
const (
	ConditionReady   = "Ready"
	ConditionFailure = "Failure" // of a VirtualMachine: why it makes no instance
)

// Reasons of conditions.
const (
	ReasonReady         = "Ready"
	ReasonRefused       = "Refused"          // the spec asks for what is not in the subset, or contradicts itself
	ReasonClaim         = "ClaimUnusable"    // a PersistentVolumeClaim is missing or is no file system
	ReasonName          = "NameTaken"        // an object of somebody else has the name
	ReasonPredecessor   = "PredecessorEnds"  // the pod of an earlier instance of the name has not ended
	ReasonUnschedulable = "Unschedulable"    // no node takes the pod
	ReasonStarting      = "GuestNotRunning"  // disks are being prepared, or an image pulled
	ReasonTerminating   = "PodTerminating"   // it is being powered down
	ReasonEnded         = "PodEnded"         // the guest powered itself down
	ReasonFailed        = "PodFailed"        // QEMU ended with an error, or a disk could not be prepared
	ReasonGone          = "PodGone"          // somebody removed the pod
	ReasonNoInstance    = "VMINotExists"     // of a VirtualMachine that is stopped
	ReasonBackOff       = "CrashLoopBackOff" // of a VirtualMachine that waits before the next attempt
)

// VirtualMachineInstance is a machine that runs once, as a pod.
//
// +kubebuilder:object:root=true
type VirtualMachineInstance struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              InstanceSpec   `json:"spec"`
	Status            InstanceStatus `json:"status,omitempty"`
}

// VirtualMachineInstanceList is a list of them.
//
// +kubebuilder:object:root=true
type VirtualMachineInstanceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VirtualMachineInstance `json:"items"`
}

// VirtualMachine makes instances of its name, one at a time.
//
// +kubebuilder:object:root=true
type VirtualMachine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              MachineSpec   `json:"spec"`
	Status            MachineStatus `json:"status,omitempty"`
}

// VirtualMachineList is a list of them.
//
// +kubebuilder:object:root=true
type VirtualMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VirtualMachine `json:"items"`
}

// MachineSpec is what a VirtualMachine asks for: Running or RunStrategy, not both.
type MachineSpec struct {
	Running     *bool       `json:"running,omitempty"`
	RunStrategy RunStrategy `json:"runStrategy,omitempty"`
	Template    Template    `json:"template"`

	Unknown []string `json:"-"` // fields that the object has and the subset does not
}

// Strategy is the one of the two fields; Halted without both.
func (s *MachineSpec) Strategy() RunStrategy {
	switch {
	case s.RunStrategy != "":
		return s.RunStrategy
	case s.Running != nil && *s.Running:
		return Always
	}
	return Halted
}

// Template is what instances are made of.
type Template struct {
	Metadata TemplateMetadata `json:"metadata,omitempty"`
	Spec     InstanceSpec     `json:"spec"`
}

// TemplateMetadata is what instances get of it. Upstream's other fields, such as creationTimestamp, have no effect there
// and none here.
type TemplateMetadata struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// MachineStatus is what there is of a VirtualMachine.
type MachineStatus struct {
	Created            bool               `json:"created,omitempty"` // an instance exists
	Ready              bool               `json:"ready,omitempty"`   // and is Ready
	PrintableStatus    string             `json:"printableStatus,omitempty"`
	StartFailure       *StartFailure      `json:"startFailure,omitempty"`
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// StartFailure is of instances that failed one after the other.
type StartFailure struct {
	ConsecutiveFailCount int          `json:"consecutiveFailCount"`
	LastFailedVMIUID     types.UID    `json:"lastFailedVMIUID"`
	RetryAfterTimestamp  *metav1.Time `json:"retryAfterTimestamp,omitempty"`
}

// InstanceSpec is what an instance asks for.
type InstanceSpec struct {
	Domain   Domain    `json:"domain"`
	Networks []Network `json:"networks,omitempty"`
	Volumes  []Volume  `json:"volumes,omitempty"`
	Hostname string    `json:"hostname,omitempty"` // "": the name of the instance

	NodeSelector      map[string]string   `json:"nodeSelector,omitempty"`
	Tolerations       []corev1.Toleration `json:"tolerations,omitempty"`
	PriorityClassName string              `json:"priorityClassName,omitempty"`

	// TerminationGracePeriodSeconds is between the power button and the power cut; nil: GracePeriod.
	TerminationGracePeriodSeconds *int64 `json:"terminationGracePeriodSeconds,omitempty"`

	Unknown []string `json:"-"` // fields that the object has and the subset does not
}

// GracePeriod is that of an instance that says nothing of it, in seconds.
const GracePeriod = 30

// Domain is the machine itself.
type Domain struct {
	CPU       *CPU      `json:"cpu,omitempty"`
	Memory    *Memory   `json:"memory,omitempty"`
	Resources Resources `json:"resources,omitempty"`
	Firmware  *Firmware `json:"firmware,omitempty"`
	Devices   Devices   `json:"devices,omitempty"`
}

// CPU is what the guest sees; nil or 0: one core.
type CPU struct {
	Cores uint32 `json:"cores,omitempty"`
}

// Memory is what the guest sees; nil: Resources.Requests.
type Memory struct {
	Guest *resource.Quantity `json:"guest,omitempty"`
}

// Resources are cpu and memory of the pod. Memory is without what QEMU itself needs.
type Resources struct {
	Requests corev1.ResourceList `json:"requests,omitempty"`
	Limits   corev1.ResourceList `json:"limits,omitempty"`
}

// Firmware is what boots the guest; nil: BIOS.
type Firmware struct {
	Bootloader *Bootloader `json:"bootloader,omitempty"`
}

// Bootloader has one field set, or none for BIOS.
type Bootloader struct {
	BIOS *BIOS `json:"bios,omitempty"`
	EFI  *EFI  `json:"efi,omitempty"`
}

// BIOS is SeaBIOS.
type BIOS struct{}

// EFI is OVMF, with variables that last as long as the instance.
type EFI struct {
	SecureBoot *bool `json:"secureBoot,omitempty"` // false; upstream's default is true
}

// Devices of a machine. It has a serial port and a graphics card nobody sees as well.
type Devices struct {
	Disks      []Disk      `json:"disks,omitempty"`
	Interfaces []Interface `json:"interfaces,omitempty"`
	RNG        *RNG        `json:"rng,omitempty"`
}

// RNG is a virtio source of random numbers.
type RNG struct{}

// Disk shows the guest the volume of its name, as a disk or as a CD-ROM.
type Disk struct {
	Name      string       `json:"name"`
	Disk      *DiskTarget  `json:"disk,omitempty"`
	CDROM     *CDROMTarget `json:"cdrom,omitempty"`
	BootOrder *uint        `json:"bootOrder,omitempty"` // 1 is the first; nil: not booted from, unless nil for all
	Serial    string       `json:"serial,omitempty"`
}

// DiskTarget is a disk; Bus is virtio, or sata, as is "".
type DiskTarget struct {
	Bus      string `json:"bus,omitempty"`
	ReadOnly bool   `json:"readonly,omitempty"`
}

// CDROMTarget is a CD-ROM; Bus is sata, as is "".
type CDROMTarget struct {
	Bus string `json:"bus,omitempty"`
}

// Buses of disks.
const (
	BusVirtio = "virtio"
	BusSATA   = "sata"
)

// Interface connects the guest to the network of its name.
type Interface struct {
	Name       string      `json:"name"`
	Masquerade *Masquerade `json:"masquerade,omitempty"`
	Ports      []Port      `json:"ports,omitempty"` // at which the guest is reached through the pod's address
	Model      string      `json:"model,omitempty"` // "": virtio
	MACAddress string      `json:"macAddress,omitempty"`
}

// Masquerade gives the guest an address of its own behind the pod's.
type Masquerade struct{}

// Port is one port of the guest, and of its pod.
type Port struct {
	Name     string `json:"name,omitempty"`
	Port     int32  `json:"port"`
	Protocol string `json:"protocol,omitempty"` // TCP or UDP; "": TCP
}

// Network is that of pods.
type Network struct {
	Name string      `json:"name"`
	Pod  *PodNetwork `json:"pod,omitempty"`
}

// PodNetwork is the network that every pod has.
type PodNetwork struct{}

// Volume is what is on a disk. One field is set.
type Volume struct {
	Name                  string     `json:"name"`
	PersistentVolumeClaim *Claim     `json:"persistentVolumeClaim,omitempty"`
	CloudInitNoCloud      *CloudInit `json:"cloudInitNoCloud,omitempty"`
	EmptyDisk             *EmptyDisk `json:"emptyDisk,omitempty"`
	FirstlightImage       *Image     `json:"firstlightImage,omitempty"`
}

// Claim is the file disk.img on a claimed file system. An empty file system gets one of its size.
type Claim struct {
	ClaimName string `json:"claimName"`
	ReadOnly  bool   `json:"readOnly,omitempty"`
}

// CloudInit is a seed of cloud-init's datasource NoCloud. Of each of the two data one source is given at most.
type CloudInit struct {
	UserData          string                       `json:"userData,omitempty"`
	UserDataBase64    string                       `json:"userDataBase64,omitempty"`
	UserDataSecret    *corev1.LocalObjectReference `json:"secretRef,omitempty"` // its key userdata
	NetworkData       string                       `json:"networkData,omitempty"`
	NetworkDataBase64 string                       `json:"networkDataBase64,omitempty"`
	NetworkDataSecret *corev1.LocalObjectReference `json:"networkDataSecretRef,omitempty"` // its key networkdata
}

// EmptyDisk is a disk of zeros that goes with the instance.
type EmptyDisk struct {
	Capacity resource.Quantity `json:"capacity"`
}

// Image is a disk image, raw or qcow2, that is fetched when an instance starts. It is not KubeVirt's.
type Image struct {
	URL       string             `json:"url"`                 // http
	Checksum  string             `json:"checksum,omitempty"`  // sha256:HEX; "": it is not checked
	Capacity  *resource.Quantity `json:"capacity,omitempty"`  // what a smaller raw image is grown to
	ClaimName string             `json:"claimName,omitempty"` // where it is kept; "": it is fetched for each instance
}

// InstanceStatus is what there is of an instance.
type InstanceStatus struct {
	Phase      Phase                `json:"phase,omitempty"`
	Reason     string               `json:"reason,omitempty"` // of a phase that is the end
	NodeName   string               `json:"nodeName,omitempty"`
	ActivePods map[types.UID]string `json:"activePods,omitempty"` // its pod, and the node of that
	Interfaces []InterfaceStatus    `json:"interfaces,omitempty"`
	Conditions []metav1.Condition   `json:"conditions,omitempty"`
}

// InterfaceStatus is where the guest is reached: at addresses of its pod.
type InterfaceStatus struct {
	Name        string   `json:"name,omitempty"`
	IPAddress   string   `json:"ipAddress,omitempty"`
	IPAddresses []string `json:"ipAddresses,omitempty"`
	MAC         string   `json:"mac,omitempty"`
}

// AddToScheme makes the kinds known.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&VirtualMachine{}, &VirtualMachineList{}, &VirtualMachineInstance{}, &VirtualMachineInstanceList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
