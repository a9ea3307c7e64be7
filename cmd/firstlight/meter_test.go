package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// runMeter writes 4000 MiB in ten seconds and reads it back at once.
func runMeter(terminal bool) string {
	const total = 4000 << 20
	var said strings.Builder
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := newMeter(&said)
	m.terminal, m.now = terminal, func() time.Time { return now }
	for step := range int64(21) {
		m.show("write", step*200<<20, total)
		now = now.Add(time.Second / 2)
	}
	m.show("verify", 0, total)
	m.show("verify", 1, total) // nothing that anybody could see
	m.show("verify", total, total)
	return said.String()
}

func TestAMeterWritesLinesElsewhereThanOnATerminal(t *testing.T) {
	assert.Equal(t, `write   0 % of 3.9 GiB
write  10 % of 3.9 GiB, 400.0 MiB/s, 0:09 min left
write  20 % of 3.9 GiB, 400.0 MiB/s, 0:08 min left
write  30 % of 3.9 GiB, 400.0 MiB/s, 0:07 min left
write  40 % of 3.9 GiB, 400.0 MiB/s, 0:06 min left
write  50 % of 3.9 GiB, 400.0 MiB/s, 0:05 min left
write  60 % of 3.9 GiB, 400.0 MiB/s, 0:04 min left
write  70 % of 3.9 GiB, 400.0 MiB/s, 0:03 min left
write  80 % of 3.9 GiB, 400.0 MiB/s, 0:02 min left
write  90 % of 3.9 GiB, 400.0 MiB/s, 0:01 min left
write 100 % of 3.9 GiB, 400.0 MiB/s
verify   0 % of 3.9 GiB
verify 100 % of 3.9 GiB
`, runMeter(false))
}

func TestAMeterIsDrawnOnATerminal(t *testing.T) {
	drawn := strings.Split(runMeter(true), "\r\x1b[K")
	assert.Equal(t, "  write  [###############---------------]  50 % of 3.9 GiB, 400.0 MiB/s, 0:05 min left", drawn[11])
	assert.Equal(t, []string{
		"  write  [##############################] 100 % of 3.9 GiB, 400.0 MiB/s\n",
		"  verify [------------------------------]   0 % of 3.9 GiB",
		"  verify [##############################] 100 % of 3.9 GiB\n",
	}, drawn[21:])
}
