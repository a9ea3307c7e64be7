package scenario_test

import (
	"strings"

	"github.com/stretchr/testify/assert"
)

// checkCounts holds what the strangers were refused to what each of them must have tried.
func (s *strangers) checkCounts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.t.Logf("refused, and answered beside: %v", s.counts)
	s.t.Logf("of the appliance's searches for other DHCP servers they answered %d", s.probes.Load())
	for _, what := range []string{
		"no token", "a made-up token", "a stolen token", "a stolen token of an agent from provisioning",
		"another's script from provisioning", "another's script from baremetal",
		"files of the appliance from provisioning", "files of the appliance from baremetal",
		"writing to the registry from provisioning", "writing to the registry from baremetal",
		"wrong tokens from provisioning", "wrong tokens from baremetal",
		"uploads without a token from provisioning", "uploads without a token from baremetal",
		"objects of S3 from provisioning", "objects of S3 from baremetal",
		"the page from baremetal",
		"connections opened from provisioning", "connections opened from baremetal", "offers of addresses on provisioning",
	} {
		assert.Positive(s.t, s.counts[what], what)
	}

	asked, answered := s.counts["the right token asked"], s.counts["the right token answered"]
	assert.Greater(s.t, 2*answered, asked, "beside wrong tokens a right one is of no use")
	assert.Positive(s.t, s.bmc.connections.Load(), "the BMC that somebody poses as was not asked")
	s.bmc.mu.Lock()
	defer s.bmc.mu.Unlock()
	s.t.Logf("what poses as a BMC had %d connections and was told %d bytes", s.bmc.connections.Load(), s.bmc.told.Len())
	assert.NotContains(s.t, s.bmc.told.String(), posedPassword, "what poses as a BMC heard its password")
	assert.NotContains(s.t, s.bmc.told.String(), "Authorization", "what poses as a BMC heard a password")
}

// checkLog holds the daemon's log to what a storm of requests may leave in it: a few of them.
func (s *strangers) checkLog() {
	text := s.d.Sandbox.UnitLog("firstlightd.service")
	lines, all := strings.Count(text, stormWord), int(s.storms.Load())
	s.t.Logf("%d requests of storms are %d lines in a log of %d KiB", all, lines, len(text)>>10)
	assert.Positive(s.t, lines, "a storm is not told at all")
	assert.Greater(s.t, all, stormRequests/2, "there was no storm")
	assert.Less(s.t, 2*lines, all, "a storm fills the log")
}
