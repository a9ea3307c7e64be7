package page

import (
	"context"
	"net/http"
	"time"

	"firstlight.dev/firstlight/daemon/appliance/vault"
)

// secretsView is the page of secrets. It has no value of any.
type secretsView struct {
	IsKnown  bool
	Time     time.Time
	Rows     []secretRow
	Unlisted []string
	Error    string // why those of the API are missing
	Offers   []offer
}

// secretRow is one kind of secret that the appliance has.
type secretRow struct {
	vault.Held
	Age  string
	Away string // whether an away copy has it, in a word
}

// newSecrets lists the appliance's secrets while somebody looks: that reads folders, and asks the API.
func (s *Server) newSecrets() *lookup[vault.Listing] {
	return &lookup[vault.Listing]{
		ask:      func(ctx context.Context, _ string) vault.Listing { return s.sources.Secrets(ctx) },
		changed:  func() { s.hub.forget() },
		parallel: 1,
		timeout:  20 * time.Second,
		fresh:    time.Minute,
		stale:    lookupTTL,
		wait:     3 * time.Second,
	}
}

// askSecrets has the list in the next picture, or soon after.
func (s *Server) askSecrets(r *http.Request) { s.secrets.get(r.Context(), "") }

// showSecrets is the page of secrets.
func showSecrets(p *picture, by Role, _ *http.Request) (any, string, bool) {
	v := newSecretsView(p)
	v.Offers = newOffers(p, by, onSecrets, "")
	return v, "Secrets", true
}

func newSecretsView(p *picture) secretsView {
	if p.secrets == nil {
		return secretsView{}
	}

	l := p.secrets.Value
	v := secretsView{IsKnown: true, Time: p.secrets.Time, Unlisted: l.Unlisted, Error: l.Error}
	for _, h := range l.Secrets {
		if h.Count == 0 {
			continue
		}
		row := secretRow{Held: h, Age: vault.FormatAge(p.time.Sub(h.Since)), Away: "no"}
		if h.Away {
			row.Away = "yes"
		}
		v.Rows = append(v.Rows, row)
	}
	return v
}
