package page

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/websocket"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/image/lab/netns"
)

var screenshots = flag.String("screenshots", "", "folder that gets pictures of the pages, as PNG")

// browserHung ends a browser's test that hangs.
const browserHung = 20 * time.Minute

// chromium is Debian's, without a window, driven by the Chrome DevTools Protocol.
type chromium struct {
	t        *testing.T
	conn     *websocket.Conn
	session  string // of the one tab
	last     int
	pictures string // folder that gets them; "": none does
}

func startChromium(ctx context.Context, t *testing.T) *chromium { return startChromiumIn(ctx, t, "") }

// startChromiumIn starts it in a network (package netns); "": that of this process.
func startChromiumIn(ctx context.Context, t *testing.T, network string) *chromium {
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed; apt-get install --no-install-recommends chromium")
	}
	if testing.Short() {
		t.Skip("a browser takes long to start")
	}
	line := []string{program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
		"--disable-dev-shm-usage", "--disable-background-networking", "--ignore-certificate-errors",
		"--user-data-dir=" + t.TempDir(), "--remote-debugging-port=0",
		"--remote-allow-origins=http://127.0.0.1", "about:blank"}
	if network != "" {
		line = append([]string{"nsenter", "--net=" + network}, line...)
	}
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	said, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	ended := make(chan struct{}) // the last of the browser's processes closed its side of the pipe
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-ended // until then they write to the profile, which is removed next
		_ = cmd.Wait()
	})
	address := ""
	for lines := bufio.NewScanner(said); address == "" && lines.Scan(); {
		_, address, _ = strings.Cut(lines.Text(), "DevTools listening on ")
	}
	go func() { _, _ = io.Copy(io.Discard, said); close(ended) }()
	require.NotEmpty(t, address, "chromium did not start")
	conn, err := dialIn(network, address)
	require.NoError(t, err)
	deadline, _ := ctx.Deadline()
	require.NoError(t, conn.SetDeadline(deadline))
	t.Cleanup(func() { conn.Close() })

	c := &chromium{t: t, conn: conn, pictures: *screenshots}
	tab := c.call("Target.createTarget", map[string]any{"url": "about:blank"})
	attached := c.call("Target.attachToTarget", map[string]any{"targetId": tab["targetId"], "flatten": true})
	c.session = attached["sessionId"].(string)
	c.call("Page.enable", nil)
	return c
}

// dialIn connects to a WebSocket in a network; "": that of this process.
func dialIn(network, address string) (conn *websocket.Conn, err error) {
	dial := func() (err error) { conn, err = websocket.Dial(address, "", "http://127.0.0.1"); return err }
	if network == "" {
		err = dial()
		return conn, err
	}
	err = netns.Do(network, dial)
	return conn, err
}

// call sends a command and returns its result.
func (c *chromium) call(method string, params map[string]any) map[string]any {
	c.t.Helper()
	result, problem := c.try(method, params)
	require.Empty(c.t, problem, method)
	return result
}

// try sends a command and returns its result, or what the browser says is wrong.
func (c *chromium) try(method string, params map[string]any) (result map[string]any, problem string) {
	c.t.Helper()
	c.last++
	message := map[string]any{"id": c.last, "method": method, "params": params}
	if c.session != "" {
		message["sessionId"] = c.session
	}
	require.NoError(c.t, websocket.JSON.Send(c.conn, message))
	for {
		var answer struct {
			ID     int
			Result map[string]any
			Error  json.RawMessage
		}
		require.NoError(c.t, websocket.JSON.Receive(c.conn, &answer), method)
		if answer.ID == c.last {
			return answer.Result, string(answer.Error)
		}
	}
}

// value is what an expression is on the page. While the page gives way to another one, it is asked for again.
func (c *chromium) value(expression string) any {
	c.t.Helper()
	params := map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}
	for {
		got, problem := c.try("Runtime.evaluate", params)
		if isLeaving(problem) {
			time.Sleep(50 * time.Millisecond) // the connection has the deadline
			continue
		}
		require.Empty(c.t, problem, expression)
		return got["result"].(map[string]any)["value"]
	}
}

// isLeaving reports whether something was not evaluated because its page was left meanwhile.
func isLeaving(problem string) bool {
	return slices.ContainsFunc([]string{
		"Inspected target navigated or closed", "Execution context was destroyed", "Cannot find default execution context",
	}, func(text string) bool { return strings.Contains(problem, text) })
}

// await waits until an expression holds.
func (c *chromium) await(expression string) {
	c.t.Helper()
	for c.value(expression) != true {
		time.Sleep(50 * time.Millisecond) // the connection has the deadline
	}
}

func (c *chromium) open(url string) {
	c.t.Helper()
	for c.call("Page.navigate", map[string]any{"url": url})["errorText"] != nil {
		time.Sleep(50 * time.Millisecond) // a busy machine was too slow for the server; the connection has the deadline
	}
	c.await(fmt.Sprintf("location.href === %q && document.readyState === 'complete'", url))
}

// logIn follows the link of a log-in, by keyboard. before is done on its page, if it is not nil.
func (c *chromium) logIn(s *Server, url string, role Role, before func()) {
	c.t.Helper()
	code, _ := s.logins.mint(ann(role))
	c.follow(LoginURL(url+"/", code), before)
}

// follow is logIn by a link that there is.
func (c *chromium) follow(link string, before func()) {
	c.t.Helper()
	c.open(link)
	if before != nil {
		before()
	}
	c.value("document.querySelector('button').focus()")
	c.press("Enter", 13)
	c.await("location.pathname === '/' && document.readyState === 'complete'")
}

// press presses and lets go of a key.
func (c *chromium) press(key string, code int) {
	c.t.Helper()
	for _, kind := range []string{"keyDown", "keyUp"} {
		params := map[string]any{"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code}
		if key == "Enter" && kind == "keyDown" {
			params["text"] = "\r"
		}
		c.call("Input.dispatchKeyEvent", params)
	}
}

// size sets the window, and whether the person likes it dark.
func (c *chromium) size(width, height int, scheme string) {
	c.t.Helper()
	c.call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
	})
	c.call("Emulation.setEmulatedMedia", map[string]any{
		"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}},
	})
}

// picture writes a PNG of the window, if they are asked for.
func (c *chromium) picture(name string) {
	c.t.Helper()
	if c.pictures == "" {
		return
	}
	shot := c.call("Page.captureScreenshot", map[string]any{"format": "png"})
	b, err := base64.StdEncoding.DecodeString(shot["data"].(string))
	require.NoError(c.t, err)
	require.NoError(c.t, os.WriteFile(filepath.Join(c.pictures, name+".png"), b, 0o644))
}

// TestABrowserFollowsTheAppliance logs in by the link and the keyboard alone, and sees the rack change without a
// load: focus and what is unfolded stay. The end of the session leads to the log-in.
func TestABrowserFollowsTheAppliance(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), browserHung)
	defer cancel()
	of := rack(10)
	s := newServer(t, of)
	var mu sync.Mutex
	document, why := s.sources.Document, s.sources.Why
	s.sources.Document = func() status.Document { mu.Lock(); defer mu.Unlock(); return document() }
	s.sources.Why = func() []status.Node { mu.Lock(); defer mu.Unlock(); return why() }
	change := func(do func()) { mu.Lock(); defer mu.Unlock(); do() }

	c := startChromium(ctx, t)
	url, _ := serveAlone(t, s)
	c.size(1200, 900, "light")
	c.logIn(s, url, Viewer, func() { c.picture("login") })
	c.await("document.getElementById('live').textContent === 'This page is live.'")
	assert.Equal(t, "", c.value("document.cookie"), "no script reads the session")
	c.picture("rack")

	c.value("window.marked = true; document.querySelector('#node-node-001 a').focus()")
	stuck := of.doc.Nodes[0]
	change(func() {
		of.doc.Nodes[1].Percent = 99
		of.doc.Nodes[1].Why = "is being verified"
		of.doc.Nodes[0].Next, of.doc.Nodes[0].Why = "", "its BMC answers"
	})
	c.await("document.querySelector('#node-node-001 .why').textContent.startsWith('is being verified')")
	assert.EqualValues(t, 99, c.value("document.querySelector('#node-node-001 progress').value"))
	c.await("document.getElementById('needs-you') === null")
	assert.Equal(t, "on-their-way", c.value("document.getElementById('node-node-000').closest('section').id"))
	assert.Equal(t, "/nodes/node-001", c.value("document.activeElement.getAttribute('href')"), "focus stays")
	assert.Equal(t, true, c.value("window.marked"), "the page was not loaded again")
	assert.Equal(t, "Rack: Needs you: cluster lab; component default/sriov-operator · firstlight-ab12", c.value("document.title"))

	change(func() { of.doc.Nodes[1].Next = "Look at it." })
	c.await("document.activeElement.closest('section') && document.activeElement.closest('section').id === 'needs-you'")
	assert.Equal(t, "/nodes/node-001", c.value("document.activeElement.getAttribute('href')"), "focus follows")

	c.press("Enter", 13)
	c.await("location.pathname === '/nodes/node-001' && document.readyState === 'complete'")
	c.picture("node")
	change(func() { of.doc.Nodes[0] = stuck })
	c.open(url + "/nodes/node-000")
	c.await("document.querySelector('#main .level').textContent === 'Needs you'")
	c.picture("stuck")
	for _, path := range []string{"discovered", "clusters", "uploads", "site", "appliance"} {
		c.open(url + "/" + path)
		c.picture(path)
	}
	c.value("document.querySelector('details').open = true; document.querySelector('summary').focus()")
	change(func() { of.doc.Notes = []string{"The clock was set."} })
	c.await("document.getElementById('notes').textContent.includes('The clock was set.')")
	assert.Equal(t, true, c.value("document.querySelector('details').open"), "what is unfolded stays")
	assert.Equal(t, "SUMMARY", c.value("document.activeElement.tagName"))

	c.press("Tab", 9)
	for _, scheme := range []string{"light", "dark"} {
		c.size(390, 844, scheme)
		c.open(url + "/")
		assert.Equal(t, true, c.value("document.documentElement.scrollWidth <= innerWidth"), "a phone shows its whole width")
		c.picture("phone-" + scheme)
	}
	c.value("document.activeElement.blur()")
	c.press("Tab", 9)
	assert.Equal(t, "#main", c.value("document.activeElement.getAttribute('href')"), "the first key leads past the header")

	s.logins.mu.Lock()
	for key := range s.logins.sessions {
		s.logins.end(key)
	}
	s.logins.mu.Unlock()
	c.await("location.pathname === '/login'")
}
