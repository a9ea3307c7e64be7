package bmc

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
)

func TestTheBMCNamesTheNICToBootFrom(t *testing.T) {
	off := false
	for name, c := range map[string]struct {
		nics  []nic
		heard string
		want  string
	}{
		"none":             {},
		"no MAC":           {nics: []nic{{Link: "LinkUp"}}},
		"the first":        {nics: []nic{{MAC: "52:54:00:00:00:0A"}, {MAC: "52:54:00:00:00:0b"}}, want: "52:54:00:00:00:0a"},
		"with a link":      {nics: []nic{{MAC: "52:54:00:00:00:0a"}, {MAC: "52:54:00:00:00:0b", Link: "LinkUp"}}, want: "52:54:00:00:00:0b"},
		"heard":            {nics: []nic{{MAC: "52:54:00:00:00:0a"}, {MAC: "52:54:00:00:00:0b", Link: "LinkUp"}}, heard: "52:54:00:00:00:0a", want: "52:54:00:00:00:0a"},
		"its permanent":    {nics: []nic{{MAC: "-", Permanent: "52-54-00-00-00-0A"}}, want: "52:54:00:00:00:0a"},
		"switched off":     {nics: []nic{{MAC: "52:54:00:00:00:0a", Enabled: &off}, {MAC: "52:54:00:00:00:0b"}}, want: "52:54:00:00:00:0b"},
		"no Ethernet card": {nics: []nic{{MAC: "00:00:00:00:fe:80:00:00:00:00:00:00:02:00:5e:10:00:00:00:01"}}},
	} {
		got, err := chooseNIC(c.nics, func(mac string) bool { return mac == c.heard })
		assert.Equal(t, c.want, got, name)
		assert.Equal(t, c.want == "", err != nil, name)
	}
}

func TestNICsAreReadByRedfish(t *testing.T) {
	const system = "/redfish/v1/Systems/1"
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		if user, password, _ := r.BasicAuth(); user != "admin" || password != "x" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		switch nics := system + "/EthernetInterfaces"; r.URL.Path {
		case system:
			fmt.Fprintf(w, `{"EthernetInterfaces": {"@odata.id": %q}}`, nics)
		case nics:
			fmt.Fprintf(w, `{"Members": [{"@odata.id": "%[1]s/1"}, {"@odata.id": "%[1]s/2"}]}`, nics)
		case nics + "/1":
			fmt.Fprint(w, `{"MACAddress": "52:54:00:00:00:0A", "LinkStatus": "NoLink"}`)
		case nics + "/2":
			fmt.Fprint(w, `{"MACAddress": "52:54:00:00:00:0B", "LinkStatus": "LinkUp"}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	b := site.BMC{
		Address:  site.BMCAddress(strings.Replace(server.URL, "http://", "redfish+http://", 1) + system),
		Username: "admin",
		Password: site.NewSecret("x"),
	}
	mac, err := Client{Pins: pins(t)}.BootMAC(t.Context(), b, func(string) bool { return false })
	require.NoError(t, err)
	assert.Equal(t, "52:54:00:00:00:0b", mac)
	assert.Len(t, asked, 4)
	b.Password = site.NewSecret("y")
	_, err = Client{Pins: pins(t)}.BootMAC(t.Context(), b, func(string) bool { return false })
	assert.ErrorContains(t, err, "it says 401")
}
