package process

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// burns makes this test's program take two processors, if it gets them.
const burns = "PROCESS_TEST_BURNS"

func TestMain(m *testing.M) {
	if os.Getenv(burns) != "" {
		go func() {
			for {
			}
		}()
		for {
		}
	}
	os.Exit(m.Run())
}

func burner() *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), burns+"=1", "GOMAXPROCS=2")
	return cmd
}

// TestThrottle: however many processors there are it gets no more than its share, it gets on, and is
// free again at the end. A busy computer may give it less.
func TestThrottle(t *testing.T) {
	c, err := Start(burner())
	require.NoError(t, err)
	defer c.Kill()
	taken := func() time.Duration {
		all, err := cpuTime(c.ID.PID)
		require.NoError(t, err)
		return all
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- Throttle(ctx, c.cmd.Process, 0.5) }()

	began, before := time.Now(), taken()
	time.Sleep(4 * time.Second)
	share := (taken() - before).Seconds() / time.Since(began).Seconds()
	t.Logf("it took %.2f processors", share)
	assert.Less(t, share, 0.7)
	gets := func(more time.Duration) {
		at := taken()
		require.Eventually(t, func() bool { return taken() > at+more }, time.Minute, 10*time.Millisecond)
	}
	gets(100 * time.Millisecond)

	cancel()
	require.NoError(t, <-done)
	for range 20 {
		fields, err := stat(c.ID.PID)
		require.NoError(t, err)
		assert.NotEqual(t, "T", fields[0], "it is left stopped")
		time.Sleep(runs)
	}
	gets(500 * time.Millisecond)
}

func TestThrottleEndsWithTheProcess(t *testing.T) {
	c, err := Start(burner())
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- Throttle(t.Context(), c.cmd.Process, 0.01) }()
	require.Eventually(t, func() bool { fields, err := stat(c.ID.PID); return err == nil && fields[0] == "T" }, time.Minute, time.Millisecond)
	c.Kill()
	assert.NoError(t, <-done)
	assert.NoError(t, Throttle(t.Context(), c.cmd.Process, 0.5), "it is no error that there is none")
}
