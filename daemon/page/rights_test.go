package page

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/audit"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

func TestRolesHaveTheRightsOfTheirActions(t *testing.T) {
	for _, a := range actions() {
		assert.Contains(t, []Role{Operator, Owner}, a.needs, a.name)
		assert.Contains(t, subjects(), a.on, a.name)
		if a.isFinal || a.on == onCluster {
			assert.Equal(t, Owner, a.needs, "%s: what cannot be undone", a.name)
		}
	}
	for _, c := range []struct {
		have, needed Role
		covers       bool
	}{
		{Owner, Operator, true}, {Operator, Operator, true}, {Operator, Owner, false}, {Viewer, Operator, false},
		{Viewer, Viewer, true}, {Viewer, Nobody, true}, {Nobody, Viewer, false}, {"root", Viewer, false},
	} {
		assert.Equal(t, c.covers, c.have.covers(c.needed), "%s %s", c.have, c.needed)
	}
	for _, o := range Rights(nil) {
		text, err := json.Marshal(o)
		require.NoError(t, err)
		if !strings.Contains(string(text), "ValidatingAdmissionPolicy") {
			assert.NotContains(t, string(text), "*", "no right is for whatever comes")
		}
	}
	for _, r := range newClusterRole(Viewer).Rules {
		assert.Equal(t, []string{readVerb}, r.Verbs, "a viewer changes nothing")
		assert.Equal(t, []string{rightsGroup}, r.APIGroups, "no object of the API is a viewer's but hosts")
	}
	assert.Equal(t, []string{"get", "list", "watch"}, newHostRole(Viewer).Rules[0].Verbs, "a viewer changes nothing")
}

// TestTheAPIServerDecidesWhoMayAct asks a real API server, with every check of the page left out, for each action as
// each role; and for what no action does.
func TestTheAPIServerDecidesWhoMayAct(t *testing.T) {
	server, config, admin := startAPI(t)
	log := newAPIServer(t)
	deeds := log.deeds()
	deeds.API = func() (*rest.Config, error) { return config, nil }
	of, places := acting()
	log.stick, log.hosts = of.siteText, of.hosts
	s := newServerWith(t, of, deeds)
	r := &fixture{Server: s, t: t, of: of, places: places, api: log}
	for name, h := range of.hosts {
		h.ResourceVersion = ""
		h.Spec.Image = nil
		require.NoError(t, admin.Create(t.Context(), h.DeepCopy()), name)
	}

	far, nightly := newNodeUpdate(status.Cluster{Name: "far"}), newNodeUpdate(status.Cluster{Name: "far"})
	nightly.SetName("nightly")
	require.NoError(t, unstructured.SetNestedField(nightly.Object, true, "spec", "paused"))
	for _, o := range []*unstructured.Unstructured{far, nightly} {
		o.SetNamespace("default")
		require.NoError(t, admin.Create(t.Context(), o))
	}
	for _, role := range Roles() {
		for _, a := range actions() {
			r.look(a)
			about, _ := a.offered(mustPicture(t, s), places[a.name])
			done, no := s.perform(t.Context(), a, r.order(a, role, about))
			if done.write != nil {
				assert.NoError(t, done.write(io.Discard))
			}
			if role.covers(a.needs) {
				assert.Nil(t, no, "%s as %s: %+v", a.name, role, no)
			} else if assert.NotNil(t, no, "%s as %s", a.name, role) {
				assert.Equal(t, 403, no.code, "%s as %s: %s", a.name, role, no.text)
			}
		}
	}
	for _, role := range Roles() {
		for _, of := range readings() {
			err := s.checkReading(t.Context(), ann(role), of)
			if role.covers(of.needs) {
				assert.NoError(t, err, "%s as %s", of.resource, role)
			} else {
				assert.ErrorIs(t, err, errForbidden, "%s as %s", of.resource, role)
			}
		}
	}
	var host metal3api.BareMetalHost
	read := func(name string) metal3api.BareMetalHost {
		require.NoError(t, admin.Get(t.Context(), client.ObjectKey{Namespace: metal3.Namespace, Name: name}, &host))
		return host
	}
	require.NoError(t, admin.Get(t.Context(), client.ObjectKeyFromObject(far), far))
	paused, _, err := unstructured.NestedBool(far.Object, "spec", "paused")
	require.NoError(t, err)
	assert.True(t, paused, "as the owner asked")
	assert.True(t, apierrors.IsNotFound(admin.Get(t.Context(), client.ObjectKeyFromObject(nightly), nightly)), "it was ended")
	assert.False(t, read("node-004").Spec.Online)
	assert.True(t, read("node-005").Spec.Online)
	assert.Equal(t, "data-00000000000a", read("node-001").Annotations[label.Overwrite])
	assert.NotContains(t, read("node-002").Annotations, metal3api.PausedAnnotation)

	for _, c := range []struct {
		name string
		role Role
		p    metal3.Patch
	}{
		{"a viewer switches a host off", Viewer, metal3.PowerPatch(false)},
		{"an operator consents", Operator, metal3.ConsentPatch("data-00000000000b")},
		{"an operator takes consent away", Operator, metal3.Patch{"metadata": metal3.Patch{"annotations": nil}}},
		{"an owner gives an image", Owner, metal3.Patch{"spec": metal3.Patch{"image": metal3.Patch{"url": "http://x/y.raw"}}}},
		{"an owner gives a disk up by another way", Owner, metal3.Patch{"metadata": metal3.Patch{
			"annotations": metal3.Patch{label.AllowWipe: "none"}}}},
		{"an operator points to another BMC", Operator, metal3.Patch{"spec": metal3.Patch{"bmc": metal3.Patch{"address": "redfish://10.0.0.9/x"}}}},
		{"an operator says that it was verified", Operator, metal3.Patch{"metadata": metal3.Patch{
			"labels": metal3.Patch{label.Verified: "true"}}}},
	} {
		err := patchHost(t.Context(), config, ann(c.role), "node-001", c.p)
		assert.Error(t, err, c.name)
	}
	assert.Equal(t, "data-00000000000a", read("node-001").Annotations[label.Overwrite])

	// Someone takes the rights back: no session acts any more, whatever the page believes.
	for _, o := range Rights(nil) {
		if slices.Contains([]string{"ClusterRoleBinding", "RoleBinding"}, o.GetObjectKind().GroupVersionKind().Kind) {
			require.NoError(t, admin.Delete(t.Context(), o))
		}
	}
	require.Eventually(t, func() bool {
		return patchHost(t.Context(), config, ann(Owner), "node-004", metal3.PowerPatch(true)) != nil
	}, time.Minute, 50*time.Millisecond)

	require.Eventually(t, func() bool {
		entries, err := audit.Read([]string{server.AuditLog}, time.Time{})
		require.NoError(t, err)
		return slices.ContainsFunc(entries, func(e audit.Entry) bool {
			return e.As == "firstlight:ann@laptop" && e.Verb == "patch" && e.Code == 200 &&
				e.Object == "metal3/baremetalhosts.metal3.io/node-004"
		}) && slices.ContainsFunc(entries, func(e audit.Entry) bool {
			return e.As == "firstlight:ann@laptop" && e.Verb == "patch" && e.Code == 403
		})
	}, 2*time.Minute, 100*time.Millisecond, "the API server's own log names the person")
}

// startAPI is a real API server with what Rights applies, and then with BareMetalHosts, as an appliance comes up.
func startAPI(t *testing.T) (*sandbox.API, *rest.Config, client.Client) {
	server := sandbox.APIServer(t)
	kubectl, err := sandbox.BuildProgram(t.Context(), "kubernetes")
	require.NoError(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", server.Kubeconfig)
	require.NoError(t, err)
	scheme, err := metal3.Scheme()
	require.NoError(t, err)
	admin, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	set, err := apply.New(fieldManager, Rights(nil)...)
	require.NoError(t, err)
	require.NoError(t, set.Apply(t.Context(), admin))

	crd, err := sandbox.HostDefinition(t.Context())
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "crd.yaml")
	require.NoError(t, os.WriteFile(file, crd, 0o600))
	for _, args := range [][]string{
		{"create", "-f", file, "-f", "../../assets/crd/bpa.yaml"}, {"wait", "--for=condition=Established", "crd/baremetalhosts.metal3.io", "crd/nodeupdates.bpa.akraino.org", "--timeout=60s"},
	} {
		args = append([]string{"kubectl", "--kubeconfig", server.Kubeconfig}, args...)
		out, err := exec.CommandContext(t.Context(), kubectl, args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}

	// The policies take a moment until they hold. What was consented to before that is no change if it is asked again.
	tries := 0
	probe := host("probe", 99, false)
	probe.ResourceVersion = ""
	require.NoError(t, admin.Create(t.Context(), probe))
	require.Eventually(t, func() bool {
		tries++
		consent := metal3.ConsentPatch(fmt.Sprintf("data-%012x", tries))
		return patchHost(t.Context(), config, ann(Operator), "probe", consent) != nil &&
			patchHost(t.Context(), config, ann(Operator), "probe", metal3.PowerPatch(false)) == nil
	}, time.Minute, 100*time.Millisecond)
	return server, config, admin
}
