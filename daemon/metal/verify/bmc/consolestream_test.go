package bmc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bougou/go-ipmi/pkg/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// peer is the BMC's end of a stream, which takes few bytes at once and loses packets.
type peer struct {
	typed    []byte
	taken    uint8  // number of the last packet with keys
	count    uint8  // bytes of it that were taken
	print    []byte // that it has still to print
	number   uint8  // of the packet of those that is on its way
	sent     int    // bytes in it
	loses    int    // each so many packets; 0: none
	seen     int
	isSilent bool
	status   byte
}

func (p *peer) exchange(ctx context.Context, q types.SOLPayloadPacket, wait time.Duration) (a types.SOLPayloadPacket, err error) {
	p.seen++
	isLost := p.loses > 0 && p.seen%p.loses == 0
	if p.isSilent || isLost && p.seen%2 == 0 { // on its way there
		time.Sleep(wait)
		return a, errors.New("no answer")
	}

	if p.sent > 0 && q.AckedSequenceNumber == p.number {
		p.print = p.print[q.AcceptedCharacterCount:]
		p.number, p.sent = p.number%15+1, 0
	}
	if n := q.SequenceNumber; n != 0 && n != p.taken {
		p.taken, p.count = n, uint8(min(len(q.CharacterData), 3))
		p.typed = append(p.typed, q.CharacterData[:p.count]...)
	}
	if p.number == 0 {
		p.number = 1
	}
	a = types.SOLPayloadPacket{AckedSequenceNumber: p.taken, AcceptedCharacterCount: p.count, ControlByte: p.status}
	if p.sent = min(len(p.print), 7); p.sent > 0 {
		a.SequenceNumber, a.CharacterData = p.number, p.print[:p.sent]
	}
	if isLost || q.SequenceNumber == 0 && p.sent == 0 { // on its way back, or there is none
		time.Sleep(wait)
		return types.SOLPayloadPacket{}, errors.New("no answer")
	}
	return a, nil
}

// TestAStreamLosesNothing of what is typed or printed, in either order, whatever packets are lost.
func TestAStreamLosesNothing(t *testing.T) {
	for _, loses := range []int{0, 3, 5, 7} {
		synctest.Test(t, func(t *testing.T) {
			printed, typed := bytes.Repeat([]byte("0123456789"), 100), bytes.Repeat([]byte("abcdefg"), 30)
			p := &peer{print: bytes.Clone(printed), loses: loses}
			var out bytes.Buffer
			s := stream{exchange: p.exchange, output: &out}
			input, keys := io.Pipe()
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.run(ctx, input) }()
			_, err := keys.Write(typed)
			require.NoError(t, err)
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			assert.Equal(t, string(printed), out.String(), "each %d is lost", loses)
			assert.Equal(t, string(typed), string(p.typed), "each %d is lost", loses)
			cancel()
			assert.ErrorIs(t, <-ended, context.Canceled)
			keys.Close()
		})
	}
}

func TestAStreamEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			p    peer
			says string
		}{
			"the BMC is gone":          {peer{isSilent: true}, "no answer"},
			"the BMC takes it away":    {peer{status: solDeactivating}, "it was taken away"},
			"nothing more can be said": {peer{}, ""},
		} {
			input, keys := io.Pipe()
			if c.says == "" {
				keys.Close()
			}
			began := time.Now()
			err := (&stream{exchange: c.p.exchange, output: io.Discard}).run(t.Context(), input)
			if c.says == "" {
				assert.NoError(t, err, name)
			} else {
				assert.ErrorContains(t, err, c.says, name)
			}
			assert.Less(t, time.Since(began), 15*time.Second, name)
			keys.Close()
			input.Close()
		}
	})
}
