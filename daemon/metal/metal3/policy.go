package metal3

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PolicyName of the admission policy and its binding.
const PolicyName = "hosts-in-service.firstlight.dev"

// CEL of the policy: object is what a host would become, oldObject what it is.
const (
	live = `oldObject != null && has(oldObject.status) && has(oldObject.status.provisioning)` +
		` && oldObject.status.provisioning.state in ['provisioned', 'externally provisioned']`
	// nextImage is the image that the host would have afterwards.
	nextImage = `object != null && has(object.spec.image) && object.spec.image.url != ''` +
		` ? object.spec.image.url : '` + NoImage + `'`
	// noted is consent that stood before, for the very image that comes: it is no part of the request it allows.
	noted = `oldObject != null && has(oldObject.metadata.annotations)` +
		` && '` + AllowWipe + `' in oldObject.metadata.annotations` +
		` && oldObject.metadata.annotations['` + AllowWipe + `'] == variables.image`
	detached = `oldObject != null && has(oldObject.status) && has(oldObject.status.operationalStatus)` +
		` && oldObject.status.operationalStatus == 'detached'`

	// afresh is a host with an image that comes without its status, so that its image would be written at once.
	afresh = `request.operation == 'CREATE' && has(object.spec.image) && !(has(object.metadata.annotations)` +
		` && ('` + annotationStatus + `' in object.metadata.annotations` +
		` || '` + annotationPaused + `' in object.metadata.annotations))`
	sameImage = `has(object.spec.image) == has(oldObject.spec.image)` +
		` && (!has(oldObject.spec.image) || object.spec.image.url == oldObject.spec.image.url)`
	sameDeploy = `has(object.spec.customDeploy) == has(oldObject.spec.customDeploy)` +
		` && (!has(oldObject.spec.customDeploy) || object.spec.customDeploy.method == oldObject.spec.customDeploy.method)`
	sameExternal = `(has(object.spec.externallyProvisioned) && object.spec.externallyProvisioned)` +
		` == (has(oldObject.spec.externallyProvisioned) && oldObject.spec.externallyProvisioned)`
	sameBMC = `has(object.spec.bmc) == has(oldObject.spec.bmc)` +
		` && (!has(oldObject.spec.bmc) || object.spec.bmc.address == oldObject.spec.bmc.address)`
	// sameState holds unless the status says another state or image: the operator takes that for what is on the disk.
	sameState = `has(object.status) && has(object.status.provisioning)` +
		` && object.status.provisioning.state == oldObject.status.provisioning.state` +
		` && has(object.status.provisioning.image) == has(oldObject.status.provisioning.image)` +
		` && (!has(oldObject.status.provisioning.image)` +
		` || object.status.provisioning.image.url == oldObject.status.provisioning.image.url)`
	isOperator = `request.userInfo.username == 'system:serviceaccount:` + Namespace + `:` + OperatorName + `'`

	consents = `; to give up what is on its disk, first set the annotation ` + AllowWipe +
		` on this host to the URL of the image that it is to have instead, or to ` + NoImage
	detaches = `; to keep it running, first detach it with the annotation baremetalhost.metal3.io/detached`
)

// Policy is the API server's own guard of hosts in service, in CEL: it holds for everybody, also while the daemon is
// down. What would make the operator install or lose a live host is refused, with the way out, unless the owner has
// said AllowWipe on that host. It leaves alone what says by its name that it switches a host off or restarts it:
// spec.online and the annotation reboot.metal3.io.
func Policy() []client.Object {
	const (
		update = `request.operation != 'UPDATE' || !variables.live || `
		remove = `request.operation != 'DELETE' || !variables.live || `
	)
	return denyPolicy(PolicyName, admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: liveHosts(),
		Variables: []admissionv1.Variable{
			{Name: "live", Expression: live},
			{Name: "image", Expression: nextImage},
			{Name: "allowed", Expression: noted},
			{Name: "detached", Expression: detached},
		},
		Validations: []admissionv1.Validation{
			{
				Expression: update + `variables.allowed || (` + sameImage + `)`,
				Message:    "this host is in service: changing or removing its image would erase its disk" + consents,
			},
			{
				Expression: update + `variables.allowed || (` + sameDeploy + `)`,
				Message:    "this host is in service: changing customDeploy would erase its disk" + consents,
			},
			{
				Expression: update + `variables.allowed || (` + sameExternal + `)`,
				Message:    "this host is in service: changing externallyProvisioned would erase its disk" + consents,
			},
			{
				Expression: update + `variables.detached || (` + sameBMC + `)`,
				Message:    "this host is in service: another BMC address would be another server" + detaches,
			},
			{
				Expression: update + `variables.allowed || ` + isOperator + ` || (` + sameState + `)`,
				Message:    "this host is in service: its status is the operator's, and another one would erase its disk" + consents,
			},
			{
				Expression: remove + `variables.allowed || variables.detached`,
				Message:    "this host is in service: deleting it would switch it off" + detaches + consents,
			},
			{
				Expression: `!(` + afresh + `)`,
				Message: "a new host with an image is installed at once, also when it is in service already: create " +
					"it without image and add that after its inspection, or restore it with its status in the " +
					"annotation " + annotationStatus,
			},
		},
	})
}

// liveHosts are the requests that the policy looks at.
func liveHosts() *admissionv1.MatchResources {
	return &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete},
			Rule: admissionv1.Rule{
				APIGroups:   []string{"metal3.io"},
				APIVersions: []string{"*"},
				Resources:   []string{"baremetalhosts", "baremetalhosts/status"},
			},
		},
	}}}
}
