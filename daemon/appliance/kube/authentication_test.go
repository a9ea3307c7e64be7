package kube

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/pkg/cel/lazy"

	"firstlight.dev/firstlight/assets/site"
)

// readAuthentication reads the file of a site's issuer as the API server does, which does not start with one that has a
// mistake.
func readAuthentication(t *testing.T, o *site.OIDC) *apiserver.AuthenticationConfiguration {
	files, _, err := APIServerPolicies("/policies", "/audit", o)
	require.NoError(t, err)
	scheme := runtime.NewScheme()
	install.Install(scheme)
	codecs := serializer.NewCodecFactory(scheme, serializer.EnableStrict)
	read := &apiserver.AuthenticationConfiguration{}
	require.NoError(t, runtime.DecodeInto(codecs.UniversalDecoder(), files["authentication.yaml"], read))
	mistakes := validation.ValidateAuthenticationConfiguration(authenticationcel.NewDefaultCompiler(), read,
		[]string{"https://kubernetes.default.svc.cluster.local"})
	require.NoError(t, mistakes.ToAggregate())
	return read
}

func loadOIDC(t *testing.T, text string) *site.OIDC {
	s, problems := site.Load("site.yaml", []byte("appliance:\n  oidc: "+text+"\n"))
	require.Empty(t, problems)
	return s.WithDefaults().Appliance.OIDC
}

// TestTheAPIServerTakesWhateverIssuerASiteMayName: with a file that it refuses, it would not start.
func TestTheAPIServerTakesWhateverIssuerASiteMayName(t *testing.T) {
	assert.Empty(t, readAuthentication(t, nil).JWT)
	for _, text := range []string{
		`{issuer: https://sso.example, clientID: a, roles: {viewer: [all]}}`,
		`{issuer: "https://sso.example:8443/realms/x/", clientID: "https://appliance.example/?a=b", clientSecret: s, usernameClaim: email, roles: {viewer: [all], operator: [ops], owner: [adm]}}`,
		`{issuer: "https://[2001:db8::1]/x", clientID: "a\"b\\c'd", usernameClaim: "cognito:username", groupsClaim: "https://example/g\"r]", roles: {owner: ["CN=Admins,OU=\"x\" + {y}", "größe 💡", "a\\n"]}}`,
		`{issuer: https://sso.example, clientID: "${x}", groupsClaim: "a.b", roles: {operator: ["'; claims.x"]}}`,
	} {
		o := loadOIDC(t, text)
		read := readAuthentication(t, o)
		require.Len(t, read.JWT, 1)
		assert.Equal(t, string(o.Issuer), read.JWT[0].Issuer.URL)
		assert.Equal(t, []string{o.ClientID}, read.JWT[0].Issuer.Audiences)
	}
	files, _, err := APIServerPolicies("/policies", "/audit", loadOIDC(t, `{issuer: https://sso.example, clientID: a, clientSecret: horse-battery, roles: {viewer: [all]}}`))
	require.NoError(t, err)
	assert.NotContains(t, string(files["authentication.yaml"]), "horse", "the API server needs no secret")

	many := loadOIDC(t, `{issuer: https://sso.example, clientID: a, roles: {viewer: [all]}}`)
	for n := range 64 {
		many.Roles.Owner = append(many.Roles.Owner, strings.Repeat("\"", 250)+strconv.Itoa(n))
	}
	readAuthentication(t, many)
}

// TestOnlyGroupsWithARoleGetThrough maps the claims of tokens by the very expressions of the file.
func TestOnlyGroupsWithARoleGetThrough(t *testing.T) {
	o := loadOIDC(t, `{issuer: https://sso.example, clientID: a, usernameClaim: email, groupsClaim: "x:groups", roles: {viewer: [all], operator: ["ops \"a\""], owner: [adm, 'CN=x\y']}}`)
	jwt := readAuthentication(t, o).JWT[0]
	compiler := authenticationcel.NewDefaultCompiler()
	compiled, err := compiler.CompileClaimsExpression(&authenticationcel.ClaimMappingExpression{Expression: jwt.ClaimMappings.Groups.Expression})
	require.NoError(t, err)
	mapper := authenticationcel.NewClaimsMapper([]authenticationcel.CompilationResult{compiled})
	for _, c := range []struct {
		claims string
		groups []string
	}{
		{`{"x:groups": ["all"]}`, []string{"all"}},
		{`{"x:groups": "all"}`, []string{"all"}},
		{`{"x:groups": ["all", "x", "ops \"a\"", "all"]}`, []string{"all", `ops "a"`}},
		{`{"x:groups": ["adm", "ops \"a\"", "all"]}`, []string{"adm", "all", `ops "a"`}},
		{`{"x:groups": ["CN=x\\y"]}`, []string{`CN=x\y`}},
		{`{"x:groups": ["Adm", "al", "all ", "firstlight:owner", "system:masters"]}`, nil},
		{`{"x:groups": []}`, nil},
		{`{"x:groups": [1, true, null, {"a": 1}]}`, nil},
		{`{"x:groups": 7}`, nil},
		{`{"x:groups": null}`, nil},
		{`{"groups": ["adm"]}`, nil},
		{`{}`, nil},
	} {
		var claims map[string]any
		require.NoError(t, json.Unmarshal([]byte(c.claims), &claims))
		asked := lazy.NewMapValue(types.NewObjectType("kubernetes.claims")) // as the API server passes them
		for name, value := range claims {
			asked.Append(name, func(*lazy.MapValue) ref.Val { return types.DefaultTypeAdapter.NativeToValue(value) })
		}
		result, err := mapper.EvalClaimMapping(t.Context(), asked)
		require.NoError(t, err, c.claims)
		list, err := result.EvalResult.ConvertToNative(reflect.TypeFor[[]string]())
		require.NoError(t, err, c.claims)
		var want []string
		for _, g := range c.groups {
			want = append(want, OIDCGroup(o, g))
		}
		assert.ElementsMatch(t, want, list, c.claims)
	}
}
