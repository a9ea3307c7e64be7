package tftp

import (
	"time"
)

// Retransmission. The first wait is a second, as of old; once round trips were measured
// it is four of them, so that a lost packet costs milliseconds. It doubles up to a cap.
const (
	firstWait = time.Second
	minWait   = slice
	maxWait   = 4 * time.Second
)

// silenceLimit is how long the client may be silent: a third for one that never answered
// and for one that has all but the last ACK, which may be lost for good.
func (t *transfer) silenceLimit(final bool) time.Duration {
	all := t.server.Silence
	if all <= 0 {
		all = defaultSilence
	}

	all = max(all, min(3*time.Duration(t.request.timeout)*time.Second, 2*time.Minute))
	if final || !t.answered.Load() {
		return all / 3
	}

	return all
}

// updateRoundTrip smooths the round trip as TCP does (RFC 6298), with a wider margin: firmware pauses.
func (t *transfer) updateRoundTrip(trip time.Duration) {
	if t.trip == 0 {
		t.trip = trip
	}
	t.trip += (trip - t.trip) / 8
}

// resetBackoff ends the doubling of the wait when the transfer has moved on.
func (t *transfer) resetBackoff() {
	if t.request.timeout == 0 && t.trip > 0 { // else the client named the wait (RFC 2349)
		t.wait = min(max(4*t.trip, minWait), maxWait)
	}
}
