package metal3

import (
	"strings"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/label"
)

// change is one that is made to a host as it enters, if a condition holds: by the API server, or by a webhook that it
// calls then.
type change struct {
	name  string // a word; of the webhook
	when  string // CEL, a boolean
	patch string // CEL, a list of JSONPatch

	apply func(*unstructured.Unstructured) error // what patch does
}

// changes pause a host that someone else creates, or gives an image, until the appliance has checked it: pre-flight
// before it is powered on, its disk before it is written to. Pausing is Metal3's own way to have a host left alone, so
// this holds while the daemon is down. The daemon clears hosts by an annotation, and its own like all others.
//
// They also switch automated cleaning off, which would erase the partition tables of all disks of a host.
func (c conditions) changes() []change {
	return []change{
		{
			name: "hold",
			when: c.holds,
			patch: `(` + annotated + ` ? [] : [JSONPatch{op: "add", path: "/metadata/annotations", value: {}}])` +
				` + [JSONPatch{op: "add", path: "/metadata/annotations/" + jsonpatch.escapeKey("` + annotationPaused + `"),` +
				` value: "` + label.Hold + `"}]`,
			apply: func(h *unstructured.Unstructured) error {
				return unstructured.SetNestedField(h.Object, label.Hold, "metadata", "annotations", annotationPaused)
			},
		},
		{
			name:  "cleaning",
			when:  cleans,
			patch: `[JSONPatch{op: "add", path: "/spec/automatedCleaningMode", value: "disabled"}]`,
			apply: func(h *unstructured.Unstructured) error {
				return unstructured.SetNestedField(h.Object, string(metal3api.CleaningModeDisabled), "spec", "automatedCleaningMode")
			},
		},
		{
			name:  "cleared",
			when:  c.isForged,
			patch: `[JSONPatch{op: "remove", path: "/metadata/annotations/" + jsonpatch.escapeKey("` + label.Cleared + `")}]`,
			apply: func(h *unstructured.Unstructured) error {
				unstructured.RemoveNestedField(h.Object, "metadata", "annotations", label.Cleared)
				return nil
			},
		},
	}
}

// holdPolicy has the API server make the changes.
func (c conditions) holdPolicy() []client.Object {
	var any, all []string
	for _, change := range c.changes() {
		any = append(any, `(`+change.when+`)`)
		all = append(all, `((`+change.when+`) ? `+change.patch+` : [])`)
	}
	return []client.Object{
		&admissionv1.MutatingAdmissionPolicy{
			TypeMeta:   admissionKind("MutatingAdmissionPolicy"),
			ObjectMeta: metav1.ObjectMeta{Name: HoldPolicyName},
			Spec: admissionv1.MutatingAdmissionPolicySpec{
				FailurePolicy:      ptr.To(admissionv1.Fail),
				ReinvocationPolicy: admissionv1.IfNeededReinvocationPolicy,
				MatchConstraints:   hostRule(admissionv1.Create, admissionv1.Update),
				// For some seconds after it started the API server cannot change an object by a policy, and refuses
				// those that one matches. The appliance's own hosts match none.
				MatchConditions: []admissionv1.MatchCondition{{Name: "unchecked", Expression: strings.Join(any, " || ")}},
				Mutations: []admissionv1.Mutation{{
					PatchType: admissionv1.PatchTypeJSONPatch,
					JSONPatch: &admissionv1.JSONPatch{Expression: strings.Join(all, " + ")},
				}},
			},
		},
		&admissionv1.MutatingAdmissionPolicyBinding{
			TypeMeta:   admissionKind("MutatingAdmissionPolicyBinding"),
			ObjectMeta: metav1.ObjectMeta{Name: HoldPolicyName},
			Spec:       admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: HoldPolicyName},
		},
	}
}
