package metal3

import (
	"context"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"firstlight.dev/firstlight/daemon/engine/daemonpod"
)

// The webhook that holds hosts is answered in the operator's pod. The API server takes no host while that pod is not
// there anyway, because it asks the operator as well, and the operator does nothing either.
const (
	HoldService = "firstlight-hold" // by which the API server calls it
	HoldCommand = "hold"            // of firstlightd
	holdPort    = 9444
	holdReady   = "/readyz"
)

// path is where the webhook's server makes a change.
func (c change) path() string { return "/" + c.name }

// holdWebhook has a webhook make the changes. Whether a host is changed is decided by the API server, by the conditions
// of the policy: the appliance's own hosts, and what the operator writes, match none and are not sent. A host that is not
// sent because nobody answers is refused.
func (c conditions) holdWebhook(authority []byte) []client.Object {
	configuration := &admissionv1.MutatingWebhookConfiguration{
		TypeMeta:   admissionKind("MutatingWebhookConfiguration"),
		ObjectMeta: metav1.ObjectMeta{Name: HoldPolicyName},
	}
	var rules []admissionv1.RuleWithOperations
	for _, r := range hostRule(admissionv1.Create, admissionv1.Update).ResourceRules {
		rules = append(rules, r.RuleWithOperations)
	}
	for _, change := range c.changes() {
		configuration.Webhooks = append(configuration.Webhooks, admissionv1.MutatingWebhook{
			Name: change.name + "." + HoldPolicyName,
			ClientConfig: admissionv1.WebhookClientConfig{
				Service: &admissionv1.ServiceReference{
					Namespace: Namespace, Name: HoldService, Path: ptr.To(change.path()), Port: ptr.To[int32](443),
				},
				CABundle: authority,
			},
			Rules:                   rules,
			MatchConditions:         []admissionv1.MatchCondition{{Name: change.name, Expression: change.when}},
			FailurePolicy:           ptr.To(admissionv1.Fail),
			ReinvocationPolicy:      ptr.To(admissionv1.IfNeededReinvocationPolicy),
			SideEffects:             ptr.To(admissionv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
			TimeoutSeconds:          ptr.To[int32](30),
		})
	}
	return []client.Object{configuration}
}

// ServeHold makes the changes of holdWebhook for the API server, until ctx ends. dir has tls.crt and tls.key.
func ServeHold(ctx context.Context, dir string) error { return serveHold(ctx, "", holdPort, dir) }

func serveHold(ctx context.Context, host string, port int, dir string) error {
	server := webhook.NewServer(webhook.Options{Host: host, Port: port, CertDir: dir})
	for _, c := range conditionsOf("").changes() {
		server.Register(c.path(), &admission.Webhook{Handler: admission.HandlerFunc(c.answer)})
	}
	server.Register(holdReady, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	if err := server.Start(ctx); err != nil {
		return fmt.Errorf("answer the API server: %w", err)
	}
	return nil
}

// answer returns the change of the host that the API server sent.
func (c change) answer(_ context.Context, r admission.Request) admission.Response {
	var h unstructured.Unstructured
	if err := h.UnmarshalJSON(r.Object.Raw); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("read the host: %w", err))
	}
	if err := c.apply(&h); err != nil {
		return admission.Errored(http.StatusUnprocessableEntity, err)
	}
	changed, err := h.MarshalJSON()
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("write the host: %w", err))
	}
	return admission.PatchResponseFromRaw(r.Object.Raw, changed)
}

// holdService leads to the container of the operator's pod that holds hosts.
func holdService(pod map[string]string) client.Object {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: HoldService},
		Spec: corev1.ServiceSpec{
			Selector: pod,
			Ports:    []corev1.ServicePort{{Port: 443, TargetPort: intstr.FromInt32(holdPort)}},
		},
	}
}

// holdContainer answers the webhook, by the daemon's program and the certificate of volume cert. It needs daemonpod's
// volume besides, and asks nothing of the API.
func holdContainer(cert corev1.VolumeMount) corev1.Container {
	return corev1.Container{
		Name:            "hold",
		Image:           daemonpod.Image,
		ImagePullPolicy: corev1.PullNever,
		Command:         []string{daemonpod.Binary, HoldCommand},
		Args:            []string{cert.MountPath},
		Ports:           []corev1.ContainerPort{{Name: "hold", ContainerPort: holdPort, Protocol: corev1.ProtocolTCP}},
		VolumeMounts:    []corev1.VolumeMount{daemonpod.BinaryMount, cert},
		ReadinessProbe: &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
				Scheme: corev1.URISchemeHTTPS, Path: holdReady, Port: intstr.FromInt32(holdPort),
			}},
			PeriodSeconds: 2, TimeoutSeconds: 30, FailureThreshold: 30,
		},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
}
