package redfish

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/bmc"
)

// fake is a machine that notes what is done to it. The BMC calls it from one goroutine at a time.
type fake struct {
	on      bool
	broken  bool
	calls   []string
	inDrive string // the content of the disc
}

func (f *fake) did(on bool, what string) error {
	if f.broken {
		return errors.New("there is no memory")
	}
	f.on, f.calls = on, append(f.calls, what)
	return nil
}

func (f *fake) IsOn() bool                   { return f.on }
func (f *fake) SwitchOn(device string) error { return f.did(true, "on "+device) }
func (f *fake) SwitchOff() error             { return f.did(false, "off") }
func (f *fake) ShutDown() error              { return f.did(false, "shut down") }

func (f *fake) Insert(file string) error {
	if f.broken {
		return errors.New("the drive is locked")
	}
	f.inDrive = ""
	if file == "" {
		return nil
	}
	content, err := os.ReadFile(file)
	f.inDrive = string(content)
	return err
}

// client asks a BMC as a program does that does not check its certificate.
type client struct {
	t    *testing.T
	http *http.Client
	base string
	auth func(*http.Request)
}

// start makes a BMC on loopback answer, in dir.
func start(t *testing.T, dir string, m Machine) (*BMC, *client) {
	front, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	mac, err := net.ParseMAC("52:54:00:00:00:01")
	require.NoError(t, err)
	b, err := Start(Config{Name: "node1", Dir: dir, User: "admin", Password: "secret", MACs: []net.HardwareAddr{mac}, UEFI: true, Front: front}, m)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, b.Close()) })
	return b, &client{
		t:    t,
		http: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}},
		base: "https://" + front.Addr().String(),
		auth: func(r *http.Request) { r.SetBasicAuth("admin", "secret") },
	}
}

func (c *client) ask(method, path, body string) (*http.Response, map[string]any) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.base+path, strings.NewReader(body))
	require.NoError(c.t, err)
	if c.auth != nil {
		c.auth(r)
	}
	response, err := c.http.Do(r)
	require.NoError(c.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(c.t, err)
	var said map[string]any
	if len(text) > 0 {
		require.NoError(c.t, json.Unmarshal(text, &said), string(text))
	}
	return response, said
}

// TestOverrides: what a machine starts from, and what is left for its next start.
func TestOverrides(t *testing.T) {
	none := boot{Target: "None", Enabled: "Disabled"}
	for _, c := range []struct {
		boot   boot
		device string
		rest   boot
	}{
		{none, bmc.BootNone, none},
		{boot{"Cd", "Once"}, bmc.BootMedia, none},
		{boot{"Pxe", "Once"}, bmc.BootNetwork, none},
		{boot{"Pxe", "Continuous"}, bmc.BootNetwork, boot{"Pxe", "Continuous"}},
		{boot{"Hdd", "Continuous"}, bmc.BootNone, boot{"Hdd", "Continuous"}},
		{boot{"Cd", "Disabled"}, bmc.BootNone, boot{"Cd", "Disabled"}},
	} {
		device, rest := c.boot.next()
		assert.Equal(t, c.device, device, "%v", c.boot)
		assert.Equal(t, c.rest, rest, "%v", c.boot)
	}
}

func TestChangesOfAnOverride(t *testing.T) {
	was := boot{Target: "Pxe", Enabled: "Once"}
	for _, c := range []struct {
		name, want string
		is         boot
		refused    string
	}{
		{"both", `{"BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": "Continuous"}`, boot{"Cd", "Continuous"}, ""},
		{"target alone", `{"BootSourceOverrideTarget": "Hdd"}`, boot{"Hdd", "Once"}, ""},
		{"enabled alone", `{"BootSourceOverrideEnabled": "Disabled"}`, boot{"Pxe", "Disabled"}, ""},
		{"its own mode", `{"BootSourceOverrideMode": "UEFI"}`, was, ""},
		{"another mode", `{"BootSourceOverrideMode": "Legacy"}`, was, `the value "Legacy" of the property BootSourceOverrideMode is not among UEFI`},
		{"a device that it has not", `{"BootSourceOverrideTarget": "Usb"}`, was, `the value "Usb" of the property BootSourceOverrideTarget is not among None, Hdd, Pxe, Cd`},
		{"no such time", `{"BootSourceOverrideEnabled": "Twice"}`, was, `the value "Twice" of the property BootSourceOverrideEnabled is not among Disabled, Once, Continuous`},
	} {
		var want bootChange
		require.NoError(t, json.Unmarshal([]byte(c.want), &want))
		is, err := was.change(want, modeUEFI)
		assert.Equal(t, c.is, is, c.name)
		if c.refused == "" {
			assert.NoError(t, err, c.name)
		} else {
			assert.EqualError(t, err, c.refused, c.name)
		}
	}
}

// TestTheMachineDoesWhatItsBMCIsTold, and one that is on does not use up what overrides its next start.
func TestTheMachineDoesWhatItsBMCIsTold(t *testing.T) {
	m := &fake{}
	b, c := start(t, t.TempDir(), m)
	power := func() any {
		_, said := c.ask(http.MethodGet, SystemPath+"/", "")
		return said["PowerState"]
	}
	tell := func(button string, code int) {
		response, said := c.ask(http.MethodPost, resetPath, fmt.Sprintf(`{"ResetType": %q}`, button))
		assert.Equal(t, code, response.StatusCode, "%s: %v", button, said)
	}
	assert.Equal(t, "Off", power())
	response, said := c.ask(http.MethodPatch, SystemPath, `{"Boot": {"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}}`)
	assert.Equal(t, http.StatusOK, response.StatusCode)
	assert.Equal(t, "Pxe", said["Boot"].(map[string]any)["BootSourceOverrideTarget"])
	tell("On", http.StatusNoContent)
	assert.Equal(t, "On", power())
	c.ask(http.MethodPatch, SystemPath, `{"Boot": {"BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": "Once"}}`)
	tell("On", http.StatusNoContent)
	tell("ForceRestart", http.StatusNoContent)
	tell("ForceRestart", http.StatusNoContent)
	tell("GracefulShutdown", http.StatusNoContent)
	tell("ForceOff", http.StatusNoContent)
	tell("Nmi", http.StatusBadRequest)
	assert.Equal(t, []string{"on pxe", "off", "on cdrom", "off", "on none", "shut down", "off"}, m.calls)
	assert.Equal(t, []string{"boot Pxe Once", "power On", "boot Cd Once", "power On", "power ForceRestart", "power ForceRestart",
		"power GracefulShutdown", "power ForceOff"}, b.Writes())
	m.broken = true
	response, said = c.ask(http.MethodPost, resetPath, `{"ResetType": "On"}`)
	assert.Equal(t, http.StatusInternalServerError, response.StatusCode)
	assert.Equal(t, "power On: there is no memory", said["error"].(map[string]any)["message"])
}

// TestWhoMayAsk: a password, or a session that it opened; without either only the service root.
func TestWhoMayAsk(t *testing.T) {
	_, c := start(t, t.TempDir(), &fake{})
	login := func(password string) *http.Response {
		response, _ := c.ask(http.MethodPost, sessionsPath, fmt.Sprintf(`{"UserName": "admin", "Password": %q}`, password))
		return response
	}
	basic := c.auth
	c.auth = nil
	assert.Equal(t, http.StatusUnauthorized, login("guess").StatusCode)
	opened := login("secret")
	require.Equal(t, http.StatusCreated, opened.StatusCode)
	token := opened.Header.Get("X-Auth-Token")
	bySession := func(r *http.Request) { r.Header.Set("X-Auth-Token", token) }
	for _, ask := range []struct {
		name string
		auth func(*http.Request)
		path string
		code int
	}{
		{"no one, for the root", nil, rootPath + "/", http.StatusOK},
		{"no one", nil, SystemPath, http.StatusUnauthorized},
		{"a wrong password", func(r *http.Request) { r.SetBasicAuth("admin", "guess") }, SystemPath, http.StatusUnauthorized},
		{"a wrong user", func(r *http.Request) { r.SetBasicAuth("root", "secret") }, SystemPath, http.StatusUnauthorized},
		{"a wrong token", func(r *http.Request) { r.Header.Set("X-Auth-Token", "guess") }, SystemPath, http.StatusUnauthorized},
		{"the password", basic, SystemPath, http.StatusOK},
		{"the session", bySession, SystemPath, http.StatusOK},
		{"another system", basic, systemsPath + "/2", http.StatusNotFound},
	} {
		c.auth = ask.auth
		response, _ := c.ask(http.MethodGet, ask.path, "")
		assert.Equal(t, ask.code, response.StatusCode, ask.name)
	}
	c.auth = bySession
	c.ask(http.MethodDelete, opened.Header.Get("Location"), "")
	response, _ := c.ask(http.MethodGet, SystemPath, "")
	assert.Equal(t, http.StatusUnauthorized, response.StatusCode, "a session that has ended")
}

// TestEveryLinkLeadsToAResource, from the service root on.
func TestEveryLinkLeadsToAResource(t *testing.T) {
	_, c := start(t, t.TempDir(), &fake{})
	seen := map[string]bool{}
	var follow func(any)
	follow = func(value any) {
		switch value := value.(type) {
		case []any:
			for _, v := range value {
				follow(v)
			}
		case map[string]any:
			path, isLink := value["@odata.id"].(string)
			if isLink && !seen[path] {
				seen[path] = true
				response, said := c.ask(http.MethodGet, path, "")
				assert.Equal(t, http.StatusOK, response.StatusCode, path)
				assert.Equal(t, path, said["@odata.id"])
				follow(said)
			}
			for _, v := range value {
				follow(v)
			}
		}
	}
	follow(map[string]any{"@odata.id": rootPath})
	for _, path := range []string{systemPath, nicPath(0), managerPath, drivePath, sessionsPath} {
		assert.True(t, seen[path], path)
	}
	_, said := c.ask(http.MethodGet, nicPath(0), "")
	assert.Equal(t, "52:54:00:00:00:01", said["MACAddress"])
}

// TestADiscIsFetchedAndPutIntoTheDrive, and what cannot be fetched leaves the drive as it was.
func TestADiscIsFetchedAndPutIntoTheDrive(t *testing.T) {
	images := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/absent.iso" {
			http.NotFound(w, r)
			return
		}
		if r.URL.Path == "/torn.iso" {
			w.Header().Set("Content-Length", "1000")
		}
		fmt.Fprint(w, "content of "+r.URL.Path)
	}))
	defer images.Close()
	m, dir := &fake{}, t.TempDir()
	b, c := start(t, dir, m)
	drive := func() map[string]any {
		_, said := c.ask(http.MethodGet, drivePath, "")
		return said
	}
	insert := func(image string) (int, any) {
		response, said := c.ask(http.MethodPost, insertPath, fmt.Sprintf(`{"Image": %q}`, image))
		if said == nil {
			return response.StatusCode, nil
		}
		return response.StatusCode, said["error"].(map[string]any)["message"]
	}
	files := func() int {
		all, err := filepath.Glob(filepath.Join(dir, discFiles))
		require.NoError(t, err)
		return len(all)
	}
	assert.Equal(t, false, drive()["Inserted"])
	assert.Nil(t, drive()["Image"])

	for _, name := range []string{"/one.iso", "/two.iso"} {
		code, said := insert(images.URL + name)
		assert.Equal(t, http.StatusNoContent, code, said)
		assert.Equal(t, "content of "+name, m.inDrive)
		assert.Equal(t, images.URL+name, drive()["Image"])
		assert.Equal(t, strings.TrimPrefix(name, "/"), drive()["ImageName"])
		assert.Equal(t, true, drive()["Inserted"])
		assert.Equal(t, 1, files(), "the disc before is left")
	}

	for image, want := range map[string]string{
		images.URL + "/absent.iso": "404 Not Found",
		images.URL + "/torn.iso":   "unexpected EOF",
		"file:///etc/passwd":       "is no URL of HTTP",
		"http://127.0.0.1:1/x.iso": "connection refused",
	} {
		code, said := insert(image)
		assert.Contains(t, []int{http.StatusBadRequest, http.StatusInternalServerError}, code)
		assert.Contains(t, said, want)
		assert.Equal(t, "content of /two.iso", m.inDrive, "a disc that could not be fetched replaced another")
		assert.Equal(t, 1, files(), image)
	}

	m.broken = true
	_, said := insert(images.URL + "/one.iso")
	assert.Contains(t, said, "the drive is locked")
	assert.Equal(t, images.URL+"/two.iso", drive()["Image"])
	assert.Equal(t, 1, files())
	m.broken = false

	response, _ := c.ask(http.MethodPost, ejectPath, "")
	assert.Equal(t, http.StatusNoContent, response.StatusCode)
	assert.Equal(t, false, drive()["Inserted"])
	assert.Zero(t, files())
	assert.Equal(t, []string{"insert " + images.URL + "/one.iso", "insert " + images.URL + "/two.iso", "eject"}, b.Writes())
}

// TestAnOverrideOutlivesTheBMC, and the button at the front uses it up.
func TestAnOverrideOutlivesTheBMC(t *testing.T) {
	dir := t.TempDir()
	b, c := start(t, dir, &fake{})
	c.ask(http.MethodPatch, SystemPath, `{"Boot": {"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}}`)
	require.NoError(t, b.Close())
	m := &fake{}
	b, _ = start(t, dir, m)
	assert.Equal(t, bmc.BootNetwork, b.Device())
	require.NoError(t, b.PowerOn())
	require.NoError(t, b.PowerOn(), "it is on already")
	assert.Equal(t, []string{"on pxe"}, m.calls)
	assert.Equal(t, bmc.BootNone, b.Device())
	require.NoError(t, b.Close())
	b, _ = start(t, dir, m)
	assert.Equal(t, bmc.BootNone, b.Device(), "it is used up")
}

// TestTheCertificateStays through a restart of the BMC: it is what the appliance knows it by. Another BMC has another.
func TestTheCertificateStays(t *testing.T) {
	shown := func(dir string) []byte {
		b, c := start(t, dir, &fake{})
		response, _ := c.ask(http.MethodGet, rootPath, "")
		require.NoError(t, b.Close())
		return response.TLS.PeerCertificates[0].Raw
	}
	dir := t.TempDir()
	first := shown(dir)
	assert.True(t, bytes.Equal(first, shown(dir)))
	assert.False(t, bytes.Equal(first, shown(t.TempDir())))
}
