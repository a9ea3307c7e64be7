package clusterapi

import (
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/daemon/appliance/ca"
	"firstlight.dev/firstlight/daemon/engine/apply"
)

// Labels and annotations of clusterctl and of the manifests
// (sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3/labels.go).
const (
	labelClusterctl = "clusterctl.cluster.x-k8s.io"
	labelCore       = "clusterctl.cluster.x-k8s.io/core"
	labelProvider   = "cluster.x-k8s.io/provider"
	annotationCA    = "cert-manager.io/inject-ca-from"
)

// Appliance is what the managers are run with.
type Appliance struct {
	Repository string             // Repository but in tests
	CA         []byte             // that signed the certificates, PEM
	Certs      map[string]ca.Pair // of the webhooks, by provider
}

// Objects is all that Cluster API needs, in the order of application: what the managers serve and may do, the
// managers, and last what makes the API server ask them. The error says what a manifest lacks: a newer Cluster API may
// have moved it.
func (a Appliance) Objects() ([]client.Object, error) {
	objects, err := readObjects(a.Repository+"/clusterctl-api.yaml", nil)
	if err != nil {
		return nil, err
	}

	var first, last []client.Object
	for _, u := range objects {
		u.SetLabels(map[string]string{labelClusterctl: "", labelCore: "inventory"}) // as clusterctl applies it
		first = append(first, u)
	}

	for _, p := range Providers() {
		before, after, err := a.provider(p)
		if err != nil {
			return nil, fmt.Errorf("manifest of %s: %w", p.Name, err)
		}
		first, last = append(first, before...), append(last, after...)
	}

	return append(append(first, last...), inventory(Infrastructure())), nil
}

// provider is one manager: what it is made of, and what makes others depend on it.
func (a Appliance) provider(p Provider) (first, last []client.Object, err error) {
	objects, err := readObjects(p.manifest(a.Repository), expandDefaults)
	if err != nil {
		return nil, nil, err
	}

	found := map[string]int{}
	for _, u := range objects {
		found[u.GetKind()]++
		labels := u.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[labelClusterctl] = "" // what clusterctl knows a provider's objects by
		u.SetLabels(labels)

		switch u.GetKind() {
		case "Certificate", "Issuer": // the appliance has an authority of its own
		case "CustomResourceDefinition":
			if err := a.injectConversion(u); err != nil {
				return nil, nil, err
			}
			first = append(first, u)
		case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
			if err := a.injectWebhooks(u); err != nil {
				return nil, nil, err
			}
			last = append(last, u)
		case "Deployment":
			d, err := deployment(p, u)
			if err != nil {
				return nil, nil, err
			}
			first = append(first, a.certificate(p), d)
		default:
			first = append(first, u)
		}
	}

	for _, kind := range []string{"CustomResourceDefinition", "ClusterRole", "Service", "ValidatingWebhookConfiguration"} {
		if found[kind] == 0 {
			return nil, nil, fmt.Errorf("it has no %s", kind)
		}
	}
	if found["Deployment"] != 1 {
		return nil, nil, fmt.Errorf("it has %d Deployments and not one", found["Deployment"])
	}

	return first, append(last, inventory(p)), nil
}

// certificate is the Secret that the manager's pod serves its webhook with.
func (a Appliance) certificate(p Provider) client.Object {
	pair := a.Certs[p.Name]
	return &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace,
			Name:      p.secret(),
			Labels:    map[string]string{labelProvider: p.Name, labelClusterctl: ""},
		},
		Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{"tls.crt": pair.Cert, "tls.key": pair.Key},
	}
}

// injectConversion puts the appliance's authority where the manifest asks for one to be injected.
func (a Appliance) injectConversion(crd *unstructured.Unstructured) error {
	removeInjection(crd)
	if _, found, _ := unstructured.NestedMap(crd.Object, "spec", "conversion", "webhook", "clientConfig"); !found {
		return nil // a kind with one version
	}
	return unstructured.SetNestedField(
		crd.Object, a.bundle(), "spec", "conversion", "webhook", "clientConfig", "caBundle",
	)
}

func (a Appliance) injectWebhooks(configuration *unstructured.Unstructured) error {
	removeInjection(configuration)
	hooks, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
	if err != nil || len(hooks) == 0 {
		return fmt.Errorf("%s lists no webhooks", configuration.GetName())
	}

	for i := range hooks {
		hook, ok := hooks[i].(map[string]any)
		if !ok {
			return fmt.Errorf("webhook %d of %s is not an object", i, configuration.GetName())
		}
		if err := unstructured.SetNestedField(hook, a.bundle(), "clientConfig", "caBundle"); err != nil {
			return fmt.Errorf("webhook %d of %s: %w", i, configuration.GetName(), err)
		}
	}

	return unstructured.SetNestedSlice(configuration.Object, hooks, "webhooks")
}

func (a Appliance) bundle() string { return base64.StdEncoding.EncodeToString(a.CA) }

func removeInjection(u *unstructured.Unstructured) {
	annotations := maps.Clone(u.GetAnnotations())
	delete(annotations, annotationCA)
	u.SetAnnotations(annotations)
}

// inventory is by what clusterctl knows that a provider is there, and in which version.
func inventory(p Provider) client.Object {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion":   "clusterctl.cluster.x-k8s.io/v1alpha3",
		"kind":         "Provider",
		"providerName": p.ProviderName,
		"type":         p.Type,
		"version":      assets.ClusterAPIVersion,
	}}
	u.SetNamespace(p.Namespace)
	u.SetName(p.Name)
	u.SetLabels(map[string]string{labelProvider: p.Name, labelClusterctl: "", labelCore: "inventory"})
	return u
}

// variable is one that clusterctl would fill in from the environment, with its default.
var variable = regexp.MustCompile(`\$\{([A-Z0-9_]+):=([^}]*)\}`)

// values are those of variables that differ from their defaults.
var values = map[string]string{
	"CLUSTER_TOPOLOGY": "true", // ClusterClasses, and the Clusters that are made of them
}

// expandDefaults gives every variable of a manifest its default, or the appliance's value.
func expandDefaults(text []byte) []byte {
	return variable.ReplaceAllFunc(text, func(found []byte) []byte {
		parts := variable.FindSubmatch(found)
		if value, ok := values[string(parts[1])]; ok {
			return []byte(value)
		}
		return parts[2]
	})
}

// readObjects reads a file of YAML documents, after edit if there is one.
func readObjects(file string, edit func([]byte) []byte) ([]*unstructured.Unstructured, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if edit != nil {
		text = edit(text)
	}

	objects, err := apply.Decode(text)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return objects, nil
}

// deployment is the manager's, as it runs on an appliance.
func deployment(p Provider, u *unstructured.Unstructured) (client.Object, error) {
	var d appsv1.Deployment
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &d); err != nil {
		return nil, fmt.Errorf("read Deployment %s: %w", u.GetName(), err)
	}
	if d.Namespace != p.Namespace || d.Name != p.Deployment() || len(d.Spec.Template.Spec.Containers) != 1 {
		return nil, fmt.Errorf(
			"its Deployment is %s/%s with %d containers, and not %s/%s with one",
			d.Namespace, d.Name, len(d.Spec.Template.Spec.Containers), p.Namespace, p.Deployment(),
		)
	}

	mounted := slices.ContainsFunc(d.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Secret != nil && v.Secret.SecretName == p.secret()
	})
	if !mounted {
		return nil, fmt.Errorf("its Deployment mounts no Secret %s", p.secret())
	}

	adaptDeployment(p, &d)
	return &d, nil
}
