package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/uploads/api"
	"firstlight.dev/firstlight/daemon/uploads/blobs"
	"firstlight.dev/firstlight/image/lab/process"
)

// childEnv holds what this program is to serve when it is started as an agent to be killed.
const childEnv = "FIRSTLIGHT_LAB_AGENT"

type child struct {
	Store    place
	TLS      api.Files
	Scratch  string
	PartSize int64
}

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		if err := serveChild(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func serveChild(text string) error {
	var c child
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	s, err := c.Store.open()
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError + 4}))
	a, err := api.New(api.Config{Listen: "127.0.0.1:0", TLS: c.TLS, Authenticator: people{}, Authorizer: people{}, Log: log,
		Blobs: blobs.Config{Backend: s, Scratch: c.Scratch, PartSize: c.PartSize, SaveEvery: time.Nanosecond, Log: log}})
	if err != nil {
		return err
	}
	return a.Run(context.Background(), func(addr net.Addr) { fmt.Println(addr) })
}

// inProcess makes the lab's agent a process of its own, which kill ends as kill -9 does.
func (l *lab) inProcess(c place, partSize int64) (kill func()) {
	l.stop()
	text, err := json.Marshal(child{c, l.config.TLS, l.config.Blobs.Scratch, partSize})
	require.NoError(l.t, err)
	var agent *process.Child
	kill = func() {
		if agent == nil {
			return
		}
		agent.Kill()
		agent = nil
		l.client.CloseIdleConnections()
	}
	l.begin = func() string {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"="+string(text))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		require.NoError(l.t, err)
		agent, err = process.Start(cmd)
		require.NoError(l.t, err)
		l.pid = agent.ID.PID
		line, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(l.t, err)
		return strings.TrimSpace(line)
	}
	l.stop = kill
	l.t.Cleanup(kill)
	l.start()
	return kill
}
