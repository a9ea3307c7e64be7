package agentgate

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	mac   = "52:54:00:00:00:01"
	uuid  = "5a0b9f3e-0000-4000-8000-000000000001"
	other = "5a0b9f3e-0000-4000-8000-000000000002"
)

var (
	own      = netip.MustParseAddr("172.22.0.10")
	stranger = netip.MustParseAddr("172.22.0.66")
)

func TestDecide(t *testing.T) {
	boot := &Boot{MAC: mac, Addr: own, Host: "node1", UUID: uuid}
	early := &Boot{MAC: mac, Addr: own, Host: "node1"}
	unknown := &Boot{MAC: mac, Addr: own}
	host := &Host{Name: "node1", UUID: uuid}
	lookup := Request{"GET", "/v1/lookup", own}
	beat := Request{"POST", "/v1/heartbeat/" + uuid, own}
	post := Request{"POST", "/v1/continue_inspection", own}
	for name, c := range map[string]struct {
		q    Request
		v    View
		want Route
		not  Reason
	}{
		"versions":  {Request{"GET", "/", own}, View{Boot: boot, Host: host, Current: true}, RouteVersions, ""},
		"lookup":    {lookup, View{Boot: boot, Host: host, Current: true}, RouteLookup, ""},
		"heartbeat": {beat, View{Boot: boot, Host: host, Current: true}, RouteHeartbeat, ""},
		"inventory": {post, View{Boot: boot, Host: host, Current: true}, RouteInventory, ""},

		"of a boot from before the daemon started, whose hosts are not read yet": {beat, View{Boot: boot}, RouteHeartbeat, ""},
		"of a boot that was earlier than Ironic's node":                          {beat, View{Boot: early, Host: host, Current: true}, RouteHeartbeat, ""},
		"before Ironic has a node":                                               {lookup, View{Boot: early, Host: &Host{Name: "node1"}, Current: true}, 0, ReasonNotYet},
		"from a new address of its NIC":                                          {Request{"GET", "/v1/lookup", stranger}, View{Boot: boot, Lease: mac, Host: host, Current: true}, RouteLookup, ""},

		"no token":                                        {lookup, View{Host: host, Current: true}, 0, ReasonNoBoot},
		"no token, inventory":                             {post, View{Host: host, Current: true}, 0, ReasonNoBoot},
		"another's token":                                 {Request{"GET", "/v1/lookup", stranger}, View{Boot: boot, Host: host, Current: true}, 0, ReasonAddress},
		"another's token, from a leased address":          {Request{"GET", "/v1/lookup", stranger}, View{Boot: boot, Lease: "52:54:00:00:00:66", Host: host, Current: true}, 0, ReasonAddress},
		"the rest of the API":                             {Request{"GET", "/v1/nodes", own}, View{Boot: boot, Host: host, Current: true}, 0, ReasonRoute},
		"a node's inventory":                              {Request{"GET", "/v1/continue_inspection", own}, View{Boot: boot, Host: host, Current: true}, 0, ReasonRoute},
		"a lookup by another method":                      {Request{"POST", "/v1/lookup", own}, View{Boot: boot, Host: host, Current: true}, 0, ReasonRoute},
		"dots":                                            {Request{"GET", "/v1/lookup/../nodes", own}, View{Boot: boot, Host: host, Current: true}, 0, ReasonRoute},
		"a host in service":                               {lookup, View{Boot: boot, Host: &Host{Name: "node1", UUID: uuid, InService: true}, Current: true}, 0, ReasonInService},
		"a host that is gone":                             {beat, View{Boot: boot, Current: true}, 0, ReasonNoHost},
		"its MAC is another host's now":                   {beat, View{Boot: boot, Host: &Host{Name: "node2", UUID: uuid}, Current: true}, 0, ReasonNoHost},
		"registered again since":                          {lookup, View{Boot: boot, Host: &Host{Name: "node1", UUID: other}, Current: true}, 0, ReasonNode},
		"a heartbeat for another node":                    {Request{"POST", "/v1/heartbeat/" + other, own}, View{Boot: boot, Host: host, Current: true}, 0, ReasonNode},
		"a heartbeat for no node":                         {Request{"POST", "/v1/heartbeat/", own}, View{Boot: boot, Host: host, Current: true}, 0, ReasonNode},
		"an unknown machine posts":                        {post, View{Boot: unknown, Current: true}, RouteInventory, ""},
		"an unknown machine asks for a token":             {lookup, View{Boot: unknown, Current: true}, 0, ReasonUnknown},
		"an unknown machine calls":                        {beat, View{Boot: unknown, Current: true}, 0, ReasonUnknown},
		"booted as unknown, and a host has its MAC since": {lookup, View{Boot: unknown, Host: host, Current: true}, 0, ReasonUnknown},
	} {
		route, refusal := Decide(c.q, c.v)
		assert.Equal(t, c.want, route, name)
		if c.not == "" {
			assert.Nil(t, refusal, name)
		} else if assert.NotNil(t, refusal, name) {
			assert.Equal(t, c.not, refusal.Reason, name)
			assert.NotEmpty(t, refusal.Sentence(), name)
		}
	}
}

func TestHeartbeatsCallBackToTheCallerAlone(t *testing.T) {
	for callback, ok := range map[string]bool{
		"https://172.22.0.10:9999":              true,
		"http://172.22.0.10:9999":               false,
		"https://172.22.0.66:9999":              false,
		"https://172.22.0.10:9999@172.22.0.66/": false,
		"https://172.22.0.10@172.22.0.66:9999":  false,
		"https://172.22.0.10:9999/../x":         false,
		"https://172.22.0.101:9999":             false,
		"":                                      false,
	} {
		said, err := parseObject([]byte(`{"callback_url": "` + callback + `"}`))
		require.NoError(t, err)
		assert.Equal(t, ok, checkHeartbeat(said, own) == nil, callback)
	}
	said := map[string]any{"callback_url": "https://[fd00:22::a]:9999"}
	assert.Nil(t, checkHeartbeat(said, netip.MustParseAddr("fd00:22::a")))
	assert.NotNil(t, checkHeartbeat(said, netip.MustParseAddr("fd00:22::b")))
}

func TestInventoriesAreOfTheirMachine(t *testing.T) {
	owner := func(mac string) string {
		return map[string]string{"52:54:00:00:00:02": "node2", "52:54:00:00:00:01": "node1"}[mac]
	}
	boot := Boot{MAC: mac, Addr: own, Host: "node1"}
	for body, want := range map[string]Reason{
		`{"inventory": {"interfaces": [{"mac_address": "52:54:00:00:00:01"}]}}`:                                       "",
		`{"inventory": {"interfaces": [{"mac_address": "52:54:00:00:00:0A"}, {"mac_address": "52:54:00:00:00:01"}]}}`: "",
		`{"inventory": {"interfaces": [{"mac_address": "52:54:00:00:00:01"}, {"mac_address": "52:54:00:00:00:02"}]}}`: ReasonNode,
		`{"inventory": {"interfaces": [{"mac_address": "52:54:00:00:00:02"}]}}`:                                       ReasonNode,
		`{"inventory": {"interfaces": [{"MAC_ADDRESS": "52:54:00:00:00:01", "mac_address": "52:54:00:00:00:02"}]}}`:   ReasonNode,
		`{"Inventory": {"interfaces": [{"mac_address": "52:54:00:00:00:01"}]}, "inventory": {"interfaces": []}}`:      ReasonNode,
		`{}`:                                   ReasonNode,
		`{"inventory": 7}`:                     ReasonNode,
		`{"inventory": {"interfaces": [[7]]}}`: ReasonNode,
	} {
		said, err := parseObject([]byte(body))
		require.NoError(t, err)
		refusal := checkInventory(said, boot, owner)
		if want == "" {
			assert.Nil(t, refusal, body)
		} else if assert.NotNil(t, refusal, body) {
			assert.Equal(t, want, refusal.Reason, body)
		}
	}
	for _, body := range []string{"", "[]", "null", "{} {}", "{", `"x"`} {
		_, err := parseObject([]byte(body))
		assert.Error(t, err, body)
	}
}
