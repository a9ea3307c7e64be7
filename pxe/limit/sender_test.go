package limit

import (
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAddressesAreNotRememberedWithoutEnd(t *testing.T) {
	s := Senders{Every: time.Hour, Burst: 8}
	from := func(addr string) bool {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = addr
		return s.Allow(r)
	}
	for range 8 {
		assert.True(t, from("172.22.0.5:1"))
	}
	assert.False(t, from("172.22.0.5:2"), "another port is the same machine")
	assert.True(t, from("172.22.0.6:1"))
	for n := range 8 {
		assert.True(t, from(fmt.Sprintf("[2001:db8::%d]:1", n)))
	}
	assert.False(t, from("[2001:db8::ffff]:1"), "one network is one machine")
	for n := range 3 * maxSenders {
		from(fmt.Sprintf("10.%d.%d.%d:1", n>>16, n>>8&0xff, n&0xff))
	}
	assert.LessOrEqual(t, len(s.byAddr), maxSenders)
}
