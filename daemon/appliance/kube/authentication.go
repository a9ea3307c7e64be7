package kube

import (
	"crypto/sha256"
	"fmt"
	"slices"
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

// newIssuer is the site's issuer as the API server knows it. Of a token's groups a person is in those that the site gives
// a role, by names of their own (OIDCGroup), and in no other one; who is in none of them is nobody. Which of them has
// which role is not said here: the API server reads another file only once its issuer has answered.
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
			Groups:   apiserver.PrefixedClaimOrExpression{Expression: groupsExpression(o)},
		},
		UserValidationRules: []apiserver.UserValidationRule{
			{Expression: "size(user.groups) > 0", Message: "none of the groups has a role in appliance.oidc.roles"},
			{
				Expression: `user.username.matches("^` + OIDCPrefix + `[!-~]{1,128}$")`,
				Message:    "the name has blanks or characters that are not ASCII, or more than 128",
			},
		},
	}
}

// OIDCGroup is the name in the API of a group of an issuer. The digest in it is of the issuer, its authorities, the client
// and the claims: while the API server still answers people of those from before, they are in no group that has rights.
func OIDCGroup(o *site.OIDC, group string) string {
	of := strings.Join([]string{string(o.Issuer), o.ClientID, o.UsernameClaim, o.GroupsClaim, string(o.CA)}, "\x00")
	digest := sha256.Sum256([]byte(of))
	return fmt.Sprintf("%s%x:%s", OIDCPrefix, digest[:8], group)
}

// groupsExpression are the groups of a token that have a role, in the Common Expression Language. Only those that the
// site names get through, so the list is bounded.
func groupsExpression(o *site.OIDC) string {
	claim := "claims[?" + quoteCEL(o.GroupsClaim) + "].orValue(null)"
	has := fmt.Sprintf("(type(%s) == list ? dyn(%[1]s) : dyn([%[1]s]))", claim)
	groups := slices.Concat(o.Roles.Viewer, o.Roles.Operator, o.Roles.Owner)
	slices.Sort(groups)
	return fmt.Sprintf("%s.filter(g, g in %s).map(g, %s + g)",
		ListCEL(slices.Compact(groups)), has, quoteCEL(OIDCGroup(o, "")))
}

// quoteCEL is a text as a literal of the Common Expression Language, whose escapes are those of Go.
func quoteCEL(s string) string { return strconv.QuoteToASCII(s) }

// ListCEL is a list of texts in the same language.
func ListCEL(all []string) string {
	var quoted []string
	for _, s := range all {
		quoted = append(quoted, quoteCEL(s))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
