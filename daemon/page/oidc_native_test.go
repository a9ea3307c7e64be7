package page

import (
	"crypto"
	"encoding/base64"
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

	"firstlight.dev/firstlight/daemon/appliance/audit"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// TestTheAPIServerKnowsPeopleOfTheIssuer: a real API server follows a site that names an issuer. It decides who has which
// role: for kubectl by a token, and for whoever logs in to the page.
func TestTheAPIServerKnowsPeopleOfTheIssuer(t *testing.T) {
	server, config, admin := startAPI(t)
	i := newTestIssuer(t)
	of, places := acting()
	site := *of.site
	site.Appliance.OIDC = i.site()
	of.site = &site
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

	vic, ann := i.token("vic", nil), i.token("ann", nil)
	assert.Empty(t, whoami(ann), "the site names no issuer yet")
	require.NoError(t, server.Trust(of.site.Appliance.OIDC))
	awaitThat("followed without a restart", ann, `firstlight:oidc:ann@example.com ["firstlight:operator","system:authenticated"]`)
	assert.Equal(t, `firstlight:oidc:vic@example.com ["firstlight:viewer","system:authenticated"]`, whoami(vic))

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

	t.Run("the site takes a role away, and then the issuer", func(t *testing.T) {
		edited := i.site()
		edited.Roles.Operator = nil
		require.NoError(t, server.Trust(edited))
		awaitThat("another mapping", ann, `firstlight:oidc:ann@example.com ["firstlight:viewer","system:authenticated"]`)
		require.NoError(t, server.Trust(nil))
		awaitThat("no issuer", ann, "")
	})
}
