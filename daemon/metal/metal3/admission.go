package metal3

import (
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/label"
)

// Names of the admission policies for hosts that are not in service yet, and of their bindings.
const (
	NamespacePolicyName = "hosts-namespace.firstlight.dev"
	DisksPolicyName     = "hosts-disks.firstlight.dev"
	ClearedPolicyName   = "hosts-cleared.firstlight.dev"
	HoldPolicyName      = "hosts-checked.firstlight.dev"
)

// Guard is by what the API server itself guards hosts.
type Guard struct {
	Daemon string // who the appliance is for the API server

	// WebhookCA signed the certificate of the webhook that holds hosts, PEM; nil: a policy of the API server's holds
	// them, of a kind that came with Kubernetes 1.36.
	WebhookCA []byte
}

// Objects are all rules for hosts: of those in service, and those by which any host enters, whoever applies it: hosts
// have one namespace, nothing is powered on or installed before it was checked, which the appliance alone says, and no
// disk is cleaned or written to that nobody named.
func (g Guard) Objects() []client.Object {
	c := conditionsOf(g.Daemon)
	hold := c.holdPolicy
	if g.WebhookCA != nil {
		hold = func() []client.Object { return c.holdWebhook(g.WebhookCA) }
	}
	return slices.Concat(Policy(), namespacePolicy(), disksPolicy(), c.clearedPolicy(), hold())
}

// admissionKind is the type of a policy or of its binding.
func admissionKind(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: kind}
}

// denyPolicy is a policy by which the API server refuses requests, and what puts it into effect. A request that it
// cannot judge is refused, too.
func denyPolicy(name string, spec admissionv1.ValidatingAdmissionPolicySpec) []client.Object {
	spec.FailurePolicy = ptr.To(admissionv1.Fail)
	return []client.Object{
		&admissionv1.ValidatingAdmissionPolicy{
			TypeMeta:   admissionKind("ValidatingAdmissionPolicy"),
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       spec,
		},
		&admissionv1.ValidatingAdmissionPolicyBinding{
			TypeMeta:   admissionKind("ValidatingAdmissionPolicyBinding"),
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        name,
				ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			},
		},
	}
}

func hostRule(operations ...admissionv1.OperationType) *admissionv1.MatchResources {
	return &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: operations,
			Rule: admissionv1.Rule{
				APIGroups:   []string{"metal3.io"},
				APIVersions: []string{"*"},
				Resources:   []string{"baremetalhosts"},
			},
		},
	}}}
}

// namespacePolicy refuses hosts where the operator does not look: it watches one namespace, and Ironic and the backups
// on DATA know hosts by their names alone.
func namespacePolicy() []client.Object {
	return denyPolicy(NamespacePolicyName, admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: hostRule(admissionv1.Create),
		Validations: []admissionv1.Validation{{
			Expression: `request.namespace == '` + Namespace + `'`,
			MessageExpression: `'this appliance installs the hosts of namespace ` + Namespace +
				` only, and no one would install this one in ' + request.namespace + ': ` +
				`apply it and the Secrets that it names with kubectl -n ` + Namespace + ` apply'`,
		}},
	})
}

// isSet is whether a request sets a field of a host's spec. One that was set before may stay: other edits of such a
// host, its removal among them, are not in its way.
func isSet(field string) string {
	f := `object.spec.` + field
	old := `oldObject.spec.` + field
	return `has(` + f + `) && !(oldObject != null && has(` + old + `) && ` + f + ` == ` + old + `)`
}

// disksPolicy refuses what erases or writes disks without write_image, before which alone the ramdisk asks: RAID, for
// which Metal3 first erases what the disks say of themselves (its raid.go, BuildRAIDCleanSteps), and deploy steps of
// one's own.
func disksPolicy() []client.Object {
	return denyPolicy(DisksPolicyName, admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: hostRule(admissionv1.Create, admissionv1.Update),
		Validations: []admissionv1.Validation{
			{
				Expression: `!(` + isSet("raid") + `)`,
				Message: "this appliance configures no RAID: disks would be erased for it, and nobody asked whether what " +
					"is on them may be lost; configure it with the controller's own tool, remove raid, and name the disk " +
					"in rootDeviceHints",
			},
			{
				Expression: `!(` + isSet("customDeploy") + `)`,
				Message: "this appliance installs images: a custom deploy step would write to disks, and nobody asked " +
					"whether what is on them may be lost; remove customDeploy and name an image",
			},
		},
	})
}

// CEL of the hold policy. Status is read from the old object: what a request says of the status is dropped later.
const (
	annotated = `has(object.metadata.annotations)`
	isPaused  = annotated + ` && '` + annotationPaused + `' in object.metadata.annotations`
	// isRestore: it comes with its status. A host that is there already is not restored.
	isRestore = annotated + ` && '` + annotationStatus + `' in object.metadata.annotations && (oldObject == null` +
		` || has(oldObject.metadata.annotations) && '` + annotationStatus + `' in oldObject.metadata.annotations)`
	// isUnknown is whether the operator has never acted on a host (IsUnregistered).
	isUnknown = `oldObject == null || !has(oldObject.status) || !has(oldObject.status.provisioning)` +
		` || !has(oldObject.status.provisioning.state) || oldObject.status.provisioning.state == ''`
	clearedIs = annotated + ` && '` + label.Cleared + `' in object.metadata.annotations` +
		` ? object.metadata.annotations['` + label.Cleared + `'] : ''`
	clearedWas = `oldObject != null && has(oldObject.metadata.annotations)` +
		` && '` + label.Cleared + `' in oldObject.metadata.annotations` +
		` ? oldObject.metadata.annotations['` + label.Cleared + `'] : ''`
	imageIs = `has(object.spec.image) && has(object.spec.image.url) ? object.spec.image.url : ''`
	// imageMark is what ClearedImage returns of the image.
	imageMark = `has(object.spec.image) && has(object.spec.image.url) ? ` +
		`(has(object.spec.image.checksumType) ? object.spec.image.checksumType : '') + ':' + ` +
		`(has(object.spec.image.checksum) ? object.spec.image.checksum : '') + ' ' + ` +
		`(has(object.spec.image.format) ? object.spec.image.format : '') + ' ' + object.spec.image.url : ''`
	external    = `has(object.spec.externallyProvisioned) && object.spec.externallyProvisioned`
	installedIs = `oldObject != null && has(oldObject.status) && has(oldObject.status.provisioning)` +
		` && has(oldObject.status.provisioning.image) && has(oldObject.status.provisioning.image.url)` +
		` ? oldObject.status.provisioning.image.url : ''`

	cleans = `!has(object.spec.automatedCleaningMode) || object.spec.automatedCleaningMode != 'disabled'`
)

// conditions are those of the hold policy that know who the appliance is.
type conditions struct {
	isDaemon string
	isForged string // it comes cleared, and not from the appliance: it is what somebody saved of a host, or moves from another cluster. It loses that.
	holds    string // it is paused
}

func conditionsOf(daemon string) conditions {
	isDaemon := `request.userInfo.username == '` + daemon + `'`
	isForged := `request.operation == 'CREATE' && (` + clearedIs + `) != '' && !(` + isDaemon + `)`
	// Not even its registration was cleared, which powers it on. That is so as long as nobody cleared it: whoever takes
	// the pause away, of whatever value, and however often.
	isNew := `(` + isUnknown + `) && ((` + clearedIs + `) == '' || (` + isForged + `))`
	// It has an image that it was not cleared for.
	isPending := `(` + imageIs + `) != '' && (` + imageMark + `) != (` + clearedIs + `)` +
		` && (` + imageIs + `) != (` + installedIs + `)`
	return conditions{
		isDaemon: isDaemon,
		isForged: isForged,
		holds: `!(` + isPaused + `) && !(` + isRestore + `) && !(` + external + `)` +
			` && !has(object.metadata.deletionTimestamp) && ((` + isNew + `) || (` + isPending + `))`,
	}
}

// clearedPolicy refuses that anybody but the appliance says what a host is cleared for; whoever may change the host may
// take that back. A new host loses it instead (holdPolicy).
func (c conditions) clearedPolicy() []client.Object {
	return denyPolicy(ClearedPolicyName, admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: hostRule(admissionv1.Create, admissionv1.Update),
		Validations: []admissionv1.Validation{{
			Expression: `(` + clearedIs + `) == '' || (` + clearedIs + `) == (` + clearedWas + `) || ` + c.isDaemon,
			Message: "the annotation " + label.Cleared + " says what the appliance has checked, and the appliance alone sets " +
				"it; leave it as it is: a host that has passed its checks continues automatically",
		}},
	})
}
