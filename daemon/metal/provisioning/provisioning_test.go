package provisioning

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/assets/site"
)

func TestRamdiskOfUnknownMachinesIsToldNoDeployment(t *testing.T) {
	s := (&site.Site{}).WithDefaults()
	p := New(Deps{Log: slog.New(slog.DiscardHandler), Site: func() *site.Site { return s }})
	for _, arg := range p.Ramdisk().Args {
		assert.NotContains(t, arg, "ipa-api-url", "with it the agent would ask Ironic for work")
	}
}
