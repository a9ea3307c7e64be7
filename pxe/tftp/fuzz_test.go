package tftp

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// FuzzRequest: any packet is either a request within the limits or a refusal that fits
// into one small packet of printable text.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{"", "\x00", "\x00\x01", "\x00\x01a\x00octet\x00", "\x00\x01a\x00octet\x00blksize\x001468\x00tsize\x000\x00",
		"\x00\x02a\x00octet\x00", "\x00\x01a\x00octet\x00windowsize\x0065535\x00timeout\x00255\x00", "\x00\x05\x00\x00x", "\x00\x01\xff\x00mail\x00",
		"\x00\x01a\x00octet\x00blksize\x00-1\x00", "\x00\x01a\x00octet\x00tsize\x0099999999999999999999\x00"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, packet []byte) {
		r, err := parseRequest(packet)
		if err != nil {
			var refused *refusal
			if assert.ErrorAs(t, err, &refused) {
				text := appendError(nil, refused.code, refused.text)
				assert.LessOrEqual(t, len(text), 170)
			}
			return
		}
		assert.True(t, r.block == 0 || r.block >= minBlock && r.block <= maxBlock)
		assert.True(t, r.window >= 0 && r.window <= maxWindow)
		assert.True(t, r.timeout >= 0 && r.timeout <= maxTimeout)
		assert.LessOrEqual(t, len(r.asked), 4)
		assert.LessOrEqual(t, len(appendOACK(nil, r.asked, nil)), 512)
	})
}
