package noderuntime

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	floating = netip.MustParseAddr("172.22.0.100")
	lower    = netip.MustParseAddr("172.22.0.11")
	higher   = netip.MustParseAddr("172.22.0.12")
)

func TestNextStepOfAnElection(t *testing.T) {
	begin := time.Unix(1000, 0)
	at := func(d time.Duration) time.Time { return begin.Add(d) }
	for name, c := range map[string]struct {
		e    election
		at   time.Duration
		want step
	}{
		"its server does not answer":                {election{self: lower}, time.Hour, stepWait},
		"it has not listened for long enough":       {election{self: lower, healthy: true}, 3 * time.Second, stepWait},
		"nobody has it":                             {election{self: lower, healthy: true}, 4 * time.Second, stepTake},
		"the node with the higher address first":    {election{self: netip.MustParseAddr("172.22.0.255"), healthy: true}, 3 * time.Second, stepTake},
		"another has it":                            {election{self: higher, healthy: true, holder: lower}, time.Second, stepWait},
		"another gives it up":                       {election{self: lower, healthy: true, holder: higher, resigns: true}, time.Second, stepTake},
		"and its own server does not answer":        {election{self: lower, holder: higher, resigns: true}, time.Second, stepWait},
		"it says so every second":                   {election{self: lower, healthy: true, holding: true, saidAt: begin}, time.Second, stepAdvertise},
		"and no more often":                         {election{self: lower, healthy: true, holding: true, saidAt: begin}, time.Second / 2, stepWait},
		"its server has died":                       {election{self: lower, holding: true, saidAt: begin}, time.Second, stepOffer},
		"it offers no more often than every second": {election{self: lower, holding: true, saidAt: begin}, time.Second / 2, stepWait},
		"another has taken what it offered":         {election{self: higher, holding: true, holder: lower, saidAt: begin}, time.Second / 4, stepYield},
		"another offers it, too":                    {election{self: lower, holding: true, holder: higher, resigns: true, saidAt: begin}, time.Second, stepOffer},
		"two have it, the other's is higher":        {election{self: lower, healthy: true, holding: true, holder: higher, saidAt: begin}, time.Second / 4, stepYield},
		"two have it, its own is higher":            {election{self: higher, healthy: true, holding: true, holder: lower, saidAt: begin}, time.Second / 4, stepWait},
		"one that had it before is heard no more":   {election{self: lower, healthy: true, holding: true, holder: higher, saidAt: begin}, time.Second, stepAdvertise},
		"one that gave it up does not take it back": {election{self: lower, healthy: true, holding: true, holder: higher, resigns: true, saidAt: begin}, time.Second / 4, stepWait},
	} {
		c.e.heardAt = begin
		assert.Equal(t, c.want, c.e.next(at(c.at)), name)
	}
}

func TestARepeatedOfferIsTakenAsSoonAsTheFirst(t *testing.T) {
	begin := time.Unix(1000, 0)
	e := election{self: lower, healthy: true, heardAt: begin}
	e.hear(advert{higher, priorityEqual}, begin)
	for at := time.Duration(0); at < time.Second; at += time.Second / 4 {
		e.hear(advert{higher, priorityResigned}, begin.Add(at))
		require.Equal(t, stepWait, e.next(begin.Add(at)), at)
	}
	assert.Equal(t, stepTake, e.next(begin.Add(time.Second)))

	e.hear(advert{higher, priorityEqual}, begin.Add(time.Second))
	assert.Equal(t, stepWait, e.next(begin.Add(time.Second)), "it is not offered any more")
}

// packet is a message as it arrives.
func packet(from netip.Addr, ttl byte, message []byte) []byte {
	header := make([]byte, ipv4Length)
	header[0], header[8], header[9] = 0x45, ttl, protocolVRRP
	copy(header[12:], from.AsSlice())
	copy(header[16:], vrrpGroup[:])
	return append(header, message...)
}

func TestAdvertisements(t *testing.T) {
	// RFC 9568, section 5.1: version and type, router, priority, one address; every 100 hundredths; checksum; address.
	message := encodeAdvert(floating, priorityEqual)
	assert.Equal(t, []byte{0x31, 100, 100, 1, 0, 100, 0xbd, 0xbb, 172, 22, 0, 100}, message)

	a, err := decodeAdvert(packet(lower, 255, message), floating)
	require.NoError(t, err)
	assert.Equal(t, advert{lower, priorityEqual}, a)

	changed := func(at int) []byte {
		b := append([]byte(nil), message...)
		b[at]++
		return b
	}
	for want, p := range map[string][]byte{
		"its TTL is 254":     packet(lower, 254, message),
		"no advertisement":   packet(lower, 255, changed(0)),
		"it is about":        packet(lower, 255, encodeAdvert(higher, priorityEqual)),
		"checksum is wrong":  packet(lower, 255, changed(2)),
		"are no packet":      message,
		"12 bytes are no":    message,
		"31 bytes are no ad": packet(lower, 255, message[:11]),
	} {
		_, err := decodeAdvert(p, floating)
		assert.ErrorContains(t, err, want)
	}
}

func FuzzDecodeAdvert(f *testing.F) {
	f.Add(packet(lower, 255, encodeAdvert(floating, priorityEqual)))
	f.Fuzz(func(_ *testing.T, p []byte) { _, _ = decodeAdvert(p, floating) })
}
