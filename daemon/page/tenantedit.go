package page

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/pmezard/go-difflib/difflib"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/sitedocument"
	"firstlight.dev/firstlight/daemon/clusters/workload"
)

// tenantEditPath is where a Tenant is edited and checked.
const tenantEditPath = "/tenants/edit"

// Fields of the form of a Tenant; the first two are those of its address, too.
const (
	clusterField = "cluster"
	tenantField  = "tenant"
	uidField     = "uid"
	versionField = "version"
)

// maxTenant is how long what a Tenant asks for may be, in bytes of YAML.
const maxTenant = 32 << 10

// newTenantText is where a new Tenant begins.
const newTenantText = `namespaces: [team-dev, team-prod]
owners:
  - {kind: User, name: NAME}
quota:
  hard: {pods: "50", requests.cpu: "8", limits.memory: 32Gi}
`

// tenantEditLink is where a Tenant of a cluster is changed; with none, where one is made.
func tenantEditLink(ref, tenant string) string {
	q := url.Values{clusterField: {ref}}
	if tenant != "" {
		q.Set(tenantField, tenant)
	}
	return tenantEditPath + "?" + q.Encode()
}

// tenantEditView is the form of a Tenant, and what its check found.
type tenantEditView struct {
	CSRF    string
	Ref     string // of the cluster
	Back    string
	ID      workload.TenantID // without a UID it is made
	Text    string
	Error   string
	IsSound bool
	Diff    diff
	Leaving []string // what becomes of namespaces that leave
	Apply   string   // where it is applied; "": nothing would change
}

// serveTenantEditor shows the form with what a Tenant asks for now.
func (s *Server) serveTenantEditor(w http.ResponseWriter, r *http.Request, of *session) {
	v := tenantEditView{Text: newTenantText, ID: workload.TenantID{Name: r.URL.Query().Get(tenantField)}}
	c, ok := s.tenantCluster(r.URL.Query().Get(clusterField), &v)
	if !ok {
		s.showTenantEditor(w, r, of, http.StatusNotFound, v)
		return
	}
	if v.ID.Name == "" {
		s.showTenantEditor(w, r, of, http.StatusOK, v)
		return
	}

	is, no := s.readTenant(r, of, c, v.ID.Name)
	if no != nil {
		v.Error = no.text
		s.showTenantEditor(w, r, of, no.code, v)
		return
	}
	v.ID, v.Text = is.TenantID, formatSpec(is.Spec)
	s.showTenantEditor(w, r, of, http.StatusOK, v)
}

// tenantCluster is the cluster that a form is about.
func (s *Server) tenantCluster(ref string, v *tenantEditView) (status.Cluster, bool) {
	v.Ref, v.Back = ref, clusterPath(ref)
	c, ok := status.FindCluster(s.sources.Document().Clusters, ref)
	if !ok {
		v.Error = "There is no such cluster."
	}
	return c, ok
}

// readTenant reads a Tenant as a person who may change it.
func (s *Server) readTenant(
	r *http.Request, of *session, c status.Cluster, name string,
) (workload.TenantSpec, *refusal) {
	if err := s.mayPutTenant(r, of); err != nil {
		return workload.TenantSpec{}, newRefusal(err)
	}
	t, err := s.deeds.ReadTenant(r.Context(), c, of.person.impersonation(), name)
	if err != nil {
		return t, &refusal{http.StatusBadGateway, "It was not read: " + err.Error()}
	}
	return t, nil
}

func (s *Server) mayPutTenant(r *http.Request, of *session) error {
	return s.checkCached(r.Context(), of.person, right{putTenantAction, onTenant.resource})
}

// serveTenantCheck has the cluster say what would be wrong with a Tenant. Nothing is changed.
func (s *Server) serveTenantCheck(w http.ResponseWriter, r *http.Request, of *session) {
	v := tenantEditView{
		Text: strings.ReplaceAll(r.PostFormValue(documentField), "\r\n", "\n"),
		ID: workload.TenantID{
			Name:    strings.TrimSpace(r.PostFormValue(tenantField)),
			UID:     types.UID(r.PostFormValue(uidField)),
			Version: r.PostFormValue(versionField),
		},
	}
	code := s.checkTenant(r, of, &v)
	s.showTenantEditor(w, r, of, code, v)
}

// checkTenant fills in what the check of a form found, and returns the answer's code.
func (s *Server) checkTenant(r *http.Request, of *session, v *tenantEditView) int {
	c, ok := s.tenantCluster(r.PostFormValue(clusterField), v)
	spec, err := parseSpec(v.Text)
	switch {
	case !ok:
		return http.StatusNotFound
	case !s.acts.Allow(r):
		v.Error = "Too many checks from your address. Wait ten seconds, then try again."
		return http.StatusTooManyRequests
	case len(validation.IsDNS1123Subdomain(v.ID.Name)) > 0:
		v.Error = "The name " + v.ID.Name + " is none: use small letters, digits and hyphens."
		return http.StatusUnprocessableEntity
	case err != nil:
		v.Error = "What it asks for cannot be read: " + err.Error()
		return http.StatusUnprocessableEntity
	}

	before := workload.TenantSpec{TenantID: v.ID}
	if v.ID.UID != "" {
		is, no := s.readTenant(r, of, c, v.ID.Name)
		if no != nil {
			v.Error = no.text
			return no.code
		}
		if is.TenantID != v.ID {
			v.ID, v.Error = is.TenantID, "Somebody has changed the Tenant meanwhile. Below is what you wrote: compare it "+
				"with its page, then check it again."
			return http.StatusConflict
		}
		before = is
	} else if err := s.mayPutTenant(r, of); err != nil {
		no := newRefusal(err)
		v.Error = no.text
		return no.code
	}

	after := workload.TenantSpec{TenantID: v.ID, Spec: spec}
	if err := s.deeds.PutTenant(r.Context(), c, of.person.impersonation(), after, true); err != nil {
		v.Error = "The cluster does not take it: " + err.Error()
		return http.StatusUnprocessableEntity
	}
	one := newTenantDraft(before, after)
	v.IsSound = true
	v.Diff, _ = diffLines(difflib.SplitLines(one.before), difflib.SplitLines(one.after)) // to memory
	v.Leaving = describeLeaving(one.leaving, one.isDeleting)
	if one.before != one.after {
		key := tenantKey(v.Ref, v.ID.Name)
		s.tenants.add(key, one)
		v.Apply = putTenantPath(key)
	}
	return http.StatusOK
}

// showTenantEditor shows the form of a Tenant.
func (s *Server) showTenantEditor(w http.ResponseWriter, r *http.Request, of *session, code int, v tenantEditView) {
	p, err := s.hub.current()
	if err != nil {
		s.fail(w, err)
		return
	}
	v.CSRF = of.csrf
	title := "A new Tenant of " + v.Ref
	if v.ID.UID != "" {
		title = "Change Tenant " + v.ID.Name + " of " + v.Ref
		v.Back = tenantPath(v.Ref, v.ID.Name)
	}
	s.showQuestion(w, r, of, p, code, title, "tenantedit.html", v)
}

// parseSpec reads what a Tenant asks for. The API server knows its fields.
func parseSpec(text string) (spec map[string]any, err error) {
	if len(text) > maxTenant {
		return nil, errors.New("it is longer than 32 KiB")
	}
	if err := yaml.UnmarshalStrict([]byte(text), &spec); err != nil {
		return nil, err
	}
	if len(spec) == 0 {
		return nil, errors.New("it is empty")
	}
	return spec, nil
}

func formatSpec(spec map[string]any) string {
	if len(spec) == 0 {
		return ""
	}
	text, err := yaml.Marshal(spec)
	if err != nil {
		panic(err) // it came of JSON or YAML
	}
	return string(text)
}

// tenantDraft is a Tenant that its cluster would take.
type tenantDraft struct {
	spec          workload.TenantSpec
	before, after string   // what it asks for, as YAML; before is "" for a new one
	leaving       []string // namespaces that it asks for no longer
	isDeleting    bool     // they are deleted
}

func newTenantDraft(before, after workload.TenantSpec) tenantDraft {
	d := tenantDraft{
		spec:       after,
		before:     formatSpec(before.Spec),
		after:      formatSpec(after.Spec),
		isDeleting: after.Spec["reclaim"] == "Delete",
	}
	stay := namesIn(after.Spec)
	for _, name := range namesIn(before.Spec) {
		if !slices.Contains(stay, name) {
			d.leaving = append(d.leaving, name)
		}
	}
	return d
}

func namesIn(spec map[string]any) (names []string) {
	list, _ := spec["namespaces"].([]any)
	for _, one := range list {
		if name, ok := one.(string); ok {
			names = append(names, name)
		}
	}
	return names
}

func (d tenantDraft) about() string {
	return "sha256 " + sitedocument.Digest([]byte(d.after)) + " in place of version " + d.spec.Version
}

// tenantDrafts are the Tenants that people have checked lately, by their names, the newest last.
type tenantDrafts struct {
	mu   sync.Mutex
	keys []string
	all  map[string]tenantDraft
}

func (d *tenantDrafts) add(key string, one tenantDraft) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all == nil {
		d.all = map[string]tenantDraft{}
	}
	d.keys = append(slices.DeleteFunc(d.keys, func(k string) bool { return k == key }), key)
	d.all[key] = one
	for len(d.keys) > maxDrafts {
		delete(d.all, d.keys[0])
		d.keys = d.keys[1:]
	}
}

func (d *tenantDrafts) find(key string) (tenantDraft, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one, ok := d.all[key]
	return one, ok
}

func isTenantDraft(p *picture, name string) (about string, ok bool) {
	d, ok := p.tenants.find(name)
	return d.about(), ok
}

func describeTenantDraft(p *picture, name string) []string {
	d, _ := p.tenants.find(name)
	lines := []string{"Namespaces that it asks for: " + strings.Join(namesIn(d.spec.Spec), ", ")}
	return append(lines, describeLeaving(d.leaving, d.isDeleting)...)
}

// typedForTenantDraft is the name of a Tenant where namespaces are deleted.
func typedForTenantDraft(p *picture, name string) string {
	if d, _ := p.tenants.find(name); d.isDeleting && len(d.leaving) > 0 {
		return name
	}
	return ""
}
