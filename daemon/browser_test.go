package daemon

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/appliance/audit"
	"firstlight.dev/firstlight/daemon/page"
)

var input = regexp.MustCompile(`<input [^>]*name="(\w+)" value="([^"]*)"`)

// refusesToActWithoutKubernetes: an operator logs in to the page of the appliance and has the site reloaded, which
// nobody may while no API server says that he may; and both are in the audit log.
func (b *boxed) refusesToActWithoutKubernetes() {
	login, err := b.client.Login(b.t.Context(), "operator", "ann@laptop")
	require.NoError(b.t, err)
	_, err = b.client.Login(b.t.Context(), "root", "ann@laptop")
	require.ErrorContains(b.t, err, "use viewer, operator or owner")

	jar, err := cookiejar.New(nil)
	require.NoError(b.t, err)
	browser := http.Client{Timeout: time.Minute, Jar: jar, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	read := func(r *http.Response, err error) string {
		require.NoError(b.t, err)
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		require.NoError(b.t, err)
		return string(text)
	}
	// answer opens a page and sends its last form as it is.
	answer := func(at string) string {
		form := url.Values{}
		for _, field := range input.FindAllStringSubmatch(read(browser.Get(at)), -1) {
			form.Set(field[1], field[2])
		}
		return read(browser.PostForm(at, form))
	}

	at := login.URLs[0]
	require.Contains(b.t, answer(page.LoginURL(at, login.Code)), "operator ann@laptop")
	shown := answer(at + "appliance/reload")
	assert.Contains(b.t, shown, `id="title">Appliance<`)
	assert.Contains(b.t, shown, "API server does not answer, so nobody&#39;s rights are known")

	var done []string
	entries, err := audit.Read([]string{audit.PageFile}, time.Time{})
	require.NoError(b.t, err)
	for _, e := range entries {
		assert.Equal(b.t, "firstlight:ann@laptop", e.User)
		done = append(done, e.Verb+" "+http.StatusText(int(e.Code)))
	}
	assert.Equal(b.t, []string{"login OK", "reload Service Unavailable"}, done)
}
