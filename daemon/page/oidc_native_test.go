package page

import (
	"crypto"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/appliance/audit"
	"firstlight.dev/firstlight/daemon/appliance/kube"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// TestTheAPIServerKnowsPeopleOfTheIssuer: a real API server follows a site that names an issuer. It decides who has which
// role: for kubectl by a token, and for whoever logs in to the page.
func TestTheAPIServerKnowsPeopleOfTheIssuer(t *testing.T) {
	server, config, admin := startAPI(t)
	i := newTestIssuer(t)
	of, places := acting()
	edited := *of.site
	edited.Appliance.OIDC = i.site()
	of.site = &edited
	for name, h := range of.hosts {
		h.ResourceVersion, h.Spec.Image = "", nil
		require.NoError(t, admin.Create(t.Context(), h.DeepCopy()), name)
	}

	program, err := sandbox.BuildProgram(t.Context(), "kubernetes")
	require.NoError(t, err)
	kubectl := func(token string, args ...string) (string, error) {
		file := t.TempDir() + "/kubeconfig"
		text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n"+
			"clusters: [{name: a, cluster: {server: %q, certificate-authority: %q}}]\nusers: [{name: a, user: {token: %q}}]\n",
			server.URL, server.CAFile, token)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		out, err := exec.CommandContext(t.Context(), program, append([]string{"kubectl", "--kubeconfig", file}, args...)...).CombinedOutput()
		return string(out), err
	}
	whoami := func(token string) string {
		out, err := kubectl(token, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username} {.status.userInfo.groups}")
		if err != nil {
			return ""
		}
		return out
	}
	awaitThat := func(what string, token string, want string) {
		t.Helper()
		have := ""
		for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
			if have = whoami(token); have == want {
				return
			}
		}
		require.Equal(t, want, have, what)
	}

	known := func(user string, groups ...string) string {
		var names []string
		for _, g := range groups {
			names = append(names, kube.OIDCGroup(of.site.Appliance.OIDC, g))
		}
		text, err := json.Marshal(append(names, "system:authenticated"))
		require.NoError(t, err)
		return "firstlight:oidc:" + user + "@example.com " + string(text)
	}
	bind := func(o *site.OIDC) {
		set, err := apply.New(fieldManager, Rights(o)...)
		require.NoError(t, err)
		require.NoError(t, set.Apply(t.Context(), admin))
	}

	vic, ann := i.token("vic", nil), i.token("ann", nil)
	assert.Empty(t, whoami(ann), "the site names no issuer yet")
	require.NoError(t, server.Trust(of.site.Appliance.OIDC))
	awaitThat("followed without a restart", ann, known("ann", "everybody", "ops"))
	assert.Equal(t, known("vic", "everybody"), whoami(vic))
	bind(of.site.Appliance.OIDC)

	t.Run("kubectl", func(t *testing.T) {
		power := []string{"-n", "metal3", "patch", "bmh", "node-004", "--type", "merge", "-p", `{"spec":{"online":false}}`}
		out, err := kubectl(vic, "-n", "metal3", "get", "bmh")
		assert.NoError(t, err, out)
		assert.Contains(t, out, "node-004")
		out, err = kubectl(vic, power...)
		assert.Error(t, err)
		assert.Contains(t, out, `User "firstlight:oidc:vic@example.com" cannot patch resource "baremetalhosts"`)
		for _, token := range []string{vic, ann} {
			out, err = kubectl(token, "-n", "metal3", "get", "secrets")
			assert.Error(t, err)
			assert.Contains(t, out, "Forbidden")
		}
		out, err = kubectl(ann, power...)
		assert.NoError(t, err, out)
		out, err = kubectl(ann, "-n", "metal3", "patch", "bmh", "node-004", "--type", "merge", "-p", `{"spec":{"image":{"url":"http://x/y"}}}`)
		assert.Error(t, err, out)
	})

	t.Run("tokens that are refused", func(t *testing.T) {
		other := newKey(t)
		none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + strings.Split(ann, ".")[1] + "."
		claim := func(name string, value any) func(map[string]any) crypto.PrivateKey {
			return func(c map[string]any) crypto.PrivateKey { c[name] = value; return nil }
		}
		for name, token := range map[string]string{
			"forged":               i.token("ann", func(map[string]any) crypto.PrivateKey { return other }),
			"unsigned":             none,
			"changed":              strings.Split(ann, ".")[0] + "." + strings.Split(vic, ".")[1] + "." + strings.Split(ann, ".")[2],
			"expired":              i.token("ann", claim("exp", time.Now().Unix()-60)),
			"not yet valid":        i.token("ann", claim("nbf", time.Now().Unix()+3600)),
			"of another client":    i.token("ann", claim("aud", "other")),
			"of another issuer":    i.token("ann", claim("iss", "https://other")),
			"without a role":       i.token("eve", nil),
			"without a name":       i.token("ann", claim("email", "")),
			"with a name of lines": i.token("ann", claim("email", "a\nb@example.com")),
			"an unverified e-mail": i.token("ann", claim("email_verified", false)),
		} {
			assert.Empty(t, whoami(token), name)
		}
	})

	deeds := newAPIServer(t).deeds()
	deeds.API = func() (*rest.Config, error) { return config, nil }
	s := newServerWith(t, of, deeds)
	off := places["power-off"]
	t.Run("page", func(t *testing.T) {
		b := newVisitor(t, s)
		assert.Contains(t, i.walk(b, "eve", nil).Body.String(), "none of your groups has a role")
		w := i.walk(b, "vic", nil)
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		b = browser{t, s, cookieOf(t, w.Header(), cookie).Value}
		assert.Equal(t, http.StatusForbidden, b.ask("GET", "/nodes/"+off+"/power-off", "").Code)
		w = i.walk(newVisitor(t, s), "ann", nil)
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		b = browser{t, s, cookieOf(t, w.Header(), cookie).Value}
		form := (&fixture{Server: s, t: t, of: of, places: places}).form(b, findAction(t, "power-off"))
		w = b.ask("POST", "/nodes/"+off+"/power-off", form.Encode())
		assert.Equal(t, http.StatusSeeOther, w.Code)
		assert.Contains(t, b.open("/nodes/"+off).id("notice").text(), off+" is switched off.")
		require.Eventually(t, func() bool {
			entries, err := audit.Read([]string{server.AuditLog}, time.Time{})
			require.NoError(t, err)
			return slices.ContainsFunc(entries, func(e audit.Entry) bool {
				return e.As == "firstlight:oidc:ann@example.com" && e.Verb == "patch" && e.Code == http.StatusOK &&
					e.Object == "metal3/baremetalhosts.metal3.io/"+off
			})
		}, 2*time.Minute, 100*time.Millisecond, "the API server's own log names the person")
	})

	t.Run("roles change while the issuer is away", func(t *testing.T) {
		i.Server.CloseClientConnections()
		i.Server.Close()
		may := func(token string, args ...string) bool {
			out, _ := kubectl(token, append([]string{"auth", "can-i", "-n", "metal3"}, args...)...)
			return strings.HasPrefix(out, "yes")
		}
		awaitRights := func(what string, token string, get, patch bool) {
			t.Helper()
			assert.Eventually(t, func() bool {
				return may(token, "get", "bmh") == get && may(token, "patch", "bmh") == patch
			}, 2*time.Minute, 100*time.Millisecond, what)
		}
		edit := func(change func(o *site.OIDC)) {
			o := i.site()
			change(o)
			require.NoError(t, server.Trust(o)) // it does not follow this: nobody answers
			bind(o)
		}
		awaitRights("as before", ann, true, true)
		edit(func(o *site.OIDC) { o.Roles.Operator = nil })
		awaitRights("taken away", ann, true, false)
		edit(func(o *site.OIDC) { o.Roles.Operator = []string{"everybody"} })
		awaitRights("given", vic, true, true)

		spare := host("spare", 98, false)
		spare.ResourceVersion = ""
		require.NoError(t, admin.Create(t.Context(), spare))
		wipe := []string{"-n", "metal3", "annotate", "bmh", "spare", label.Overwrite + "=data-000000000009"}
		out, err := kubectl(vic, wipe...)
		assert.Error(t, err, "an operator loses no data: %s", out)
		edit(func(o *site.OIDC) { o.Roles.Operator, o.Roles.Owner = []string{"everybody"}, []string{"ops"} })
		assert.Eventually(t, func() bool { _, err := kubectl(ann, wipe...); return err == nil },
			time.Minute, 100*time.Millisecond, "who is operator and owner is owner")
		out, err = kubectl(ann, "-n", "metal3", "patch", "bmh", "spare", "--type", "merge", "-p", `{"spec":{"image":{"url":"http://x/y"}}}`)
		assert.Error(t, err, out)

		edit(func(o *site.OIDC) { o.ClientID = "another" })
		awaitRights("another client's people", ann, false, false)
		edit(func(o *site.OIDC) {})
		awaitRights("again", ann, true, true)
		require.NoError(t, server.Trust(nil))
		bind(nil)
		awaitRights("no issuer", ann, false, false)
		awaitThat("no issuer", ann, "")
	})
}
