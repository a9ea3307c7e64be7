package page

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/appliance/kube"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/engine/bringup"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// rightsGroup is the API group by which RBAC names actions: their names are verbs, and what they are done to are
// resources. The API has no objects of it.
const rightsGroup = "page.firstlight.dev"

// apiTimeout is how long the API server may take to answer. A person waits for it.
const apiTimeout = 20 * time.Second

// fieldManager of the objects of Rights.
const fieldManager = "firstlight-page"

// Stage is the fact that the API server knows what people may do, those of the site's issuer as well.
func Stage(api func() (client.Client, error), of func() *site.Site) bringup.Stage {
	return apply.Stage{
		Name:    "roles-bound",
		Title:   "Rights of the page's users are set",
		Fact:    "the API server knows what viewers, operators and owners of the page may do",
		Why:     "As soon as the API can be asked: a role that the site takes away is gone, whatever else is stuck.",
		Owner:   fieldManager,
		API:     api,
		Doing:   "applying the roles of the page",
		Objects: func() ([]client.Object, error) { return Rights(issuerOf(of())), nil },
	}.Bringup()
}

// Rights are the objects by which the API server decides what people of each role may do, with those of an issuer, which
// may be nil. A viewer's groups change nothing.
func Rights(o *site.OIDC) []client.Object {
	all := []client.Object{&corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: metal3.Namespace},
	}}

	// Before the bindings, whose groups they narrow. Whoever of the issuer is no owner is narrowed as an operator, because
	// the API server follows another policy later than another binding.
	isOwner := fmt.Sprintf("groups.exists(g, g in %s)", kube.ListCEL(Owner.groups(o)))
	isOperator := fmt.Sprintf("groups.exists(g, g == '%s' || g.startsWith('%s')) && !%s",
		Operator.group(), kube.OIDCPrefix, isOwner)
	all = append(all, metal3.GroupPolicy("hosts-operators.firstlight.dev", "operators", isOperator)...)
	all = append(all, metal3.GroupPolicy("hosts-owners.firstlight.dev", "owners", isOwner, label.Overwrite)...)

	for _, r := range Roles() {
		all = append(all, newClusterRole(r), newClusterRoleBinding(r, o), newHostRole(r), newHostRoleBinding(r, o))
	}
	return all
}

// newClusterRole gives the verbs of a role's actions and readings, and what it may do to uploads.
func newClusterRole(r Role) *rbacv1.ClusterRole {
	rules := slices.Concat(uploadRules(r), consoleRules(r), nodeUpdateRules(r))
	for _, on := range subjects() {
		rule := rbacv1.PolicyRule{APIGroups: []string{rightsGroup}, Resources: []string{on.resource}}
		for _, a := range actions() {
			if a.on == on && r.covers(a.needs) {
				rule.Verbs = append(rule.Verbs, a.name)
			}
		}
		if len(rule.Verbs) > 0 {
			rules = append(rules, rule)
		}
	}

	var seen []string
	for _, of := range readings() {
		if r.covers(of.needs) && !slices.Contains(seen, of.resource) {
			seen = append(seen, of.resource)
			rules = append(rules, rbacv1.PolicyRule{
				APIGroups: []string{rightsGroup},
				Resources: []string{of.resource},
				Verbs:     []string{readVerb},
			})
		}
	}

	return &rbacv1.ClusterRole{
		TypeMeta:   rbacKind("ClusterRole"),
		ObjectMeta: metav1.ObjectMeta{Name: r.group()},
		Rules:      rules,
	}
}

// newHostRole lets a role read BareMetalHosts, which have no secret, and change them, which its policy narrows
// (metal3.GroupPolicy). kubectl reads what it changes.
func newHostRole(r Role) *rbacv1.Role {
	verbs := []string{"get", "list", "watch"}
	if r.covers(Operator) {
		verbs = append(verbs, "patch")
	}
	return &rbacv1.Role{
		TypeMeta:   rbacKind("Role"),
		ObjectMeta: metav1.ObjectMeta{Namespace: metal3.Namespace, Name: r.group()},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{metal3api.GroupVersion.Group},
			Resources: []string{"baremetalhosts"},
			Verbs:     verbs,
		}},
	}
}

func newClusterRoleBinding(r Role, o *site.OIDC) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   rbacKind("ClusterRoleBinding"),
		ObjectMeta: metav1.ObjectMeta{Name: r.group()},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: r.group()},
		Subjects:   subjectsOf(r, o),
	}
}

func newHostRoleBinding(r Role, o *site.OIDC) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		TypeMeta:   rbacKind("RoleBinding"),
		ObjectMeta: metav1.ObjectMeta{Namespace: metal3.Namespace, Name: r.group()},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: r.group()},
		Subjects:   subjectsOf(r, o),
	}
}

func subjectsOf(r Role, o *site.OIDC) (all []rbacv1.Subject) {
	for _, group := range r.groups(o) {
		all = append(all, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group})
	}
	return all
}

func rbacKind(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
}

// right is something that RBAC can allow, in the group of actions.
type right struct{ verb, resource string }

// checkRight asks the API server, as a person, whether it may do something to what has a name.
func checkRight(ctx context.Context, api *rest.Config, by Person, to right, name string) error {
	c, err := authorizationclient.NewForConfig(by.impersonate(api))
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}

	review, err := c.SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group:    rightsGroup,
			Resource: to.resource,
			Verb:     to.verb,
			Name:     name,
		}},
	}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return describeAPIError(err)
	case !review.Status.Allowed:
		return errForbidden
	}
	return nil
}

// patchHost changes the BareMetalHost of a node as a person.
func patchHost(ctx context.Context, api *rest.Config, by Person, node string, p metal3.Patch) error {
	c, err := dynamic.NewForConfig(by.impersonate(api))
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}

	text, err := p.JSON()
	if err != nil {
		return err
	}

	hosts := c.Resource(metal3api.GroupVersion.WithResource("baremetalhosts")).Namespace(metal3.Namespace)
	if _, err := hosts.Patch(ctx, node, types.MergePatchType, text, metav1.PatchOptions{}); err != nil {
		return describeAPIError(err)
	}
	return nil
}

var (
	errForbidden = errors.New("the appliance's API server does not allow that to your role")
	errNoAPI     = errors.New("the appliance's API server does not answer, so nobody's rights are known; " +
		"firstlightd status on the appliance says why")
)

// describeAPIError tells a refusal of the API server from its silence.
func describeAPIError(err error) error {
	var answered apierrors.APIStatus
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: %w", errForbidden, err)
	case errors.As(err, &answered):
		return fmt.Errorf("the appliance's API server refuses: %w", err)
	}
	return fmt.Errorf("%w: %w", errNoAPI, err)
}
