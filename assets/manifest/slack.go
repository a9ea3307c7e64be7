package manifest

import (
	"fmt"
	"time"
)

// Slack is how late a timer may be on a machine with one or two processors: a tick of Debian's kernel.
const Slack = 4 * time.Millisecond

// TimerSlack is a drop-in for the units that start whatever runs all the time, on a machine with so many
// processors; nil where nothing is to be changed (TimerSlackNSec, systemd.exec(5)).
//
// In every Go process that is at work a thread of the runtime looks after the others, every 20
// microseconds at first, every ten milliseconds later on. Where there are one or two processors it has
// little to look after, and a dozen such processes keep them from what they are there for (decision 9).
func TimerSlack(processors int) []byte {
	if processors < 1 || processors > 2 {
		return nil
	}
	return fmt.Appendf(nil, "[Service]\nTimerSlackNSec=%s\n", Slack)
}
