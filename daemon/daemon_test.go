package daemon

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/assets/carrier"
	"firstlight.dev/firstlight/assets/status"
)

func TestTheScreenSaysWhereToLogIn(t *testing.T) {
	d := status.Document{State: status.StateReady, Launch: status.Launch{State: status.LaunchNothing}}
	assert.NotContains(t, nextAction(d, carrier.Carrier{}, true), "Log in")
	d.Addresses = []status.Address{{Role: "provisioning", Addresses: []string{"172.22.0.1/24"}}, {Role: "baremetal"}}
	assert.Equal(t, "Log in: ssh root@172.22.0.1", nextAction(d, carrier.Carrier{}, true), "there is no page on provisioning")
	d.Addresses[1].Addresses, d.Page = []string{"10.10.110.20/24"}, "https://10.10.110.20/"
	assert.Equal(t, "Log in: ssh root@10.10.110.20; page: https://10.10.110.20/", nextAction(d, carrier.Carrier{}, true))
}

func TestRestartsAreSparseOnlyForWhatDoesNotComeUp(t *testing.T) {
	for _, c := range []struct{ before, ran, pause time.Duration }{
		{0, 0, time.Second},
		{0, time.Hour, time.Second},
		{time.Second, 0, 2 * time.Second},
		{32 * time.Second, time.Second, time.Minute},
		{time.Minute, time.Second, time.Minute},
		{time.Minute, time.Minute, time.Minute},
		{time.Minute, time.Minute + 1, time.Second},
		{time.Minute, 30 * 24 * time.Hour, time.Second},
	} {
		assert.Equal(t, c.pause, restartDelay(c.before, c.ran), "after %s, having run for %s", c.before, c.ran)
	}
}
