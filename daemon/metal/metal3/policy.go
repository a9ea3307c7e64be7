package metal3

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PolicyName of the admission policy and its binding.
const PolicyName = "hosts-in-service.firstlight.dev"

// Policy is the API server's own guard of hosts in service, in CEL: it holds for everybody,
// also while the daemon is down. What would make the operator install or switch off a live
// host is refused, with the way out, unless the owner has said AllowWipe on that host.
func Policy() []client.Object {
	const (
		wayOut = `; to give up what is on its disk, first set the annotation ` + AllowWipe + ` on this host to the URL of the image that it is to have instead, or to ` + NoImage
		live   = `oldObject != null && has(oldObject.status) && has(oldObject.status.provisioning) && oldObject.status.provisioning.state in ['provisioned', 'externally provisioned']`
		// Consent that stood before, for the very image that comes: it is no part of the request that it allows.
		noted  = `oldObject != null && has(oldObject.metadata.annotations) && '` + AllowWipe + `' in oldObject.metadata.annotations && oldObject.metadata.annotations['` + AllowWipe + `'] == variables.image`
		image  = `object != null && has(object.spec.image) && object.spec.image.url != '' ? object.spec.image.url : '` + NoImage + `'`
		afresh = `request.operation == 'CREATE' && has(object.spec.image) && !(has(object.metadata.annotations) && ('` + annotationStatus + `' in object.metadata.annotations || '` + annotationPaused + `' in object.metadata.annotations))`
		same   = `has(object.spec.image) == has(oldObject.spec.image) && (!has(oldObject.spec.image) || object.spec.image.url == oldObject.spec.image.url)`
		extern = `(has(object.spec.externallyProvisioned) && object.spec.externallyProvisioned) == (has(oldObject.spec.externallyProvisioned) && oldObject.spec.externallyProvisioned)`
		off    = `oldObject != null && has(oldObject.status) && has(oldObject.status.operationalStatus) && oldObject.status.operationalStatus == 'detached'`
	)
	rule := admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete},
		Rule: admissionv1.Rule{
			APIGroups:   []string{"metal3.io"},
			APIVersions: []string{"*"},
			Resources:   []string{"baremetalhosts"},
		},
	}}
	return []client.Object{
		&admissionv1.ValidatingAdmissionPolicy{
			TypeMeta: metav1.TypeMeta{
				APIVersion: "admissionregistration.k8s.io/v1",
				Kind:       "ValidatingAdmissionPolicy",
			},
			ObjectMeta: metav1.ObjectMeta{Name: PolicyName},
			Spec: admissionv1.ValidatingAdmissionPolicySpec{
				FailurePolicy:    ptr.To(admissionv1.Fail),
				MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{rule}},
				Variables: []admissionv1.Variable{
					{Name: "live", Expression: live},
					{Name: "image", Expression: image},
					{Name: "allowed", Expression: noted},
					{Name: "detached", Expression: off},
				},
				Validations: []admissionv1.Validation{
					{
						Expression: `request.operation != 'UPDATE' || !variables.live || variables.allowed || (` + same + `)`,
						Message:    "this host is in service: changing or removing its image would erase its disk" + wayOut,
					},
					{
						Expression: `request.operation != 'UPDATE' || !variables.live || variables.allowed || (` + extern + `)`,
						Message:    "this host is in service: changing externallyProvisioned would erase its disk" + wayOut,
					},
					{
						Expression: `request.operation != 'DELETE' || !variables.live || variables.allowed || variables.detached`,
						Message: "this host is in service: deleting it would switch it off; to keep it running, first detach it with the annotation " +
							"baremetalhost.metal3.io/detached" + wayOut,
					},
					{
						Expression: `!(` + afresh + `) || variables.allowed`,
						Message: "a new host with an image is installed at once, also when it is in service already: create it without image and add that " +
							"after its inspection, or restore it with its status in the annotation " + annotationStatus + wayOut,
					},
				},
			},
		},
		&admissionv1.ValidatingAdmissionPolicyBinding{
			TypeMeta: metav1.TypeMeta{
				APIVersion: "admissionregistration.k8s.io/v1",
				Kind:       "ValidatingAdmissionPolicyBinding",
			},
			ObjectMeta: metav1.ObjectMeta{Name: PolicyName},
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        PolicyName,
				ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			},
		},
	}
}
