package limit

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestALoopOfRequestsLeavesTheJournalAlone: ten thousand requests in no time, then one.
func TestALoopOfRequestsLeavesTheJournalAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := Log(slog.New(slog.NewTextHandler(&out, nil))).With("part", "pxe")
		for range 10000 {
			log.Info("request")
		}
		log.Error("fault")
		time.Sleep(time.Minute)
		log.WithGroup("g").Warn("after")
		log.Info("last")
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		assert.Len(t, lines, linesAtOnce+3)
		assert.Contains(t, lines[linesAtOnce], `msg=fault part=pxe "lines left out before"=9600`)
		assert.Contains(t, lines[linesAtOnce+1], "msg=after part=pxe")
		assert.NotContains(t, lines[linesAtOnce+2], "left out")
	})
}
