// Package bpa brings the operator onto the appliance: its kinds, its rights, its pod, and
// the site's clusters as Provisionings. What the operator does is in
// package operator below; docs/bpa.md walks through it.
package bpa

import (
	"fmt"
	"path"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/crd"
	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/clusters/bpa/operator"
	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/engine/daemonpod"
)

// Names of the operator's objects; ICN's but for the namespace.
const (
	Namespace = "bpa"
	Name      = "bpa-operator"
)

// Operator is what the pod is made from.
type Operator struct {
	Site      string // its name
	Proposal  string // operator.ProposalOff, …Show or …Apply
	Installer string // image; "" if the appliance has none
	LeaseFile string // on the appliance, in a directory of its own: it is replaced by rename
	LeaseDir  string
	Digest    string // of the daemon's binary: another one starts another pod
	Agent     string // socket of the SSH agent that has the appliance's log-in to nodes, in a directory of its own

	Allowed []string // installers that Provisionings may name
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
		account.Object(),
	)
	objects = append(objects, o.rights()...)
	return append(objects, oldFields(), oldFieldsBinding(), o.deployment()), nil
}

// crdObjects are copies of the kinds, which are read once: the stage of the operator asks for them all the time.
func crdObjects() ([]client.Object, error) {
	kinds, err := readKinds()
	if err != nil {
		return nil, err
	}

	objects := make([]client.Object, len(kinds))
	for i, k := range kinds {
		objects[i] = k.DeepCopy()
	}
	return objects, nil
}

var readKinds = sync.OnceValues(func() ([]*unstructured.Unstructured, error) {
	kinds, err := apply.Decode(crd.BPA)
	if err != nil {
		return nil, fmt.Errorf("read definitions of kinds: %w", err)
	}
	return kinds, nil
})

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
	args := []string{
		"--namespace", Namespace, "--lease-file", o.LeaseFile, "--site", o.Site, "--proposal", o.Proposal,
		"--installer-image", o.Installer, "--agent", o.Agent,
	}
	for _, image := range o.Allowed {
		args = append(args, "--allowed-image", image)
	}

	manager := daemonpod.Manager{
		Command: "bpa",
		Args:    args,
		Health:  health,
		Folders: []daemonpod.Folder{
			{Name: "clusters", Path: contract.Dir},
			{Name: "leases", Path: o.LeaseDir, ReadOnly: true},
			{Name: "agent", Path: path.Dir(o.Agent)},
		},
	}
	meta := metav1.ObjectMeta{Namespace: Namespace, Name: Name}
	return daemonpod.NewDeployment(meta, map[string]string{label.Binary: o.Digest}, manager.Spec())
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
