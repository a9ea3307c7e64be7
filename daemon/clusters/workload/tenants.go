package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"firstlight.dev/firstlight/assets/excerpt"
	"firstlight.dev/firstlight/daemon/addons/tenants/v1alpha1"
)

// Bounds of Tenants: how many are asked for, and how many lines of one are kept for people.
const (
	maxTenants    = 200
	keptNames     = 20
	keptNamespace = 100 // as many as one may have
)

// Tenant is one Tenant of a cluster. A list that is longer than what is kept ends with how many more there are.
type Tenant struct {
	TenantID
	Reason     string   // of its condition; "" before the controller has seen it
	Message    string   // that of the condition
	Namespaces []string // that it asks for
	Owners     []string // "User ann"
	Viewers    []string
	Quota      []string // "pods: 50"
	Isolated   bool
	Deletes    bool // namespaces that it no longer asks for
	IsReady    bool
	IsLeaving  bool // it is being deleted
}

// TenantID is a Tenant as it was read: what is changed or removed is that one, and not what somebody has made of it since.
type TenantID struct {
	Name    string
	UID     types.UID // "": there is none yet
	Version string    // of the object
}

// TenantSpec is a Tenant with what it asks for, as the API has it.
type TenantSpec struct {
	TenantID
	Spec map[string]any
}

// ErrTenantChanged is of a Tenant that is not as it was read. It is for people.
var ErrTenantChanged = errors.New("somebody has changed the Tenant meanwhile; read it again")

const tenantsPath = "/apis/tenant.akraino.org/v1alpha1"

// readTenants adds the Tenants of a cluster; none if it has no such kind.
func (c *Contents) readTenants(ctx context.Context, core rest.Interface) (err error) {
	c.MoreTenants, err = list(ctx, core.Get().AbsPath(tenantsPath), "tenants", maxTenants, func(t *v1alpha1.Tenant) {
		c.Tenants = append(c.Tenants, describeTenant(t))
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	c.HasTenants = err == nil
	return err
}

func describeTenant(t *v1alpha1.Tenant) Tenant {
	one := Tenant{
		TenantID: TenantID{
			Name:    excerpt.Start(t.Name, maxName),
			UID:     types.UID(excerpt.Start(string(t.UID), maxName)),
			Version: excerpt.Start(t.ResourceVersion, maxName),
		},
		Namespaces: boundNames(t.Spec.Namespaces, keptNamespace),
		Owners:     describeSubjects(t.Spec.Owners),
		Viewers:    describeSubjects(t.Spec.Viewers),
		Isolated:   t.Spec.IsIsolated(),
		Deletes:    t.Spec.Reclaim == v1alpha1.Delete,
		IsLeaving:  t.DeletionTimestamp != nil,
	}
	if t.Spec.Quota != nil {
		var amounts []string
		for _, name := range slices.Sorted(maps.Keys(t.Spec.Quota.Hard)) {
			amount := t.Spec.Quota.Hard[name]
			amounts = append(amounts, fmt.Sprintf("%s: %s", name, amount.String()))
		}
		one.Quota = boundNames(amounts, keptNames)
	}
	if c := meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		one.IsReady = c.Status == metav1.ConditionTrue && c.ObservedGeneration == t.Generation
		one.Reason, one.Message = excerpt.Start(c.Reason, maxName), excerpt.Start(excerpt.Line(c.Message), maxText)
	}
	return one
}

func describeSubjects(of []rbacv1.Subject) []string {
	var all []string
	for _, s := range of {
		name := s.Name
		if s.Namespace != "" {
			name = s.Namespace + "/" + name
		}
		all = append(all, s.Kind+" "+name)
	}
	return boundNames(all, keptNames)
}

// boundNames is the beginning of a list for people.
func boundNames(texts []string, most int) []string {
	var kept []string
	for _, text := range texts[:min(most, len(texts))] {
		kept = append(kept, excerpt.Start(excerpt.Line(text), maxName))
	}
	if more := len(texts) - len(kept); more > 0 {
		kept = append(kept, fmt.Sprintf("%d more", more))
	}
	return kept
}

// ReadTenant reads one Tenant. The error is for people.
func (a Asker) ReadTenant(ctx context.Context, text []byte, name string) (t TenantSpec, err error) {
	_, _, err = a.reach(ctx, text, func(set *kubernetes.Clientset) error {
		t, _, err = readTenant(ctx, set, name)
		return describeTenantError(err)
	})
	return t, err
}

func readTenant(
	ctx context.Context, set *kubernetes.Clientset, name string,
) (TenantSpec, *unstructured.Unstructured, error) {
	body, err := set.CoreV1().RESTClient().Get().AbsPath(tenantsPath).Resource("tenants").Name(name).
		SetHeader("Accept", runtime.ContentTypeJSON).Stream(ctx)
	if err != nil {
		return TenantSpec{}, nil, err
	}
	defer body.Close()
	o, err := decodeObject[unstructured.Unstructured](body)
	if err != nil {
		return TenantSpec{}, nil, fmt.Errorf("read Tenant %s: %w", name, err)
	}
	spec, _, err := unstructured.NestedMap(o.Object, "spec")
	return TenantSpec{TenantID{o.GetName(), o.GetUID(), o.GetResourceVersion()}, spec}, o, err
}

// PutTenant creates the Tenant that has no UID, or gives the one that was read another spec, and leaves its labels and
// annotations. With dryRun the API server says what would be wrong, and nothing is changed. The error is for people.
func (a Asker) PutTenant(ctx context.Context, text []byte, t TenantSpec, dryRun bool) error {
	_, _, err := a.reach(ctx, text, func(set *kubernetes.Clientset) error {
		return describeTenantError(putTenant(ctx, set, t, dryRun))
	})
	return err
}

func putTenant(ctx context.Context, set *kubernetes.Clientset, t TenantSpec, dryRun bool) error {
	core := set.CoreV1().RESTClient()
	request, o := core.Post().AbsPath(tenantsPath).Resource("tenants"), &unstructured.Unstructured{}
	if t.UID != "" {
		is, found, err := readTenant(ctx, set, t.Name)
		switch {
		case err != nil:
			return err
		case is.TenantID != t.TenantID:
			return ErrTenantChanged
		}
		request, o = core.Put().AbsPath(tenantsPath).Resource("tenants").Name(t.Name), found
	} else {
		o.SetAPIVersion(v1alpha1.GroupVersion.String())
		o.SetKind("Tenant")
		o.SetName(t.Name)
	}
	if err := unstructured.SetNestedMap(o.Object, t.Spec, "spec"); err != nil {
		return err
	}

	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	request = request.Param("fieldValidation", metav1.FieldValidationStrict).Param("fieldManager", tenantManager)
	if dryRun {
		request = request.Param("dryRun", metav1.DryRunAll)
	}
	return request.SetHeader("Accept", runtime.ContentTypeJSON).SetHeader("Content-Type", runtime.ContentTypeJSON).
		Body(body).Do(ctx).Error()
}

// tenantManager is who changed what, as the API server notes it.
const tenantManager = "firstlight-page"

// RemoveTenant deletes the Tenant that was read and no other. Its controller then releases or deletes its namespaces. The
// error is for people.
func (a Asker) RemoveTenant(ctx context.Context, text []byte, t TenantID) error {
	_, _, err := a.reach(ctx, text, func(set *kubernetes.Clientset) error {
		body, err := json.Marshal(metav1.DeleteOptions{
			TypeMeta:      metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
			Preconditions: &metav1.Preconditions{UID: &t.UID, ResourceVersion: &t.Version},
		})
		if err != nil {
			return err
		}
		return describeTenantError(set.CoreV1().RESTClient().Delete().AbsPath(tenantsPath).Resource("tenants").Name(t.Name).
			SetHeader("Accept", runtime.ContentTypeJSON).SetHeader("Content-Type", runtime.ContentTypeJSON).
			Body(body).Do(ctx).Error())
	})
	return err
}

// describeTenantError adds what to do to what an API server refuses.
func describeTenantError(err error) error {
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err): // somebody has removed it
		return ErrTenantChanged
	case apierrors.IsForbidden(err):
		return fmt.Errorf(
			"the cluster does not allow it: %w; its add-on tenants gives owners the right: install it or bring it up to date",
			err,
		)
	}
	return err
}
