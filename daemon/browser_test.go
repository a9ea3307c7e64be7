package daemon

import (
	"net/http"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/appliance/audit"
	"firstlight.dev/firstlight/daemon/page"
	"firstlight.dev/firstlight/image/lab/testbed/browser"
)

// refusesToActWithoutKubernetes: an operator logs in to the page of the appliance and has the site reloaded, which
// nobody may while no API server says that he may; and both are in the audit log.
func (b *boxed) refusesToActWithoutKubernetes() {
	login, err := b.client.Login(b.t.Context(), "operator", "ann@laptop")
	require.NoError(b.t, err)
	_, err = b.client.Login(b.t.Context(), "root", "ann@laptop")
	require.ErrorContains(b.t, err, "use viewer, operator or owner")

	ann, err := browser.New(nil)
	require.NoError(b.t, err)
	shown, err := ann.Answer(b.t.Context(), page.LoginURL(login.URLs[0], login.Code), nil)
	require.NoError(b.t, err)
	require.Contains(b.t, shown, "operator ann@laptop")
	shown, err = ann.Answer(b.t.Context(), login.URLs[0]+"appliance/reload", nil)
	require.NoError(b.t, err)
	assert.Contains(b.t, shown, `id="title">Appliance<`)
	assert.Contains(b.t, shown, "API server does not answer, so nobody&#39;s rights are known")

	shown, err = ann.Open(b.t.Context(), login.URLs[0]+"numbers")
	require.NoError(b.t, err)
	assert.Contains(b.t, shown, `<th scope="row">Memory in use</th>`)
	shown, err = ann.Open(b.t.Context(), login.URLs[0]+"updates")
	require.NoError(b.t, err)
	assert.Contains(b.t, shown, "Not shown: the appliance&#39;s API server does not answer")

	var done []string
	entries, err := audit.Read([]string{audit.PageFile}, time.Time{})
	require.NoError(b.t, err)
	for _, e := range entries {
		assert.Equal(b.t, "firstlight:ann@laptop", e.User)
		done = append(done, e.Verb+" "+http.StatusText(int(e.Code)))
	}
	assert.Equal(b.t, []string{"login OK", "reload Service Unavailable"}, done)
}
