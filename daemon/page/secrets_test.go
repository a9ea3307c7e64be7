package page

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/daemon/appliance/vault"
)

// listing is what an appliance has; of one secret it has none.
func listing() vault.Listing {
	return vault.Listing{
		Secrets: []vault.Held{
			{Name: "authority", Owner: "appliance", Count: 1, Since: time.Now().Add(-50 * time.Hour), Used: "signs certificates",
				Rotated: "by a new stick", Away: true, Places: []string{"/var/lib/firstlight/ca/ca.key"}},
			{Name: "logins of BMCs", Owner: "site", Count: 12, Since: time.Now().Add(-2 * time.Hour), Used: "Ironic", Rotated: "firstlightd rotate bmc"},
			{Name: "files of pods", Owner: "appliance"},
		},
		Unlisted: []string{"metal3/unheard-of"},
	}
}

func TestSecretsAreListedWithoutAValue(t *testing.T) {
	b := logInAs(t, newServer(t, rack(1)), Operator)
	d := b.open("/secrets")
	assert.Equal(t, []string{"authority", "logins of BMCs"}, texts(rowHeads(d.id("main"))), "what the appliance has none of is left out")
	assert.Equal(t, "authority 1 2 d yes appliance signs certificates by a new stick",
		strings.Join(texts(d.all("tr")[1].all("th", "td")), " "))
	assert.Contains(t, d.id("unlisted").text(), "metal3/unheard-of")
	assert.NotContains(t, d.id("main").text(), "ca.key", "nor where it is")
}

func TestSecretsAreShownToOperatorsAndOwners(t *testing.T) {
	s := newServer(t, rack(1))
	for role, shown := range map[Role]bool{Viewer: false, Operator: true, Owner: true} {
		b := logInAs(t, s, role)
		links := hrefs(b.open("/").all("nav"))
		if !shown {
			assert.NotContains(t, links, "/secrets")
			assert.Equal(t, http.StatusForbidden, b.ask("GET", "/secrets", "").Code)
			assert.Equal(t, http.StatusForbidden, b.ask("GET", "/secrets?part=main", "").Code)
			continue
		}
		assert.Contains(t, links, "/secrets")
		assert.Equal(t, http.StatusOK, b.ask("GET", "/secrets", "").Code)
	}
}

func TestSecretsThatAreNotListedSaySo(t *testing.T) {
	open := func(list func(context.Context) vault.Listing) document {
		s := newServer(t, ready())
		s.sources.Secrets = list
		s.secrets.wait = time.Millisecond
		return logInAs(t, s, Owner).open("/secrets")
	}
	end := make(chan struct{})
	defer close(end)
	assert.Contains(t, open(func(context.Context) vault.Listing { <-end; return vault.Listing{} }).id("empty").text(), "being listed")

	s := newServer(t, ready())
	s.sources.Secrets = func(context.Context) vault.Listing {
		return vault.Listing{Error: "Secrets of the API are not listed: connection refused"}
	}
	d := logInAs(t, s, Owner).open("/secrets")
	assert.Equal(t, "Secrets of the API are not listed: connection refused", d.id("failed").text())
	assert.Equal(t, "It has none yet.", d.id("empty").text())
}
