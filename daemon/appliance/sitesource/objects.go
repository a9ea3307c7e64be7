package sitesource

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/engine/rights"
)

// Names in the API.
const (
	Namespace = "firstlight-source" // of the account with whose rights objects are applied
	owner     = "firstlight-source" // of their fields; also the name of the account and of its role
)

// kinds are what a source may have besides the site document, with their resources.
func kinds() map[schema.GroupVersionKind]string {
	return map[schema.GroupVersionKind]string{
		{Group: "bpa.akraino.org", Version: "v1alpha1", Kind: "Provisioning"}: "provisionings",
		{Group: "kpa.akraino.org", Version: "v1alpha1", Kind: "Component"}:    "components",
	}
}

// account has the rights of a source, which are these kinds and no others.
func account() rights.Account { return rights.Account{Namespace: Namespace, Name: owner} }

// newRights are the objects by which the account has its rights.
func newRights() (apply.Set, error) {
	var rules []rbacv1.PolicyRule
	for kind, resource := range kinds() {
		rules = append(rules, rbacv1.PolicyRule{
			APIGroups: []string{kind.Group},
			Resources: []string{resource},
			Verbs:     []string{"get", "list", "create", "patch", "delete"},
		})
	}
	slices.SortFunc(rules, func(a, b rbacv1.PolicyRule) int { return strings.Compare(a.APIGroups[0], b.APIGroups[0]) })
	return apply.New(
		owner,
		&corev1.Namespace{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: Namespace},
		},
		account().Object(),
		rights.NewClusterRole(owner, rules),
		account().BindEverywhere(owner),
	)
}

// impersonate is how the API is asked with the rights of a source.
func impersonate(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + Namespace + ":" + owner,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + Namespace, "system:authenticated"},
	}
	return c
}

// labelOf is the value of the label on objects of a source, by its address and folder.
func labelOf(source string) string {
	sum := sha256.Sum256([]byte(source))
	return hex.EncodeToString(sum[:8])
}

// isEncrypted reports whether SOPS has encrypted a file, which then says so by its key sops, in each document of it. Its
// texts would be taken for what they stand for.
func isEncrypted(text []byte) bool {
	var first struct {
		SOPS yaml.Node `yaml:"sops"`
	}
	return yaml.Unmarshal(text, &first) == nil && !first.SOPS.IsZero()
}

// readObjects reads what is in the files besides the site document. Its error is a refusal, with the file.
func readObjects(files map[string][]byte, source string) (all []*unstructured.Unstructured, err error) {
	seen := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if isEncrypted(files[name]) {
			return nil, fmt.Errorf("%s is encrypted with SOPS, and an appliance has no key that opens it; push it in the clear, with "+
				"\"[redacted]\" in place of the secrets of a site document", name)
		}
		if name == SiteName {
			continue
		}
		objects, err := apply.Decode(files[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, o := range objects {
			gvk := o.GroupVersionKind()
			if _, ok := kinds()[gvk]; !ok {
				return nil, fmt.Errorf("%s: kind %q of %q is none that an appliance takes from a source; it takes Provisioning "+
					"(bpa.akraino.org/v1alpha1) and Component (kpa.akraino.org/v1alpha1)", name, gvk.Kind, o.GetAPIVersion())
			}
			if o.GetName() == "" {
				return nil, fmt.Errorf("%s: a %s has no metadata.name; add it", name, gvk.Kind)
			}
			if o.GetNamespace() == "" {
				o.SetNamespace(metav1.NamespaceDefault)
			}
			if first, isThere := seen[describeObject(o)]; isThere {
				return nil, fmt.Errorf("%s: %s is in %s already; keep one of the two", name, describeObject(o), first)
			}
			seen[describeObject(o)] = name

			labels := o.GetLabels()
			if labels == nil {
				labels = map[string]string{}
			}
			labels[label.Source] = labelOf(source)
			o.SetLabels(labels)
			unstructured.RemoveNestedField(o.Object, "status")
			unstructured.RemoveNestedField(o.Object, "metadata", "managedFields")
			all = append(all, o)
		}
	}
	return all, nil
}

func describeObject(o client.Object) string {
	return fmt.Sprintf("%s %s/%s", o.GetObjectKind().GroupVersionKind().Kind, o.GetNamespace(), o.GetName())
}

// refusal is of something that a person must change, where it was written.
type refusal struct{ error }

// applyObjects has exactly these objects of a source in the API. All are tried before the first is written, and what
// nobody labelled as of this source is neither changed nor removed. A refusal is of one that the API does not take; any
// other error may be gone at the next try.
func applyObjects(ctx context.Context, c client.Client, source string, all []*unstructured.Unstructured) error {
	var refused []error
	var now []*unstructured.Unstructured
	var early error // of kinds that come up last; what needs them waits for no other object
	for _, o := range all {
		err := tryObject(ctx, c, source, o)
		switch {
		case err == nil:
			now = append(now, o)
		case meta.IsNoMatchError(err):
			early = fmt.Errorf("%s: its kind is not on the appliance yet", describeObject(o))
		case isRefusal(err):
			refused = append(refused, err)
		default:
			return err
		}
	}
	if err := errors.Join(refused...); err != nil {
		return refusal{err}
	}

	for _, o := range now {
		if err := applyObject(ctx, c, o); err != nil {
			return err
		}
	}
	return errors.Join(prune(ctx, c, source, all), early)
}

func tryObject(ctx context.Context, c client.Client, source string, o *unstructured.Unstructured) error {
	have := &metav1.PartialObjectMetadata{}
	have.SetGroupVersionKind(o.GroupVersionKind())
	err := c.Get(ctx, client.ObjectKeyFromObject(o), have)
	if err == nil && have.Labels[label.Source] != labelOf(source) {
		return refusal{fmt.Errorf("%s is on the appliance already, and not of this source; delete it there, or have the source "+
			"take it over: kubectl label -n %s %s %s %s=%s", describeObject(o), o.GetNamespace(), kinds()[o.GroupVersionKind()],
			o.GetName(), label.Source, labelOf(source))}
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read %s: %w", describeObject(o), err)
	}
	return applyObject(ctx, c, o, client.DryRunAll)
}

func applyObject(ctx context.Context, c client.Client, o *unstructured.Unstructured, options ...client.ApplyOption) error {
	options = append(options, client.FieldOwner(owner), client.ForceOwnership)
	err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o.DeepCopy()), options...)
	switch {
	case err == nil:
		return nil
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsForbidden(err), apierrors.IsNotFound(err), isMistyped(err):
		return refusal{fmt.Errorf("apply %s: %w", describeObject(o), err)}
	}
	return fmt.Errorf("apply %s: %w", describeObject(o), err)
}

// isMistyped reports whether a field of an object may be of another type than its kind has. The API server says so of an
// apply without a reason, as of any error of its own; whichever it is, it is tried again.
func isMistyped(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusInternalServerError &&
		apierrors.ReasonForError(err) == metav1.StatusReasonUnknown
}

// prune removes the objects of a source that it has no more.
func prune(ctx context.Context, c client.Client, source string, all []*unstructured.Unstructured) error {
	wanted := map[string]bool{}
	for _, o := range all {
		wanted[describeObject(o)] = true
	}

	for kind := range kinds() {
		have := &metav1.PartialObjectMetadataList{}
		have.SetGroupVersionKind(kind)
		err := c.List(ctx, have, client.MatchingLabels{label.Source: labelOf(source)})
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", kinds()[kind], err)
		}
		for i := range have.Items {
			o := &have.Items[i]
			o.SetGroupVersionKind(kind)
			if wanted[describeObject(o)] {
				continue
			}
			uid := o.GetUID()
			err := c.Delete(ctx, o, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("delete %s: %w", describeObject(o), err)
			}
		}
	}
	return nil
}

func isRefusal(err error) bool {
	var r refusal
	return errors.As(err, &r)
}
