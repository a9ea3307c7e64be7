package bmc

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/assets/site"
)

func TestADriveForDiscsIsLookedForAsIronicDoes(t *testing.T) {
	const system, manager = "/redfish/v1/Systems/1", "/redfish/v1/Managers/1"
	const managed = `{"Links": {"ManagedBy": [{"@odata.id": "/redfish/v1/Managers/1"}]}}`
	list := func(of string) string { return fmt.Sprintf(`{"VirtualMedia": {"@odata.id": "%s/VirtualMedia"}}`, of) }
	members := func(of string) string {
		return fmt.Sprintf(`{"Members": [{"@odata.id": "%[1]s/1"}, {"@odata.id": "%[1]s/2"}]}`, of)
	}
	for name, x := range map[string]struct {
		resources map[string]string
		want      string
	}{
		"the manager has one": {map[string]string{
			system: managed, manager: list(manager), manager + "/VirtualMedia": members(manager + "/VirtualMedia"),
			manager + "/VirtualMedia/1": `{"MediaTypes": ["Floppy", "USBStick"]}`, manager + "/VirtualMedia/2": `{"MediaTypes": ["CD", "DVD"]}`,
		}, ""},
		"the system has one": {map[string]string{
			system: list(system), system + "/VirtualMedia": members(system + "/VirtualMedia"), system + "/VirtualMedia/1": `{"MediaTypes": ["DVD"]}`,
		}, ""},
		"for sticks alone": {map[string]string{
			system: managed, manager: list(manager), manager + "/VirtualMedia": `{"Members": [{"@odata.id": "/redfish/v1/Managers/1/VirtualMedia/1"}]}`,
			manager + "/VirtualMedia/1": `{"MediaTypes": ["USBStick"]}`,
		}, ErrNoDrive.Error()},
		"a manager without":      {map[string]string{system: managed, manager: `{}`}, ErrNoDrive.Error()},
		"nothing manages it":     {map[string]string{system: `{}`}, ErrNoDrive.Error()},
		"no licence to see them": {map[string]string{system: managed, manager: list(manager)}, "/VirtualMedia: it says 404"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if user, password, _ := r.BasicAuth(); user != "admin" || password != "x" {
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				text, ok := x.resources[r.URL.Path]
				if !ok {
					w.WriteHeader(http.StatusNotFound)
				}
				fmt.Fprint(w, text)
			}))
			defer server.Close()
			b := site.BMC{
				Address:  site.BMCAddress("redfish-virtualmedia+http://" + strings.TrimPrefix(server.URL, "http://") + system),
				Username: "admin", Password: site.NewSecret("x"),
			}
			err := Client{}.CheckDrive(t.Context(), b)
			if x.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, x.want)
		})
	}
}
