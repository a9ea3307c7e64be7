package operator

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
)

// call is a verb on a resource of a group, in a namespace; "" for all of them.
type call struct{ verb, group, resource, namespace string }

// calls are those that one client made.
type calls struct {
	mu   sync.Mutex
	seen map[call]bool
}

// used are those of all cases together.
var used calls

func (c *calls) add(others ...*calls) {
	for _, o := range others {
		for one := range o.seen {
			c.note(one)
		}
	}
}

func (c *calls) note(one call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[call]bool{}
	}
	c.seen[one] = true
}

// client remembers what is asked of another.
func (c *calls) client(of client.WithWatch) client.WithWatch {
	note := func(verb string, o runtime.Object, sub, namespace string) {
		kind, err := of.GroupVersionKindFor(o)
		if err != nil {
			panic(err)
		}
		resource := strings.ToLower(strings.TrimSuffix(kind.Kind, "List")) + "s"
		if strings.HasSuffix(resource, "chs") {
			resource = strings.TrimSuffix(resource, "s") + "es"
		}
		if sub != "" {
			resource += "/" + sub
		}
		c.note(call{verb, kind.Group, resource, namespace})
	}
	return interceptor.NewClient(of, interceptor.Funcs{
		Get: func(ctx context.Context, next client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			note("get", o, "", key.Namespace)
			return next.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, next client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			all := client.ListOptions{}
			all.ApplyOptions(opts)
			note("list", list, "", all.Namespace)
			return next.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, next client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			note("create", o, "", o.GetNamespace())
			return next.Create(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, next client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			note("delete", o, "", o.GetNamespace())
			return next.Delete(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, next client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			note("patch", o, "", o.GetNamespace())
			return next.Patch(ctx, o, p, opts...)
		},
		Apply: func(ctx context.Context, next client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			named := o.(interface {
				GetNamespace() string
				GroupVersionKind() schema.GroupVersionKind
			})
			kind := named.GroupVersionKind()
			for _, verb := range []string{"create", "patch"} { // server-side apply of what is not there needs both
				c.note(call{verb, kind.Group, strings.ToLower(kind.Kind) + "s", named.GetNamespace()})
			}
			return next.Apply(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, next client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			note("patch", o, sub, o.GetNamespace())
			return next.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
}

// testRights holds the operator's rights to what it called in all the cases before: nothing is missing, and nothing is
// granted that nothing called.
func testRights(t *testing.T) {
	rights := NewRights()
	granted := map[string][]rbacv1.PolicyRule{
		"everywhere": rights.Everywhere, "own": rights.Own, "site": rights.Site, "owners": rights.Owners, "hosts": rights.Hosts,
	}
	allows := func(rules []rbacv1.PolicyRule, c call) bool {
		return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.APIGroups, c.group) && slices.Contains(r.Resources, c.resource) && slices.Contains(r.Verbs, c.verb)
		})
	}
	type grant struct{ where, verb, group, resource string }
	needed := map[grant]bool{}
	for c := range used.seen {
		where := []string{"everywhere"}
		switch c.namespace {
		case "":
		case "bpa":
			where = append(where, "own")
		case "metal3":
			where = append(where, "hosts")
		case v1alpha1.SiteNamespace:
			where = append(where, "site", "owners")
		default:
			where = append(where, "owners")
		}
		at := slices.IndexFunc(where, func(w string) bool { return allows(granted[w], c) })
		if !assert.GreaterOrEqual(t, at, 0, "the operator may not %s %s in %q", c.verb, c.resource, c.namespace) {
			continue
		}
		needed[grant{where[at], c.verb, c.group, c.resource}] = true
	}
	// What the manager around the controllers does, which runs in TestTheOperatorWithItsOwnRights.
	manager := func(g grant) bool {
		return g.verb == "watch" || g.verb == "list" && g.resource == "softwares" || g.verb == "list" && g.resource == "jobs" ||
			g.resource == "leases" || g.resource == "events" || g.resource == "pods/log" || g.resource == "provisionings/finalizers"
	}
	for where, rules := range granted {
		for _, r := range rules {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					g := grant{where, verb, r.APIGroups[0], resource}
					assert.True(t, needed[g] || manager(g), "nothing called for the right %+v", g)
				}
			}
		}
	}
}
