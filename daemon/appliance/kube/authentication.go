package kube

import (
	"fmt"
	"strconv"
	"strings"

	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/site"
)

// OIDCPrefix begins the names of people whom an issuer of OpenID Connect knows. What follows is the issuer's word: no
// other person's name has a colon there (CheckPersonName).
const OIDCPrefix = PersonPrefix + "oidc:"

// authentication is whom the API server answers: base, and people of the site's issuer if it names one. The API server
// follows the file while it runs, and starts whether or not the issuer answers; until it does, its tokens are refused.
func authentication(base []byte, o *site.OIDC) ([]byte, error) {
	if o == nil {
		return base, nil
	}

	config := struct {
		JWT []apiserver.JWTAuthenticator `json:"jwt"`
	}{[]apiserver.JWTAuthenticator{newIssuer(o)}}
	text, err := yaml.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("write the issuer of appliance.oidc: %w", err)
	}
	return append(append([]byte{}, base...), text...), nil
}

// newIssuer is the site's issuer as the API server knows it. A person is in the group of one role and in no other one,
// whatever groups the token names; who has no role is nobody.
func newIssuer(o *site.OIDC) apiserver.JWTAuthenticator {
	return apiserver.JWTAuthenticator{
		Issuer: apiserver.Issuer{
			URL:                  string(o.Issuer),
			Audiences:            []string{o.ClientID},
			CertificateAuthority: string(o.CA),
		},
		ClaimMappings: apiserver.ClaimMappings{
			// By its name and not by an expression: of email the API server then also wants that it was verified.
			Username: apiserver.PrefixedClaimOrExpression{Claim: o.UsernameClaim, Prefix: ptr.To(OIDCPrefix)},
			Groups:   apiserver.PrefixedClaimOrExpression{Expression: roleExpression(o)},
		},
		UserValidationRules: []apiserver.UserValidationRule{
			{Expression: "size(user.groups) == 1", Message: "none of the groups has a role in appliance.oidc.roles"},
			{
				Expression: `user.username.matches("^` + OIDCPrefix + `[!-~]{1,128}$")`,
				Message:    "the name has blanks or characters that are not ASCII, or more than 128",
			},
		},
	}
}

// roleExpression is the group of a token's role, in the Common Expression Language: that of the highest role that one of
// the token's groups has, else none.
func roleExpression(o *site.OIDC) string {
	claim := "claims[?" + quoteCEL(o.GroupsClaim) + "].orValue(null)"
	has := fmt.Sprintf("(type(%s) == list ? dyn(%[1]s) : dyn([%[1]s]))", claim)
	var choice strings.Builder
	for _, role := range []struct {
		name   string
		groups []string
	}{{"owner", o.Roles.Owner}, {"operator", o.Roles.Operator}, {"viewer", o.Roles.Viewer}} {
		if len(role.groups) == 0 {
			continue
		}
		var quoted []string
		for _, g := range role.groups {
			quoted = append(quoted, quoteCEL(g))
		}
		fmt.Fprintf(&choice, "%s.exists(g, g in [%s]) ? [%s] : ", has, strings.Join(quoted, ", "), quoteCEL(PersonPrefix+role.name))
	}
	return choice.String() + "[]"
}

// quoteCEL is a text as a literal of the Common Expression Language, whose escapes are those of Go.
func quoteCEL(s string) string { return strconv.QuoteToASCII(s) }
