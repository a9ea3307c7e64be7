package metal3

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/engine/daemonpod"
)

// Names inside the operator's own manifest.
const (
	manifestNamespace = "baremetal-operator-system"
	WebhookService    = "baremetal-operator-webhook-service"
	OperatorName      = "baremetal-operator-controller-manager"
)

// Manifest is the objects of the operator's rendered manifest, of the very module that it was compiled from.
type Manifest []*unstructured.Unstructured

// ReadManifest reads YAML documents, whose namespace becomes Namespace.
func ReadManifest(text []byte) (Manifest, error) {
	all, err := apply.Decode(bytes.ReplaceAll(text, []byte(manifestNamespace), []byte(Namespace)))
	if err != nil {
		return nil, fmt.Errorf("read the operator's manifest: %w", err)
	}
	return all, nil
}

// Operator is what the baremetal-operator is run with.
type Operator struct {
	Manifest Manifest
	Image    string

	IronicEndpoint string // https://ADDR:6385
	KernelURL      string // of the deploy ramdisk
	RamdiskURL     string
	DiscURL        string // of the disc for hosts with virtual media; "": no host of the site has it
	Username       string // of Ironic's API
	Password       string
	CA             []byte // that signed Ironic's certificate and WebhookCert, PEM

	// WebhookCert is for WebhookService in Namespace, and for HoldService if Holds (see WebhookNames).
	WebhookCert, WebhookKey []byte

	Holds bool // the pod answers the webhook that holds hosts, too: the API server has not to have a policy for that

	// Limit is how many hosts are inspected, cleaned and deployed at a time; the others wait.
	Limit int
}

// WebhookNames are the DNS names that the API server calls the webhook of a Service by.
func WebhookNames(service string) []string {
	return []string{service + "." + Namespace + ".svc", service + "." + Namespace + ".svc.cluster.local"}
}

// usedKinds are the kinds that come from the manifest as they are. What it says of images,
// addresses and certificate issuers holds elsewhere, not here.
var usedKinds = map[string]bool{
	"CustomResourceDefinition": true, "ServiceAccount": true, "Role": true, "ClusterRole": true,
	"RoleBinding": true, "ClusterRoleBinding": true, "ValidatingWebhookConfiguration": true,
}

// Objects is all the operator needs, in the order of application. The error says what the
// manifest lacks: a newer operator may have moved it.
func (o Operator) Objects() ([]client.Object, error) {
	objects := []client.Object{&corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: Namespace},
	}}
	var webhook *unstructured.Unstructured
	found := map[string]int{}
	for i := range o.Manifest {
		u := o.Manifest[i].DeepCopy()
		kind := u.GetKind()
		found[kind]++
		switch {
		case kind == "ValidatingWebhookConfiguration":
			webhook = u // last: it refuses everything until the operator answers
		case kind == "ClusterRoleBinding":
			objects = append(objects, bindHere(u), bindNobody(u))
		case kind == "CustomResourceDefinition":
			objects = append(objects, LabelForMove(u))
		case kind == "Service" && u.GetName() == WebhookService, usedKinds[kind]:
			objects = append(objects, u)
		}
	}

	for kind := range usedKinds {
		if found[kind] == 0 {
			return nil, fmt.Errorf("the operator's manifest has no %s", kind)
		}
	}

	objects = append(objects, o.secrets()...)
	if o.Holds {
		objects = append(objects, holdService(operatorLabels()))
	}
	objects = append(objects, o.deployment())
	if err := o.injectCA(webhook); err != nil {
		return nil, err
	}

	return append(objects, webhook), nil
}

// LabelForMove labels the definition of hosts and of what belongs to them, so that `clusterctl move` knows them. Which
// hosts it takes is said by their own labels.
func LabelForMove(definition *unstructured.Unstructured) *unstructured.Unstructured {
	if !slices.Contains([]string{"baremetalhosts.metal3.io", "hardwaredata.metal3.io"}, definition.GetName()) {
		return definition
	}

	labels := definition.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels["clusterctl.cluster.x-k8s.io"] = ""
	definition.SetLabels(labels)
	return definition
}

// bindHere gives in Namespace what a binding of the manifest gives in all: the operator watches that one alone, and
// Secrets of clusters and tenants are in others.
func bindHere(everywhere *unstructured.Unstructured) client.Object {
	here := everywhere.DeepCopy()
	here.SetKind("RoleBinding")
	here.SetNamespace(Namespace)
	return here
}

// bindNobody is that binding without anyone in it: what an earlier version applied stays in the API.
func bindNobody(everywhere *unstructured.Unstructured) client.Object {
	nobody := everywhere.DeepCopy()
	unstructured.RemoveNestedField(nobody.Object, "subjects")
	return nobody
}

// injectCA puts our authority in the place where the manifest asks for one to be injected.
func (o Operator) injectCA(webhook *unstructured.Unstructured) error {
	hooks, _, err := unstructured.NestedSlice(webhook.Object, "webhooks")
	if err != nil || len(hooks) == 0 {
		return fmt.Errorf("the operator's manifest lists no webhooks: %v", err)
	}

	for i := range hooks {
		hook, ok := hooks[i].(map[string]any)
		if !ok {
			return fmt.Errorf("webhook %d of the operator's manifest is not an object", i)
		}
		if err := unstructured.SetNestedField(
			hook, base64.StdEncoding.EncodeToString(o.CA), "clientConfig", "caBundle",
		); err != nil {
			return fmt.Errorf("webhook %d of the operator's manifest: %w", i, err)
		}
	}

	webhook.SetAnnotations(nil)
	return unstructured.SetNestedSlice(webhook.Object, hooks, "webhooks")
}

const (
	caDir   = "/etc/ironic-ca"
	certDir = "/tmp/k8s-webhook-server/serving-certs"
)

func (o Operator) secrets() []client.Object {
	secret := func(name string, data map[string][]byte) client.Object {
		return &corev1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name},
			Type:       corev1.SecretTypeOpaque, Data: data,
		}
	}
	return []client.Object{
		secret(
			"operator-ironic-auth", map[string][]byte{"username": []byte(o.Username), "password": []byte(o.Password)},
		),
		secret("operator-ironic-ca", map[string][]byte{"ca.crt": o.CA}),
		secret("operator-webhook-cert", map[string][]byte{"tls.crt": o.WebhookCert, "tls.key": o.WebhookKey}),
	}
}

// operatorLabels are what the manifest's Services find the operator's pod by.
func operatorLabels() map[string]string {
	return map[string]string{"control-plane": "controller-manager", "webhook": "metal3-io-v1alpha1-baremetalhost"}
}

func (o Operator) deployment() *appsv1.Deployment {
	probe := func(path string, every, failures int32) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
				Path: path,
				Port: intstr.FromInt32(9440),
			}},
			PeriodSeconds: every, TimeoutSeconds: 30, FailureThreshold: failures,
		}
	}
	volume := func(name, secret string) corev1.Volume {
		return corev1.Volume{
			Name:         name,
			VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}},
		}
	}
	cert := corev1.VolumeMount{Name: "cert", MountPath: certDir, ReadOnly: true}
	pod := corev1.PodSpec{
		ServiceAccountName: OperatorName,
		EnableServiceLinks: ptr.To(false),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:   ptr.To(true),
			RunAsUser:      ptr.To[int64](65532),
			RunAsGroup:     ptr.To[int64](65532),
			FSGroup:        ptr.To[int64](65532),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name: "manager", Image: o.Image, ImagePullPolicy: corev1.PullNever,
			// Its workers spend their time waiting for Ironic: one per CPU, the default, is too few. Twenty
			// requests a second to the API, the default too, are one write for each of fifty hosts in 2.5 s;
			// the API server itself lets in what it can bear.
			Args: []string{
				"--namespace", Namespace, "--metrics-addr", "127.0.0.1:8085", "--controller-concurrency", "8",
				"--kube-api-qps", "100", "--kube-api-burst", "200",
			},
			Env: o.environment(),
			VolumeMounts: []corev1.VolumeMount{
				{Name: "auth", MountPath: "/etc/ironic", ReadOnly: true},
				{Name: "ca", MountPath: caDir, ReadOnly: true},
				cert,
			},
			Ports: []corev1.ContainerPort{{
				Name:          "webhook",
				ContainerPort: 9443,
				Protocol:      corev1.ProtocolTCP,
			}},
			LivenessProbe:  probe("/healthz", 60, 5),
			ReadinessProbe: probe("/readyz", 2, 30), // hosts wait for it after a loss
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
		}},
		Volumes: []corev1.Volume{
			volume("auth", "operator-ironic-auth"),
			volume("ca", "operator-ironic-ca"),
			volume(cert.Name, "operator-webhook-cert"),
		},
	}
	if o.Holds {
		pod.Containers = append(pod.Containers, holdContainer(cert))
		pod.Volumes = append(pod.Volumes, daemonpod.BinaryVolume())
	}

	meta := metav1.ObjectMeta{Namespace: Namespace, Name: OperatorName, Labels: operatorLabels()}
	return apply.NewDeployment(meta, map[string]string{label.Config: o.digest()}, pod)
}

func (o Operator) environment() []corev1.EnvVar {
	env := []corev1.EnvVar{
		{Name: "POD_NAMESPACE", Value: Namespace},
		{Name: "IRONIC_ENDPOINT", Value: strings.TrimSuffix(o.IronicEndpoint, "/") + "/v1/"},
		{Name: "DEPLOY_KERNEL_URL", Value: o.KernelURL},
		{Name: "DEPLOY_RAMDISK_URL", Value: o.RamdiskURL},
		// Without these two it would speak without password and trust the system's authorities.
		{Name: "METAL3_AUTH_ROOT_DIR", Value: "/etc"},
		{Name: "IRONIC_CACERT_FILE", Value: caDir + "/ca.crt"},
		{Name: "PROVISIONING_LIMIT", Value: fmt.Sprint(o.Limit)},
	}
	if o.DiscURL != "" {
		// The only one for all: which host it is for is known by the address of the BMC that asks.
		env = append(env, corev1.EnvVar{Name: "DEPLOY_ISO_URL", Value: o.DiscURL})
	}
	return env
}

// digest changes when the pod must be started again to read its files anew.
func (o Operator) digest() string {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(o.Username), []byte(o.Password), o.CA, o.WebhookCert} {
		fmt.Fprintf(h, "%d\n%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
