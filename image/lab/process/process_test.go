package process

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sleeper is a program that only waits.
func sleeper() *exec.Cmd { return exec.Command("sleep", "1000") }

func TestAnIdentityIsOfOneProcess(t *testing.T) {
	c, err := Start(sleeper())
	require.NoError(t, err)
	assert.True(t, c.ID.Alive())

	for what, other := range map[string]ID{
		"a number given again": {PID: c.ID.PID, Start: c.ID.Start - 1, Boot: c.ID.Boot},
		"another boot":         {PID: c.ID.PID, Start: c.ID.Start, Boot: "before"},
		"nothing recorded":     {},
	} {
		assert.False(t, other.Alive(), what)
		require.NoError(t, other.Signal(syscall.SIGKILL), what)
		require.NoError(t, other.Terminate(0), what)
	}
	assert.True(t, c.IsRunning(), "a stranger's identity has ended it")

	require.NoError(t, c.ID.Terminate(time.Minute))
	<-c.Done()
	assert.False(t, c.ID.Alive())
	assert.ErrorContains(t, c.Err(), "terminated")
	require.NoError(t, c.ID.Signal(syscall.SIGKILL), "one that has ended is no error")
}

func TestEndIsNotRefused(t *testing.T) {
	cmd := exec.Command("sh", "-c", `trap "" TERM; echo deaf; while :; do sleep 1; done`)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	c, err := Start(cmd)
	require.NoError(t, err)
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, c.ID.Terminate(50*time.Millisecond))
	c.Kill() // the sleep of its own
	assert.False(t, c.ID.Alive())
}

func TestStartSaysWhy(t *testing.T) {
	_, err := Start(exec.Command("/nonexistent/program"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// TestChildrenDieWithTheirParent kills a parent as nothing can be caught: its child ends, also one that
// is stopped for the most part.
func TestChildrenDieWithTheirParent(t *testing.T) {
	if os.Getenv("PROCESS_TEST_PARENT") != "" {
		c, err := Start(burner())
		require.NoError(t, err)
		go func() { _ = Throttle(t.Context(), c.cmd.Process, 0.01) }()
		fmt.Printf("child %d\n", c.ID.PID)
		select {}
	}
	parent := exec.Command(os.Args[0], "-test.run=^TestChildrenDieWithTheirParent$")
	parent.Env = append(os.Environ(), "PROCESS_TEST_PARENT=1")
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "child ")))
	require.NoError(t, err, line)
	child, err := Identify(pid)
	require.NoError(t, err)
	require.Eventually(t, func() bool { fields, err := stat(pid); return err == nil && fields[0] == "T" }, time.Minute, time.Millisecond)
	require.NoError(t, parent.Process.Kill())
	_ = parent.Wait()
	assert.Eventually(t, func() bool { return !child.Alive() }, time.Minute, 10*time.Millisecond)
}

func TestCPU(t *testing.T) {
	c, err := Start(exec.Command("sh", "-c", "while :; do :; done"))
	require.NoError(t, err)
	defer c.Kill()
	assert.Eventually(t, func() bool { return CPU(c.ID.PID) > 0 }, time.Minute, 10*time.Millisecond)
	assert.Zero(t, CPU(0))
}
