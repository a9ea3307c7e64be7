package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RemediationFinalizer keeps a Metal3Remediation until its host is switched on again and its Node restored.
const RemediationFinalizer = "metal3remediation.infrastructure.cluster.x-k8s.io"

// Phases of a Metal3Remediation.
const (
	PhaseRunning  = "Running"
	PhaseWaiting  = "Waiting"
	PhaseDeleting = "Deleting machine"
	PhaseFailed   = "Failed"
)

// RemediationStrategy is how a machine is remediated.
type RemediationStrategy struct {
	// Type is Reboot.
	// +kubebuilder:validation:Enum=Reboot
	// +kubebuilder:default=Reboot
	// +optional
	Type string `json:"type,omitempty"`
	// RetryLimit is how often it is tried before the machine is given up.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:default=1
	// +optional
	RetryLimit int32 `json:"retryLimit,omitempty"`
	// TimeoutSeconds is how long one try may take.
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:default=600
	// +optional
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
}

// Metal3RemediationSpec is what is asked for.
type Metal3RemediationSpec struct {
	// Strategy is how the machine is remediated.
	// +kubebuilder:default={type: Reboot, retryLimit: 1, timeoutSeconds: 600}
	// +optional
	Strategy *RemediationStrategy `json:"strategy,omitempty"`
}

// Metal3RemediationStatus is what the provider says.
type Metal3RemediationStatus struct {
	// Phase is Running, Waiting, Deleting machine or Failed.
	// +optional
	Phase string `json:"phase,omitempty"`
	// RetryCount is how often it was tried again.
	// +optional
	RetryCount int32 `json:"retryCount,omitempty"`
	// LastRemediated is when the last try began.
	// +optional
	LastRemediated *metav1.Time `json:"lastRemediated,omitempty"`
}

// Metal3Remediation power-cycles the host of an unhealthy Machine of the same name.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:shortName=m3r,categories=cluster-api
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta2","clusterctl.cluster.x-k8s.io=","cluster.x-k8s.io/provider=infrastructure-metal3"}
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Retries",type=integer,JSONPath=`.status.retryCount`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Metal3Remediation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is asked for.
	// +optional
	Spec Metal3RemediationSpec `json:"spec,omitempty"`
	// Status is what the provider says.
	// +optional
	Status Metal3RemediationStatus `json:"status,omitempty,omitzero"`
}

// Metal3RemediationList is what a list request returns.
//
// +kubebuilder:object:root=true
type Metal3RemediationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Metal3Remediation `json:"items"`
}

// Metal3RemediationTemplateResource is what Metal3Remediations are made from.
type Metal3RemediationTemplateResource struct {
	// ObjectMeta is metadata that the Metal3Remediations get.
	// +optional
	ObjectMeta TemplateMeta `json:"metadata,omitempty,omitzero"`
	// Spec of the Metal3Remediations.
	Spec Metal3RemediationSpec `json:"spec"`
}

// Metal3RemediationTemplateSpec holds the template.
type Metal3RemediationTemplateSpec struct {
	// Template of Metal3Remediations.
	Template Metal3RemediationTemplateResource `json:"template"`
}

// Metal3RemediationTemplate is what a MachineHealthCheck refers to.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:shortName=m3rt,categories=cluster-api
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta2","clusterctl.cluster.x-k8s.io=","cluster.x-k8s.io/provider=infrastructure-metal3"}
type Metal3RemediationTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec holds the template.
	Spec Metal3RemediationTemplateSpec `json:"spec"`
}

// Metal3RemediationTemplateList is what a list request returns.
//
// +kubebuilder:object:root=true
type Metal3RemediationTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Metal3RemediationTemplate `json:"items"`
}
