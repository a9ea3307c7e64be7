package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/clusters/workload"
)

// tenantPattern is the page of a Tenant, whose name is CLUSTER/TENANT.
const tenantPattern = "/tenants/{name}"

// onTenant is a Tenant of a cluster, by the name that its page has.
var onTenant = subject{"tenants", tenantPattern, "/tenants/%s"}

// tenantPath is the page of a Tenant of the cluster that ref names.
func tenantPath(ref, tenant string) string {
	return "/tenants/" + url.PathEscape(tenantKey(ref, tenant))
}

func tenantKey(ref, tenant string) string { return ref + "/" + tenant }

// splitTenant is the cluster and the Tenant of a name: that of a cluster may have a slash as well.
func splitTenant(key string) (ref, tenant string) {
	i := max(0, strings.LastIndex(key, "/"))
	return key[:i], strings.TrimPrefix(key[i:], "/")
}

// askTenant has it in the next picture what the cluster of a Tenant says.
func (s *Server) askTenant(r *http.Request) {
	ref, _ := splitTenant(r.PathValue("name"))
	if c, ok := status.FindCluster(s.sources.Document().Clusters, ref); ok && mayAnswer(c) {
		s.workloads.get(r.Context(), ref)
	}
}

// findTenant is a Tenant as its cluster said last; false if it does not say so.
func findTenant(p *picture, key string) (workload.Tenant, bool) {
	ref, name := splitTenant(key)
	all := p.workloads[ref].Value.Contents.Tenants
	i := slices.IndexFunc(all, func(t workload.Tenant) bool { return t.Name == name })
	if i < 0 {
		return workload.Tenant{}, false
	}
	return all[i], true
}

// tenantView is one Tenant in a list, and what leads to it.
type tenantView struct {
	workload.Tenant
	Path  string
	Level level
	State string
}

func newTenantView(ref string, t workload.Tenant) tenantView {
	v := tenantView{Tenant: t, Path: tenantPath(ref, t.Name), Level: busy, State: "not ready yet"}
	switch {
	case t.IsLeaving:
		v.State = "is being removed"
	case t.IsReady:
		v.Level, v.State = good, "ready"
	case t.Reason != "" && t.Reason != "Releasing" && t.Reason != "Ready":
		v.Level, v.State = bad, t.Reason
	}
	return v
}

// listTenants are those of a cluster, the ones that need a person first.
func listTenants(ref string, all []workload.Tenant) (list []tenantView) {
	for _, t := range all {
		list = append(list, newTenantView(ref, t))
	}
	order := []level{bad, busy, good}
	slices.SortStableFunc(list, func(a, b tenantView) int {
		return slices.Index(order, a.Level) - slices.Index(order, b.Level)
	})
	return list
}

// tenantPage is all that is known of one Tenant.
type tenantPage struct {
	Workload workloadView // whether its cluster was asked
	Ref      string       // of the cluster
	Cluster  string       // its page
	Found    bool
	Tenant   tenantView
	Edit     string // where it is changed; "": not by this role
	Offers   []offer
}

func showTenant(p *picture, by Role, r *http.Request) (any, string, bool) {
	key := r.PathValue("name")
	ref, name := splitTenant(key)
	c, ok := status.FindCluster(p.doc.Clusters, ref)
	if !ok || name == "" {
		return nil, key, false
	}

	v := tenantPage{Workload: newWorkloadView(p, ref, c, ""), Ref: ref, Cluster: clusterPath(ref)}
	t, ok := findTenant(p, key)
	if v.Found = ok; ok {
		v.Tenant, v.Offers = newTenantView(ref, t), newOffers(p, by, onTenant, key)
		v.Offers = slices.DeleteFunc(v.Offers, func(o offer) bool { return o.Path == putTenantPath(key) }) // its check leads there
		if by.covers(Owner) && !t.IsLeaving {
			v.Edit = tenantEditLink(ref, name)
		}
	}
	return v, "Tenant " + name + " of " + ref, true
}

// newTenantActions apply a Tenant that was checked, and remove one.
func newTenantActions() []action {
	return []action{
		{
			name: putTenantAction, on: onTenant, needs: Owner, title: "Apply the Tenant",
			effect: "The cluster gets the Tenant as it was checked. Its controller makes its namespaces with roles, quota, " +
				"limits and isolation.",
			offered: isTenantDraft,
			details: describeTenantDraft,
			typed:   typedForTenantDraft,
			do: func(ctx context.Context, s *Server, o order) (result, error) {
				d, ok := s.tenants.find(o.name)
				if !ok || d.about() != o.about {
					return result{}, workload.ErrTenantChanged
				}
				err := s.doToTenant(o, func(c status.Cluster) error {
					return s.deeds.PutTenant(ctx, c, o.by.impersonation(), d.spec, false)
				})
				return result{text: "The cluster has the Tenant. Its controller makes its namespaces so; this page follows."}, err
			},
		},
		{
			name: "remove-tenant", on: onTenant, needs: Owner, title: "Remove the Tenant", isFinal: true,
			effect: "The Tenant is deleted. Its owners and viewers lose their roles in its namespaces, and no quota, limit " +
				"or isolation holds there.",
			read:    (*Server).askTenant,
			offered: isTenant,
			details: describeTenantRemoval,
			do: func(ctx context.Context, s *Server, o order) (result, error) {
				p, err := s.hub.current()
				if err != nil {
					return result{}, err
				}
				t, ok := findTenant(p, o.name)
				if about, _ := isTenant(p, o.name); !ok || about != o.about {
					return result{}, workload.ErrTenantChanged
				}
				err = s.doToTenant(o, func(c status.Cluster) error {
					return s.deeds.RemoveTenant(ctx, c, o.by.impersonation(), t.TenantID)
				})
				return result{text: "The Tenant is being removed."}, err
			},
		},
	}
}

const putTenantAction = "put-tenant"

// putTenantPath is where a Tenant that was checked is applied.
func putTenantPath(key string) string {
	return "/tenants/" + url.PathEscape(key) + "/" + putTenantAction
}

// doToTenant does something to the cluster of a Tenant, which is asked again afterwards.
func (s *Server) doToTenant(o order, do func(status.Cluster) error) error {
	ref, _ := splitTenant(o.name)
	c, ok := status.FindCluster(s.sources.Document().Clusters, ref)
	if !ok {
		return errors.New("the cluster is not there any more")
	}
	defer s.workloads.expire(ref)
	return do(c)
}

// isTenant is about the version of a Tenant that its cluster has.
func isTenant(p *picture, name string) (about string, ok bool) {
	t, ok := findTenant(p, name)
	if !ok || t.IsLeaving {
		return "", false
	}
	return fmt.Sprintf("%s, uid %s, version %s", t.Name, t.UID, t.Version), true
}

func describeTenantRemoval(p *picture, name string) []string {
	t, _ := findTenant(p, name)
	return describeLeaving(t.Namespaces, t.Deletes)
}

// describeLeaving says what becomes of namespaces that a Tenant asks for no longer, a line each.
func describeLeaving(namespaces []string, isDeleted bool) (lines []string) {
	for _, n := range namespaces {
		if isDeleted {
			lines = append(lines, "Namespace "+n+" is deleted with all that is in it: reclaim is Delete.")
		} else {
			lines = append(lines, "Namespace "+n+" stays with all that is in it, and is nobody's.")
		}
	}
	return lines
}
