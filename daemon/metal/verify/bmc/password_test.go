package bmc

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/bougou/go-ipmi/pkg/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
)

const other = "Another1Password" // of as many bytes as IPMI stores

func TestAPasswordIsChangedByIPMI(t *testing.T) {
	address, seen := controller(t)
	client := Client{Pins: pins(t)}
	a := client.ChangePassword(t.Context(), asked(address, "a wrong one"), site.NewSecret(other))
	assert.Equal(t, Refused, a.Verdict, a.Text)
	assert.Zero(t, seen(types.PayloadTypeRAKPMessage3), "the message that BMCs count wrong logins by was sent")
	assert.Equal(t, OK, client.Login(t.Context(), asked(address, password)).Verdict)

	a = client.ChangePassword(t.Context(), asked(address, password), site.NewSecret(other+"2"))
	assert.Equal(t, Kept, a.Verdict, a.Text)
	assert.Contains(t, a.Text, "IPMI stores 16 bytes")

	a = client.ChangePassword(t.Context(), asked(address, password), site.NewSecret(other))
	assert.Equal(t, OK, a.Verdict, a.Text)
	assert.Equal(t, OK, client.Login(t.Context(), asked(address, other)).Verdict)
	assert.Equal(t, Refused, client.Login(t.Context(), asked(address, password)).Verdict)
}

// accounts is a BMC with Redfish accounts that answers a PATCH with a status and a body.
func accounts(t *testing.T, resources map[string]string, status int, answer string) (b site.BMC, patched *string) {
	patched = new(string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, p, _ := r.BasicAuth(); p != password {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		body, there := resources[r.URL.RequestURI()]
		switch {
		case !there:
			w.WriteHeader(http.StatusNotFound)
		case r.Method == http.MethodPatch:
			text, _ := io.ReadAll(r.Body)
			*patched = r.URL.Path + " " + r.Header.Get("If-Match") + " " + string(text)
			w.WriteHeader(status)
			fmt.Fprint(w, answer)
		default:
			fmt.Fprint(w, body)
		}
	}))
	t.Cleanup(server.Close)
	return asked(strings.Replace(server.URL, "http://", "redfish+http://", 1)+"/redfish/v1/Systems/1", password), patched
}

func TestAPasswordIsChangedByRedfish(t *testing.T) {
	const service, list = "/redfish/v1/AccountService", "/redfish/v1/AccountService/Accounts"
	refusal := func(message string) string {
		text, err := json.Marshal(map[string]any{"error": map[string]any{"@Message.ExtendedInfo": []any{map[string]any{"Message": message}}}})
		require.NoError(t, err)
		return string(text)
	}
	sound := func() map[string]string {
		return map[string]string{
			"/redfish/v1/":   `{"AccountService": {"@odata.id": "` + service + `"}}`,
			service:          `{"Accounts": {"@odata.id": "` + list + `"}}`,
			list:             `{"Members": [{"@odata.id": "` + list + `/1"}], "Members@odata.nextLink": "` + list + `?skip=1"}`,
			list + "?skip=1": `{"Members": [{"@odata.id": "` + list + `/2"}]}`,
			list + "/1":      `{"UserName": ""}`,
			list + "/2":      `{"UserName": "admin", "@odata.etag": "W/\"5\""}`,
		}
	}
	for name, c := range map[string]struct {
		path, body string // a resource that is another; "" and "": none
		status     int
		answer     string
		want       Verdict
		text       string
	}{
		"it is changed":       {status: 200, want: OK},
		"it will be":          {status: 202, want: OK},
		"no content":          {status: 204, want: OK},
		"policy":              {status: 400, answer: refusal("too simple: " + other), want: Kept, text: "it says 400, too simple: [redacted]"},
		"a long quotation":    {status: 400, answer: refusal(strings.Repeat("x", 195) + other), want: Kept, text: "xxx"},
		"not allowed":         {status: 405, want: Kept, text: "it says 405, and nothing else"},
		"changed meanwhile":   {status: 412, want: Unfit, text: "with 412"},
		"after the change":    {status: 401, want: Unfit, text: "after it had taken the present one"},
		"broken":              {status: 500, want: Unfit, text: "with 500"},
		"busy":                {status: 503, want: Busy},
		"no AccountService":   {path: "/redfish/v1/", body: `{}`, want: Kept, text: "it has no AccountService"},
		"no such account":     {path: list + "/2", body: `{"UserName": "root"}`, want: Kept, text: "it lists no account of that name"},
		"no Redfish":          {path: service, body: `<html>`, want: Kept, text: "no Redfish"},
		"account of another":  {path: list, body: `{"Members": [{"@odata.id": "http://10.9.9.9/redfish/v1/x"}]}`, want: Kept, text: "not its own"},
		"an account that was": {path: list, body: `{"Members": [{"@odata.id": "` + list + `/9"}]}`, want: Kept, text: "with 404"},
	} {
		t.Run(name, func(t *testing.T) {
			resources := sound()
			if c.path != "" {
				resources[c.path] = c.body
			}
			b, patched := accounts(t, resources, c.status, c.answer)
			a := Client{Pins: pins(t)}.ChangePassword(t.Context(), b, site.NewSecret(other))
			assert.Equal(t, c.want, a.Verdict, a.Text)
			assert.Contains(t, a.Text, c.text)
			assert.NotContains(t, a.Text, other[:5], "a password, or a part of it")
			if c.status != 0 {
				assert.Equal(t, list+`/2 W/"5" {"Password":"`+other+`"}`, *patched)
			} else {
				assert.Empty(t, *patched)
			}
		})
	}

	b, patched := accounts(t, sound(), 200, "")
	b.Password = site.NewSecret("wrong")
	a := Client{Pins: pins(t)}.ChangePassword(t.Context(), b, site.NewSecret(other))
	assert.Equal(t, Refused, a.Verdict, a.Text)
	assert.Empty(t, *patched)
}
