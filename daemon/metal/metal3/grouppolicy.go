package metal3

import (
	"fmt"
	"strings"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// requestAnnotations are those of a host by which a person asks for something that can be undone (Patch).
func requestAnnotations() []string {
	return []string{metal3api.RebootAnnotationPrefix, metal3api.InspectAnnotationPrefix, annotationPaused}
}

// GroupPolicy narrows the right to change hosts for people, because RBAC knows no fields: they may change spec.online, the
// annotations by which a host is restarted, inspected and resumed, and those of allowed; nothing else, whatever gives
// them more rights. name is the policy's; who they are is said by member, an expression over groups in the Common
// Expression Language, and for people by who.
func GroupPolicy(name, who, member string, allowed ...string) []client.Object {
	keys := "'" + strings.Join(append(requestAnnotations(), allowed...), "', '") + "'"
	rules := []string{
		`request.operation == 'UPDATE'`,
		`object.spec.all(k, k == 'online' || k in oldObject.spec && object.spec[k] == oldObject.spec[k])`,
		`oldObject.spec.all(k, k in object.spec)`,
		`variables.now.all(k, k in variables.allowed || k in variables.before && variables.now[k] == variables.before[k])`,
		`variables.before.all(k, k in variables.allowed || k in variables.now)`,
		metadataOf("object", "labels", "{}") + ` == ` + metadataOf("oldObject", "labels", "{}"),
		metadataOf("object", "finalizers", "[]") + ` == ` + metadataOf("oldObject", "finalizers", "[]"),
		metadataOf("object", "ownerReferences", "[]") + ` == ` + metadataOf("oldObject", "ownerReferences", "[]"),
	}
	return denyPolicy(name, admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: hostRule(admissionv1.OperationAll),
		MatchConditions: []admissionv1.MatchCondition{{
			Name: "member",
			Expression: fmt.Sprintf(
				`(has(request.userInfo.groups) ? [request.userInfo.groups] : []).exists(groups, %s)`, member,
			),
		}},
		Variables: []admissionv1.Variable{
			{Name: "allowed", Expression: "[" + keys + "]"},
			{Name: "now", Expression: metadataOf("object", "annotations", "{}")},
			{Name: "before", Expression: metadataOf("oldObject", "annotations", "{}")},
		},
		Validations: []admissionv1.Validation{{
			Expression: strings.Join(rules, " && "),
			Message:    who + " may change spec.online of a host and the annotations " + keys + ", nothing else",
		}},
	})
}

// metadataOf is a field of an object's metadata in CEL, or what it is like if it is not there.
func metadataOf(object, field, absent string) string {
	f := object + ".metadata." + field
	return fmt.Sprintf("(has(%s) ? %[1]s : %s)", f, absent)
}
