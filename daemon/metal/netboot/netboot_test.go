package netboot

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/appliance/metrics"
	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/server"
)

// wired is what would be served for a document.
func wired(t *testing.T, text string) (*Server, *site.Site) {
	s, problems := site.Load("site.yaml", []byte(text))
	require.Empty(t, problems)
	s = s.WithDefaults()
	return &Server{
		Log:     slog.New(slog.DiscardHandler),
		Site:    func() *site.Site { return s },
		Metrics: &metrics.Parts{},
		Booter:  func() pxe.Booter { return nil },
	}, s
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
		c := m.config(s)
		assert.Equal(t, s.Networks.Provisioning.Address, c.Addr)
		assert.Equal(t, "provisioning", c.Interface)
		if mode == "none" {
			assert.Nil(t, c.DHCP, text)
			continue
		}
		d := *c.DHCP
		d.Interface, d.Server, d.HTTP = c.Interface, c.Addr, m.FileURL() // as package server fills them in
		assert.NoError(t, d.Validate(), text)
	}
}

// What others have served comes before the root, which holds everything else.
func TestMountsOfOthersComeFirst(t *testing.T) {
	s, of := wired(t, "")
	s.Mounts = []server.Mount{{Path: "/debian/pool/"}}
	var paths []string
	for _, m := range s.config(of).Mounts {
		paths = append(paths, m.Path)
	}
	assert.Equal(t, []string{"/debian/pool/", "/images/", "/ramdisk/", "/"}, paths)
}
