// Package bpa brings the operator onto the appliance: its kinds, its rights, its pod, and
// the site's clusters as Provisionings. What the operator does is in
// package operator below; docs/bpa.md walks through it.
package bpa

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/crd"
	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/clusters/bpa/operator"
	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/engine/apply"
)

// Names of the operator's objects; ICN's but for the namespace.
const (
	Namespace = "bpa"
	Name      = "bpa-operator"
)

// Image is what the pod is named after. It holds nothing but a place to mount the daemon's
// own binary, which the appliance's root has anyway.
const Image = assets.ImageDomain + "/firstlight:" + assets.Version

// binary is the daemon on the appliance, and in the pod.
const binary = "/usr/bin/firstlightd"

// Operator is what the pod is made from.
type Operator struct {
	Site      string // its name
	Proposal  string // operator.ProposalOff, …Show or …Apply
	Installer string // image; "" if the appliance has none
	LeaseFile string // on the appliance, in a directory of its own: it is replaced by rename
	LeaseDir  string
	Digest    string // of the daemon's binary: another one starts another pod
	Agent     string // socket of the SSH agent that has the appliance's log-in to nodes, in a directory of its own

	Allowed     []string            // installers that Provisionings may name
	HostSecrets map[string][]string // by namespace: names of the Secrets that the hosts' systems were given, see HostSecrets
}

// Objects is all the operator needs, in the order of application.
func (o Operator) Objects() ([]client.Object, error) {
	objects, err := crdObjects()
	if err != nil {
		return nil, err
	}

	objects = append(objects,
		&corev1.Namespace{
			TypeMeta:   typeMeta("v1", "Namespace"),
			ObjectMeta: metav1.ObjectMeta{Name: Namespace},
		},
		&corev1.ServiceAccount{
			TypeMeta:   typeMeta("v1", "ServiceAccount"),
			ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: Name},
		},
	)
	objects = append(objects, o.rights()...)
	return append(objects, oldFields(), oldFieldsBinding(), o.deployment()), nil
}

// crdObjects are the kinds.
func crdObjects() ([]client.Object, error) {
	var objects []client.Object
	d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(crd.BPA), 4096)
	for {
		u := &unstructured.Unstructured{}
		if err := d.Decode(u); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("read definitions of kinds: %w", err)
		}
		objects = append(objects, u)
	}
}

func typeMeta(version, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: version, Kind: kind}
}

// oldFields warns whoever applies a Provisioning with fields of older versions, at once.
func oldFields() *admissionv1.ValidatingAdmissionPolicy {
	var validations []admissionv1.Validation
	for _, field := range []string{"hostfile", "kudInstallerPath", "dhcpLeaseFile", "multiClusterDir"} {
		validations = append(validations, admissionv1.Validation{
			Expression: "!has(object.spec." + field + ") || object.spec." + field + " == ''",
			Message:    "spec." + field + " is of an older version and does nothing; see status.warnings",
		})
	}
	return &admissionv1.ValidatingAdmissionPolicy{
		TypeMeta: typeMeta(
			"admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy",
		), ObjectMeta: metav1.ObjectMeta{Name: oldFieldsName},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionv1.Ignore),
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
				Rule: admissionv1.Rule{
					APIGroups:   []string{"bpa.akraino.org"},
					APIVersions: []string{"*"},
					Resources:   []string{"provisionings"},
				},
			}}}},
			Validations: validations,
		},
	}
}

const oldFieldsName = "old-fields.bpa.akraino.org"

func oldFieldsBinding() *admissionv1.ValidatingAdmissionPolicyBinding {
	return &admissionv1.ValidatingAdmissionPolicyBinding{
		TypeMeta: typeMeta(
			"admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding",
		), ObjectMeta: metav1.ObjectMeta{Name: oldFieldsName},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        oldFieldsName,
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Warn},
		},
	}
}

// health is where the kubelet asks the pod, on the appliance's loopback.
const health = 8384

// deployment is one pod on the appliance's own network: it logs in to nodes.
func (o Operator) deployment() *appsv1.Deployment {
	labels := map[string]string{"app.kubernetes.io/name": Name}
	directory := func(name, path string, kind corev1.HostPathType) corev1.Volume {
		return corev1.Volume{
			Name:         name,
			VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind}},
		}
	}
	args := []string{
		"--namespace", Namespace, "--lease-file", o.LeaseFile, "--site", o.Site, "--proposal", o.Proposal,
		"--installer-image", o.Installer, "--health", fmt.Sprintf("127.0.0.1:%d", health), "--agent", o.Agent,
	}
	for _, image := range o.Allowed {
		args = append(args, "--allowed-image", image)
	}

	return &appsv1.Deployment{
		TypeMeta: typeMeta(
			"apps/v1", "Deployment",
		), ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: Name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1),
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{label.Binary: o.Digest}},
				Spec: apply.MakeCritical(corev1.PodSpec{
					ServiceAccountName: Name,
					HostNetwork:        true,
					DNSPolicy:          corev1.DNSDefault,
					EnableServiceLinks: ptr.To(false),
					Containers: []corev1.Container{{
						Name:            "manager",
						Image:           Image,
						ImagePullPolicy: corev1.PullNever,
						Command:         []string{binary, "bpa"},
						Args:            args,
						ReadinessProbe: &corev1.Probe{
							ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
								Host: "127.0.0.1",
								Path: "/readyz",
								Port: intstr.FromInt32(health),
							}},
							PeriodSeconds: 5, TimeoutSeconds: 10,
						},
						SecurityContext: &corev1.SecurityContext{
							RunAsUser:                ptr.To[int64](0),
							RunAsGroup:               ptr.To[int64](0),
							AllowPrivilegeEscalation: ptr.To(false),
							ReadOnlyRootFilesystem:   ptr.To(true),
							Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
							SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
						},
						VolumeMounts: []corev1.VolumeMount{
							{Name: "binary", MountPath: binary, ReadOnly: true},
							{Name: "clusters", MountPath: contract.Dir},
							{Name: "leases", MountPath: o.LeaseDir, ReadOnly: true},
							{Name: "agent", MountPath: path.Dir(o.Agent)},
						},
					}},
					Volumes: []corev1.Volume{
						directory("binary", binary, corev1.HostPathFile),
						directory("clusters", contract.Dir, corev1.HostPathDirectoryOrCreate),
						directory("leases", o.LeaseDir, corev1.HostPathDirectoryOrCreate),
						directory("agent", path.Dir(o.Agent), corev1.HostPathDirectoryOrCreate),
					},
				}),
			},
		},
	}
}

// ProposalMode is what is done with proposed clusters on a site: nothing if it names its own. An empty list
// names none on purpose.
func ProposalMode(s *site.Site) string {
	switch {
	case len(s.Clusters) > 0:
		return operator.ProposalOff
	case s.Clusters != nil || len(s.Nodes) == 0, s.Discover != nil: // a rack that grows is not proposed as it is
		return operator.ProposalShow
	}
	return operator.ProposalApply
}
