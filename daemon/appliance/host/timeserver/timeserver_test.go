package timeserver

import (
	"context"
	"encoding/binary"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/beevik/ntp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A client that is not ours takes the answer for good.
func TestAnswersAForeignClient(t *testing.T) {
	for _, c := range []struct {
		name   string
		source Source
		want   uint8
	}{
		{"own clock", Source{}, 10},
		{"following a server", Source{Stratum: 2, At: time.Now()}, 3},
		{"following one that follows nobody", Source{Stratum: 15}, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			s := &Server{Source: func() Source { return c.source }, Log: slog.New(slog.DiscardHandler)}
			go func() { ended <- s.Serve(ctx, conn) }()
			r, err := ntp.QueryWithOptions(conn.LocalAddr().String(), ntp.QueryOptions{Timeout: 30 * time.Second})
			require.NoError(t, err)
			assert.NoError(t, r.Validate())
			assert.Equal(t, c.want, r.Stratum)
			assert.Less(t, r.ClockOffset.Abs(), time.Minute)
			cancel()
			require.NoError(t, <-ended)
		})
	}
}

func TestStampSurvivesTheEndOfTheEra(t *testing.T) {
	before := ntpTimestamp(time.Date(2036, 2, 7, 6, 28, 15, 0, time.UTC))
	after := ntpTimestamp(time.Date(2036, 2, 7, 6, 28, 17, 0, time.UTC))
	assert.Equal(t, uint64(0xffffffff), before>>32)
	assert.Equal(t, uint64(1), after>>32)
}

func TestSilentToWhatIsNoRequest(t *testing.T) {
	for mode := range byte(8) {
		request := make([]byte, packetSize)
		request[0] = 4<<3 | mode
		_, ok := ReplyTo(request, time.Now(), Source{})
		assert.Equal(t, mode == modeClient, ok, "mode %d", mode)
		_, ok = ReplyTo(request[:packetSize-1], time.Now(), Source{})
		assert.False(t, ok, "a short packet")
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte{0x23, 47: 0})
	f.Fuzz(func(t *testing.T, request []byte) {
		a, ok := ReplyTo(request, time.Unix(1, 0), Source{})
		if !ok {
			return
		}
		assert.LessOrEqual(t, len(a), len(request), "the answer is larger than the question")
		assert.Equal(t, binary.BigEndian.Uint64(request[40:]), binary.BigEndian.Uint64(a[24:]))
	})
}
