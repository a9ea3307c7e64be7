package site

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"

	"firstlight.dev/firstlight/assets/yamldoc"
)

// OIDC is an issuer of OpenID Connect, whose users may log in to the page and to the API by their groups.
type OIDC struct {
	Issuer        URL          `yaml:"issuer" required:"true" doc:"https://HOST[:PORT][/PATH] of the issuer, letter for letter as its tokens have it in iss."`
	ClientID      string       `yaml:"clientID" required:"true" pattern:"^[!-~]{1,256}$" hint:"the name of the client as the issuer knows it, without blanks" doc:"The appliance's client there. Tokens for another one are refused."`
	ClientSecret  Secret       `yaml:"clientSecret" default:"none: a public client" doc:"Secret of that client. With and without it the page proves by PKCE that it asked."`
	Scopes        []string     `yaml:"scopes" pattern:"^[!#-\\[\\]-~]{1,128}$" hint:"scopes such as email, each without blanks" default:"profile, email" doc:"What the page asks for besides openid. Some issuers tell groups only with groups, and let a log-in of the page be renewed only with offline_access."`
	UsernameClaim string       `yaml:"usernameClaim" pattern:"^[!-~]{1,128}$" hint:"the name of a claim such as email" default:"sub" doc:"Claim whose value names the person in audit logs, with firstlight:oidc: before it."`
	GroupsClaim   string       `yaml:"groupsClaim" pattern:"^[!-~]{1,128}$" hint:"the name of a claim such as groups" default:"groups" doc:"Claim with the person's groups: a list of texts, or one text."`
	CA            Certificates `yaml:"ca" default:"public authorities" doc:"Authorities of the issuer's certificate, PEM, in place of the public ones."`
	Roles         OIDCRoles    `yaml:"roles" doc:"Which groups have which role. Who is in several has the highest; who is in none cannot log in."`
}

// OIDCRoles are the groups of each role, as the issuer names them.
type OIDCRoles struct {
	Viewer   []string `yaml:"viewer" pattern:"^[^\\x00-\\x1f\\x7f]{1,256}$" hint:"the name of a group, on one line" doc:"Groups that see the page."`
	Operator []string `yaml:"operator" pattern:"^[^\\x00-\\x1f\\x7f]{1,256}$" hint:"the name of a group, on one line" doc:"Groups that also do what can be undone."`
	Owner    []string `yaml:"owner" pattern:"^[^\\x00-\\x1f\\x7f]{1,256}$" hint:"the name of a group, on one line" doc:"Groups that also do what loses data, or gives a secret away."`
}

// ofAppliance are the issuers that the appliance's API server is itself: it does not start with one of them.
var ofAppliance = []string{"https://kubernetes.default.svc.cluster.local", "https://kubernetes.default.svc"}

// checkOIDC checks what the parts of the section mean together. The API server does not start with an issuer that it
// refuses, so none gets there.
func (r *reader) checkOIDC(o *OIDC) {
	if o == nil {
		return
	}

	const at = "appliance.oidc"
	if o.Issuer != "" {
		u, err := url.Parse(string(o.Issuer))
		switch {
		case err != nil || u.Scheme != "https":
			r.Report(at+".issuer", "tokens are proven by what the issuer serves; use its https address")
		case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || !yamldoc.IsPrintable(string(o.Issuer)):
			r.Report(at+".issuer", "an issuer has no query and no fragment; write it as its tokens have it in iss")
		case slices.Contains(ofAppliance, string(o.Issuer)):
			r.Report(at+".issuer", "this is the appliance's own API server; use the address of your issuer")
		}
	}

	if len(o.Roles.Viewer)+len(o.Roles.Operator)+len(o.Roles.Owner) == 0 {
		r.Report(at+".roles", "nobody could log in; add a group to viewer, operator or owner")
	}
	r.checkGroups(at+".roles.viewer", o.Roles.Viewer)
	r.checkGroups(at+".roles.operator", o.Roles.Operator)
	r.checkGroups(at+".roles.owner", o.Roles.Owner)
}

// maxGroups is how many groups may have a role.
const maxGroups = 64

func (r *reader) checkGroups(at string, groups []string) {
	if len(groups) > maxGroups {
		r.Report(at, "%d groups are too many; use %d at most", len(groups), maxGroups)
	}
	for i, g := range groups {
		if slices.Index(groups, g) < i {
			r.Report(fmt.Sprintf("%s[%d]", at, i), "group %s is there twice; remove one", yamldoc.Quote(g))
		}
	}
}

func (o *OIDC) withDefaults() *OIDC {
	if o == nil {
		return nil
	}

	d := *o
	if d.Scopes == nil {
		d.Scopes = []string{"profile", "email"}
	}
	d.UsernameClaim = cmp.Or(d.UsernameClaim, "sub")
	d.GroupsClaim = cmp.Or(d.GroupsClaim, "groups")
	return &d
}
