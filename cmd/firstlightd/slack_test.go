package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTimerSlackIsThatOfEveryThread(t *testing.T) {
	t.Cleanup(func() { setTimerSlack(50 * time.Microsecond) })
	require.NoError(t, setTimerSlack(3*time.Millisecond))
	threads, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	require.Greater(t, len(threads), 1)
	for _, thread := range threads {
		slack, err := os.ReadFile("/proc/" + thread.Name() + "/timerslack_ns")
		if !os.IsNotExist(err) {
			require.NoError(t, err)
			assert.Equal(t, "3000000", strings.TrimSpace(string(slack)))
		}
	}
}
