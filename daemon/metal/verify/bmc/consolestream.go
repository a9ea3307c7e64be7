package bmc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/bougou/go-ipmi/pkg/types"
)

// Bounds of a stream.
const (
	streamKeys    = 32                     // bytes that are typed in one packet
	streamPoll    = 100 * time.Millisecond // for which what is printed is waited for, before keys are looked at again
	streamAnswer  = 500 * time.Millisecond // for which a BMC may take a packet that it has to answer
	streamBeat    = 2 * time.Second        // without a packet, after which it is asked for one
	streamSilence = 12 * time.Second       // without a packet, after which it is gone
)

// Bits and numbers of packets (IPMI 2.0, 15.9).
const (
	solDeactivating = 1 << 4
	solNumbers      = 15  // from 1
	solMost         = 255 // bytes that can be acknowledged
)

// stream passes bytes to and from a console by packets of serial over LAN. go-ipmi's own sends no key while a server
// prints, and acknowledges nothing while it waits for its own acknowledgement, by which both wait in the end.
type stream struct {
	// exchange sends a packet and returns the next one of the BMC: one that acknowledges it, if it has a number.
	exchange func(ctx context.Context, p types.SOLPayloadPacket, wait time.Duration) (types.SOLPayloadPacket, error)
	output   io.Writer

	number   uint8  // of the packet that is on its way, or comes next
	isSent   bool   // it is on its way
	keys     []byte // in it
	received uint8  // number of the last packet with what was printed; 0: none
	accepted uint8  // bytes of that
	heard    time.Time
}

// run passes on until ctx or input ends, or the BMC does.
func (s *stream) run(ctx context.Context, input io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	typed := readPieces(ctx, input)
	s.number, s.isSent, s.heard = 1, true, time.Now() // an empty packet tells the BMC that somebody is there
	for ctx.Err() == nil {
		if !s.isSent {
			select {
			case piece, isOpen := <-typed:
				if !isOpen {
					return nil
				}
				s.keys, s.isSent = piece, true
			default:
				s.isSent = time.Since(s.heard) >= streamBeat
			}
		}

		if s.isSent {
			numbered := types.SOLPayloadPacket{SequenceNumber: s.number, CharacterData: s.keys}
			if err := s.step(ctx, numbered, streamAnswer); err != nil {
				return err
			}
		}
		if err := s.step(ctx, types.SOLPayloadPacket{}, streamPoll); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// step sends a packet, which acknowledges what was printed, and takes what the BMC sends. A BMC may be silent for a
// while: a packet on its way is sent again with its number, by which the BMC takes it once.
func (s *stream) step(ctx context.Context, p types.SOLPayloadPacket, wait time.Duration) error {
	began := time.Now()
	p.AckedSequenceNumber, p.AcceptedCharacterCount = s.received, s.accepted
	got, err := s.exchange(ctx, p, wait)
	if err == nil {
		s.heard = time.Now()
		return s.take(got)
	}
	if time.Since(s.heard) >= streamSilence {
		return err
	}
	select { // whatever went wrong at once does not go wrong faster than silence
	case <-ctx.Done():
	case <-time.After(wait - time.Since(began)):
	}
	return nil
}

func (s *stream) take(p types.SOLPayloadPacket) error {
	if p.ControlByte&solDeactivating != 0 {
		return errors.New("it was taken away")
	}
	if s.isSent && p.AckedSequenceNumber == s.number {
		if int(p.AcceptedCharacterCount) > len(s.keys) {
			return fmt.Errorf("it took %d bytes of %d", p.AcceptedCharacterCount, len(s.keys))
		}
		s.keys = s.keys[p.AcceptedCharacterCount:]
		s.number, s.isSent = s.number%solNumbers+1, len(s.keys) > 0
	}

	number, text := p.SequenceNumber, p.CharacterData[:min(len(p.CharacterData), solMost)]
	known := 0
	switch behind := (int(s.received) - int(number) + solNumbers) % solNumbers; {
	case number == 0, s.received != 0 && behind > 0 && behind <= solNumbers/2: // none, or one of before, late
		return nil
	case number == s.received: // it was sent again, maybe with more
		known = min(int(s.accepted), len(text))
	}
	s.received, s.accepted = number, uint8(len(text))
	if _, err := s.output.Write(text[known:]); err != nil {
		return fmt.Errorf("pass on what was printed: %w", err)
	}
	return nil
}

// readPieces reads until ctx or input ends, which closes the channel.
func readPieces(ctx context.Context, input io.Reader) <-chan []byte {
	pieces := make(chan []byte)
	go func() {
		defer close(pieces)
		for {
			piece := make([]byte, streamKeys)
			n, err := input.Read(piece)
			if n > 0 {
				select {
				case pieces <- piece[:n]:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return pieces
}
