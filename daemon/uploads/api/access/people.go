package access

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"firstlight.dev/firstlight/daemon/appliance/kube"
)

// PageClient is the common name of the certificate by which the appliance's page asks on behalf of people.
const PageClient = "page-client"

// HeaderUser and HeaderGroup are the person and its role's group that the page asks for, as in the requests that it
// sends to the API server (Kubernetes, "User impersonation"). From anyone else they mean nothing.
const (
	HeaderUser  = "Impersonate-User"
	HeaderGroup = "Impersonate-Group"
)

// People knows people for whom the appliance's page asks. No one whom Kubernetes made is among them.
type People struct{}

// Authenticate returns the person that the page names.
func (People) Authenticate(_ context.Context, r *http.Request) (User, error) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 ||
		r.TLS.VerifiedChains[0][0].Subject.CommonName != PageClient {
		return User{}, errNone
	}

	user, group := r.Header.Values(HeaderUser), r.Header.Values(HeaderGroup)
	if len(user) != 1 || len(group) != 1 ||
		!strings.HasPrefix(user[0], kube.PersonPrefix) || !strings.HasPrefix(group[0], kube.PersonPrefix) {
		return User{}, fmt.Errorf("%w: the page names no person", ErrAnonymous)
	}
	return User{Name: user[0], Groups: []string{group[0], "system:authenticated"}}, nil
}
