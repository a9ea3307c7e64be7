package page

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/artifact"
)

// choose puts a file into an input, as a person does by the browser's own dialog.
func (c *chromium) choose(selector, file string) {
	c.t.Helper()
	document := c.call("DOM.getDocument", nil)["root"].(map[string]any)["nodeId"]
	node := c.call("DOM.querySelector", map[string]any{"nodeId": document, "selector": selector})
	c.call("DOM.setFileInputFiles", map[string]any{"nodeId": node["nodeId"], "files": []string{file}})
}

// TestABrowserUploads: a file of several pieces, on a phone, with connections that get lost, and once more after the
// page was loaded again in the middle.
func TestABrowserUploads(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), browserHung)
	defer cancel()
	c := startChromium(ctx, t)
	r := newFixture(t)
	u := newUploads(t, r)
	base, _ := serveAlone(t, r.Server)
	content := make([]byte, 20<<20+4711)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(content)
	sum := sha256.Sum256(content)
	file := filepath.Join(t.TempDir(), "my tool 1.0.deb")
	require.NoError(t, os.WriteFile(file, content, 0o600))

	c.size(390, 844, "dark")
	code, _ := r.logins.mint(ann(Operator))
	c.open(LoginURL(base+"/", code))
	c.value("document.querySelector('button').focus()")
	c.press("Enter", 13)
	c.await("location.pathname === '/' && document.readyState === 'complete'")
	c.open(base + "/uploads")
	c.await("document.getElementById('upload-form').hidden === false")
	assert.Equal(t, true, c.value("document.documentElement.scrollWidth <= innerWidth"), "a phone shows its whole width")

	begin := func() {
		c.choose("#upload-file", file)
		c.value("document.getElementById('upload-kind').value = 'binary_images'; " +
			"document.getElementById('upload-owner').value = 'alpha'; document.getElementById('upload-cluster').value = 'beta'; " +
			"document.querySelector('#upload-form button').focus()")
		c.press("Enter", 13)
	}
	// The first piece arrives, and the ones after it do not until the page is loaded again.
	u.lose(1)
	begin()
	assert.Equal(t, "my-tool-1.0.deb", c.value("document.getElementById('upload-name').value"))
	c.await("document.getElementById('upload-state').textContent.includes('Trying again from 8.4 MB')")
	c.picture("upload-lost-phone")
	c.value("window.scrollTo(0, document.body.scrollHeight)")
	key := artifact.Key{Collection: artifact.Binary, Owner: "alpha", Cluster: "beta", Name: "my-tool-1.0.deb"}
	have, err := u.agent.Store().Get(key)
	require.NoError(t, err)
	assert.EqualValues(t, 8<<20, have.ImageOffset)

	u.lose(1000)
	c.value("document.getElementById('upload-stop').click()")
	c.await("document.getElementById('upload-state').textContent.startsWith('It is stopped.')")
	c.open(base + "/uploads?")
	c.await("document.getElementById('upload-state').textContent.includes('was interrupted. Choose the same file')")
	before := u.pieces.Load()
	begin()
	c.await("document.getElementById('upload-state').textContent.includes('is complete, and the appliance found the same sha256')")
	c.picture("upload-done-phone")
	assert.EqualValues(t, 2, u.pieces.Load()-before, "what was there is not sent again")
	assert.Equal(t, "sha256 "+hex.EncodeToString(sum[:]), c.value("document.getElementById('upload-sum').textContent"))
	have, got := u.content(key)
	assert.Equal(t, hex.EncodeToString(sum[:]), have.SHA256)
	assert.True(t, bytes.Equal(content, got))

	// What the API refuses is shown in its words; what is there is not sent again.
	begin()
	c.await("document.getElementById('upload-state').textContent.includes('is complete')")
	assert.EqualValues(t, 2, u.pieces.Load()-before)
	c.value("document.getElementById('upload-owner').value = 'No Label'; document.querySelector('#upload-form button').click()")
	c.await("document.getElementById('upload-state').textContent.includes('is not a DNS label')")
	assert.Equal(t, "error", c.value("document.getElementById('upload-state').className"))
}
