package daemon

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/appliance/kube"
)

// wired is what would be served for a document.
func wired(t *testing.T, text string) (*metal, *site.Site) {
	s, problems := site.Load("site.yaml", []byte(text))
	require.Empty(t, problems)
	s = s.WithDefaults()
	m := newMetal(slog.New(slog.DiscardHandler), func() *site.Site { return s }, func() string { return "salt" }, kube.New(kube.Defaults()))
	return m, s
}

func TestWireServesWhatTheSiteSays(t *testing.T) {
	for text, mode := range map[string]string{
		"": "server",
		"networks: {provisioning: {cidr: 10.7.0.0/22, address: 10.7.0.1, mtu: 9000, gateway: 10.7.0.2}}":                                              "server",
		"networks: {provisioning: {dns: ['2001:db8::53', 10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4, 10.0.0.5, 10.0.0.6, 10.0.0.7, 10.0.0.8, 10.0.0.9]}}": "server",
		"networks: {provisioning: {dhcp: {mode: proxy}}}":                                                                                             "proxy",
		"networks: {provisioning: {dhcp: {mode: none}}}":                                                                                              "none",
	} {
		m, s := wired(t, text)
		c := m.bootServicesConfig(s)
		assert.Equal(t, s.Networks.Provisioning.Address, c.Addr)
		assert.Equal(t, "provisioning", c.Interface)
		if mode == "none" {
			assert.Nil(t, c.DHCP, text)
			continue
		}
		d := *c.DHCP
		d.Interface, d.Server, d.HTTP = c.Interface, c.Addr, m.fileURL() // as package server fills them in
		assert.NoError(t, d.Validate(), text)
	}
}

func TestRamdiskOfStrangersIsToldNoDeployment(t *testing.T) {
	m, _ := wired(t, "")
	for _, arg := range m.ramdisk().Args {
		assert.NotContains(t, arg, "ipa-api-url", "with it the agent would ask Ironic for work")
	}
}

func TestPasswordIsHashedTheSameEveryTime(t *testing.T) {
	m, _ := wired(t, "")
	one, err := m.passwordHash("correct horse")
	require.NoError(t, err)
	again, err := m.passwordHash("correct horse")
	require.NoError(t, err)
	assert.Equal(t, one, again)
	assert.NotContains(t, one, "horse")
}
