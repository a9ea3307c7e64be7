package page

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/clusters/workload"
)

// alpha is the Tenant of the recorded cluster as its API has it.
func alpha() workload.TenantSpec {
	return workload.TenantSpec{
		TenantID: workload.TenantID{Name: "alpha", UID: "a", Version: "7"},
		Spec:     map[string]any{"namespaces": []any{"alpha-dev", "alpha-prod"}},
	}
}

// changedAlpha is a change of it that was checked.
func changedAlpha() tenantDraft {
	after := alpha()
	after.Spec = map[string]any{"namespaces": []any{"alpha-dev", "alpha-test"}}
	return newTenantDraft(alpha(), after)
}

// checkTenant sends the form of a Tenant; one that is called "" is a new one, alpha the one that there is.
func checkTenant(b browser, name, text string) *httptest.ResponseRecorder {
	link := tenantEditLink("edge", name)
	d := b.open(link)
	fields := url.Values{}
	for _, input := range d.id("main").all("input") {
		fields.Set(input.attr("name"), input.attr("value"))
	}
	if name == "" {
		fields.Set(tenantField, "gamma")
	}
	fields.Set(documentField, text)
	return b.ask("POST", tenantEditPath, fields.Encode())
}

// confirm answers the question of an action's page, with a name typed if it asks for one.
func confirm(t *testing.T, b browser, path, name string) *httptest.ResponseRecorder {
	d := b.open(path)
	fields := url.Values{}
	for _, input := range d.id("main").all("input") {
		fields.Set(input.attr("name"), input.attr("value"))
	}
	if name != "" {
		require.NotNil(t, d.id("name"), "%s asks for the name: %s", path, d.id("main").text())
		fields.Set(nameField, name)
	}
	return b.ask("POST", path, fields.Encode())
}

func TestTenantsAreShown(t *testing.T) {
	r := newFixture(t)
	viewer, owner := logInAs(t, r.Server, Viewer), logInAs(t, r.Server, Owner)
	d := viewer.open("/clusters/edge")
	assert.Contains(t, d.id("tenant-alpha").text(), "readyalpha-dev, alpha-prodUser ann")
	assert.Contains(t, d.id("tenant-beta").text(), "NamespaceTaken: namespace alpha-dev is that of Tenant alpha")
	text := d.id("main").text()
	assert.Less(t, strings.Index(text, "NamespaceTaken"), strings.Index(text, "User ann"), "who needs a person comes first")
	assert.NotContains(t, text, "Make a Tenant")
	assert.Contains(t, owner.open("/clusters/edge").id("main").text(), "Make a Tenant")

	d = viewer.open(tenantPath("edge", "alpha"))
	assert.Contains(t, d.id("stands").text(), "Good ready has 2 of 2 namespaces")
	assert.Contains(t, d.id("stands").text(), "pods: 50")
	assert.Nil(t, d.id("actions"))
	assert.Equal(t, []string{"Change it", "Remove the Tenant"},
		texts(owner.open(tenantPath("edge", "alpha")).id("actions").all("a")))
	assert.Contains(t, viewer.open(tenantPath("edge", "gone")).id("empty").text(), "no such Tenant")
	assert.Contains(t, viewer.open(tenantPath("lab", "alpha")).id("main").text(), "i/o timeout")
	assert.Equal(t, http.StatusNotFound, viewer.ask("GET", tenantPath("nobody", "alpha"), "").Code)

	plain := contents()
	plain.HasTenants, plain.Tenants = false, nil
	r.of.workloads["edge"] = plain
	r.workloads.expire("edge")
	d = owner.open("/clusters/edge")
	assert.Contains(t, d.id("main").text(), "It is not shared. The add-on tenants brings them.")
	assert.NotContains(t, d.id("main").text(), "Make a Tenant")
}

// TestATenantIsMadeChangedAndRemoved: checked by the cluster, confirmed, done as the person.
func TestATenantIsMadeChangedAndRemoved(t *testing.T) {
	r := newFixture(t)
	b := logInAs(t, r.Server, Owner)

	w := checkTenant(b, "", "namespaces: [gamma]\n")
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	assert.Empty(t, r.api.takeDone(), "a check changes nothing")
	put := "/tenants/" + url.PathEscape("edge/gamma") + "/put-tenant"
	assert.Contains(t, w.Body.String(), put)
	require.Equal(t, http.StatusSeeOther, confirm(t, b, put, "").Code)
	assert.Equal(t, []string{"firstlight:ann@laptop: put gamma of edge, version \"\": namespaces:\n- gamma\n"}, r.api.takeDone())

	w = checkTenant(b, "alpha", "namespaces: [alpha-dev]\n")
	assert.Contains(t, parse(t, w.Body.Bytes()).id("checked").text(), "Namespace alpha-prod stays with all that is in it")
	w = checkTenant(b, "alpha", "namespaces: [alpha-dev]\nreclaim: Delete\n")
	assert.Contains(t, parse(t, w.Body.Bytes()).id("checked").text(), "Namespace alpha-prod is deleted")
	change := "/tenants/" + url.PathEscape("edge/alpha") + "/put-tenant"
	assert.Equal(t, http.StatusUnprocessableEntity, confirm(t, b, change, "alpha").Code)
	assert.Empty(t, r.api.takeDone(), "what deletes namespaces wants the name typed")
	require.Equal(t, http.StatusSeeOther, confirm(t, b, change, "edge/alpha").Code)
	assert.Len(t, r.api.takeDone(), 1)
	assert.Contains(t, parse(t, checkTenant(b, "alpha", formatSpec(alpha().Spec)).Body.Bytes()).id("same").text(), "asks for what it has")

	remove := "/tenants/" + url.PathEscape("edge/beta") + "/remove-tenant"
	assert.Contains(t, b.open(remove).id("main").text(), "Namespace beta is deleted with all that is in it")
	require.Equal(t, http.StatusSeeOther, confirm(t, b, remove, "edge/beta").Code)
	assert.Equal(t, []string{"firstlight:ann@laptop: remove beta b of edge"}, r.api.takeDone())
}

// TestATenantIsNotChangedUnread: what is wrong, what changed meanwhile, and who may not.
func TestATenantIsNotChangedUnread(t *testing.T) {
	r := newFixture(t)
	r.acts.Burst = 100
	b := logInAs(t, r.Server, Owner)
	for text, want := range map[string]string{
		"namespaces: [x":                     "cannot be read",
		"":                                   "it is empty",
		"owners: []\n":                       "The cluster does not take it: spec.namespaces: Required value",
		strings.Repeat("a", maxTenant) + ":": "longer than 32 KiB",
	} {
		w := checkTenant(b, "alpha", text)
		assert.Equal(t, http.StatusUnprocessableEntity, w.Code)
		assert.Contains(t, parse(t, w.Body.Bytes()).id("error").text(), want)
	}

	read := r.deeds.ReadTenant
	text := "namespaces: [mine]\n"
	d := b.open(tenantEditLink("edge", "alpha"))
	fields := url.Values{documentField: {text}}
	for _, input := range d.id("main").all("input") {
		fields.Set(input.attr("name"), input.attr("value"))
	}
	r.deeds.ReadTenant = func(
		ctx context.Context, c status.Cluster, as rest.ImpersonationConfig, name string,
	) (workload.TenantSpec, error) {
		is, err := read(ctx, c, as, name)
		is.Version = "8"
		return is, err
	}
	w := b.ask("POST", tenantEditPath, fields.Encode())
	assert.Equal(t, http.StatusConflict, w.Code)
	assert.Contains(t, w.Body.String(), "mine", "what was written is there")

	r.deeds.ReadTenant = func(context.Context, status.Cluster, rest.ImpersonationConfig, string) (workload.TenantSpec, error) {
		return workload.TenantSpec{}, errors.New("https://172.22.1.7:6443: i/o timeout")
	}
	assert.Contains(t, b.ask("GET", tenantEditLink("edge", "alpha"), "").Body.String(), "It was not read")

	operator := logInAs(t, r.Server, Operator)
	assert.Equal(t, http.StatusForbidden, operator.ask("GET", tenantEditLink("edge", "alpha"), "").Code)
	fields.Set("csrf", operator.open("/").all("input")[0].attr("value"))
	assert.Equal(t, http.StatusForbidden, operator.ask("POST", tenantEditPath, fields.Encode()).Code)
	r.api.forbids = true
	late := newFixture(t)
	late.api.forbids = true
	forbidden := logInAs(t, late.Server, Owner)
	assert.Equal(t, http.StatusForbidden, forbidden.ask("GET", tenantEditLink("edge", "alpha"), "").Code)
	assert.Empty(t, append(r.api.takeDone(), late.api.takeDone()...))
}

// TestARemovalIsOfTheTenantThatWasRead: one that was changed since is asked about again.
func TestARemovalIsOfTheTenantThatWasRead(t *testing.T) {
	r := newFixture(t)
	b := logInAs(t, r.Server, Owner)
	path := "/tenants/" + url.PathEscape("edge/beta") + "/remove-tenant"
	d := b.open(path)
	fields := url.Values{nameField: {"edge/beta"}}
	for _, input := range d.id("main").all("input") {
		if input.attr("name") != nameField {
			fields.Set(input.attr("name"), input.attr("value"))
		}
	}

	changed := contents()
	changed.Tenants[1].Version, changed.Tenants[1].Namespaces = "10", []string{"beta", "everything"}
	r.of.workloads["edge"] = changed
	r.workloads.expire("edge")
	w := b.ask("POST", path, fields.Encode())
	assert.Equal(t, http.StatusConflict, w.Code)
	assert.Contains(t, w.Body.String(), "Namespace everything is deleted")
	assert.Empty(t, r.api.takeDone())
}
