package page

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/rest"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/appliance/kube"
)

// Role is what a session may do. Each may do all that those before it may.
type Role string

const (
	Nobody   Role = ""         // without a session
	Viewer   Role = "viewer"   // sees all pages
	Operator Role = "operator" // does what can be undone
	Owner    Role = "owner"    // does what loses data or gives a secret away
)

// Roles are those that a session can have, the least first.
func Roles() []Role { return []Role{Viewer, Operator, Owner} }

// covers reports whether a role may do what needs another one.
func (r Role) covers(needed Role) bool {
	return slices.Index(Roles(), r) >= slices.Index(Roles(), needed)
}

// group is the one in which the API server finds people of a role.
func (r Role) group() string { return kube.PersonPrefix + string(r) }

// groups are all in which it finds them, with those of an issuer, which may be nil.
func (r Role) groups(o *site.OIDC) []string {
	all := []string{r.group()}
	if o == nil {
		return all
	}
	for _, group := range map[Role][]string{Viewer: o.Roles.Viewer, Operator: o.Roles.Operator, Owner: o.Roles.Owner}[r] {
		all = append(all, kube.OIDCGroup(o, group))
	}
	return all
}

// lifetime is how long a session is good for.
type lifetime struct {
	total time.Duration
	idle  time.Duration // without a request
}

func (r Role) lifetime() lifetime {
	switch r {
	case Owner:
		return lifetime{time.Hour, 15 * time.Minute}
	case Operator:
		return lifetime{4 * time.Hour, 30 * time.Minute}
	}
	return lifetime{12 * time.Hour, time.Hour}
}

// Person is who has a session.
type Person struct {
	Name string // USER@HOST, as whoever asked for the code says
	Role Role
}

// NewPerson checks what a person is called and may do. The error is for people.
func NewPerson(name string, role Role) (Person, error) {
	if !slices.Contains(Roles(), role) {
		return Person{}, fmt.Errorf("role %q is unknown; use %s, %s or %s", role, Viewer, Operator, Owner)
	}
	if err := kube.CheckPersonName(name); err != nil {
		return Person{}, fmt.Errorf("user %w", err)
	}
	return Person{name, role}, nil
}

// user is who the audit logs say it was.
func (p Person) user() string { return kube.PersonPrefix + p.Name }

// impersonate is how the API is asked on behalf of a person: by its name, with the rights of its role's group and no
// others (Kubernetes, "User impersonation").
func (p Person) impersonate(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.Impersonate = p.impersonation()
	c.Timeout = apiTimeout
	return c
}

func (p Person) impersonation() rest.ImpersonationConfig {
	return rest.ImpersonationConfig{UserName: p.user(), Groups: []string{p.Role.group()}}
}
