package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// watch runs a service, again and again if its unit says so, until ctx ends. It answers ready once.
func (m *manager) watch(ctx context.Context, s *service, u *unit, ready chan<- error) {
	defer close(s.done)
	var once sync.Once
	answer := func(err error) { once.Do(func() { ready <- err }) }
	for {
		code, err := m.runService(ctx, s, u, func() { answer(nil) })
		ended := "inactive"
		if err != nil || code != 0 {
			ended = "failed"
			if err == nil {
				err = fmt.Errorf("exit code %d, see %s/%s.log", code, logDir, u.name)
			}
		}

		again := u.restart == "always" || u.restart == "on-failure" && ended == "failed"
		if u.kind == "oneshot" && u.remain && ended == "inactive" {
			ended = "active"
		}

		if ctx.Err() != nil {
			ended, again = "inactive", false
		}

		if again {
			ended = "activating"
		}

		s.set(ended, 0)
		if !again {
			answer(err)
			return
		}

		select {
		case <-ctx.Done():
			s.set("inactive", 0)
			answer(ctx.Err())
			return
		case <-time.After(u.restartSec):
		}
	}
}

// runService is one run of a service: it returns the exit code of the last command.
func (m *manager) runService(ctx context.Context, s *service, u *unit, ready func()) (int, error) {
	log, err := os.OpenFile(filepath.Join(logDir, u.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 1, err
	}
	defer log.Close()

	if err := u.makeDirs(); err != nil {
		return 1, err
	}

	env, err := u.environment()
	if err != nil {
		return 1, err
	}

	var notify *net.UnixConn
	if u.kind == "notify" || u.kind == "notify-reload" {
		path := "/run/sandbox/notify-" + u.name
		os.Remove(path)
		if notify, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"}); err != nil {
			return 1, err
		}
		defer notify.Close()

		os.Chmod(path, 0o666)
		go listen(notify, s, ready)
		env = append(env, "NOTIFY_SOCKET="+path)
	}

	for i, words := range slices.Concat(u.pre, u.start) {
		mayFail := false
		words = expand(words, env)
		for len(words[0]) > 0 && strings.ContainsRune("-+!@:", rune(words[0][0])) {
			mayFail = mayFail || words[0][0] == '-'
			words[0] = words[0][1:]
		}

		pid, exit, err := m.spawn(u, words, env, log)
		if err != nil {
			if mayFail {
				continue
			}
			return 1, err
		}

		if i >= len(u.pre) {
			s.set("", pid)
			if u.kind == "simple" || u.kind == "exec" {
				ready()
				s.set("active", pid)
			}
		}

		status := m.waitProcess(ctx, u, pid, exit)
		if code := exitCode(status); code != 0 && !mayFail {
			return code, nil
		}
	}

	return 0, nil
}

// waitProcess waits for a process; if ctx ends first it is told to end, then made to.
func (m *manager) waitProcess(ctx context.Context, u *unit, pid int, exit chan syscall.WaitStatus) syscall.WaitStatus {
	select {
	case status := <-exit:
		return status
	case <-ctx.Done():
	}

	targets := []int{pid}
	if u.killMode == "control-group" || u.killMode == "mixed" {
		targets = append(targets, descendants(pid)...)
	}

	for _, t := range targets {
		unix.Kill(t, unix.SIGTERM)
	}

	select {
	case status := <-exit:
		return status
	case <-time.After(30 * time.Second):
		for _, t := range targets {
			unix.Kill(t, unix.SIGKILL)
		}
		return <-exit
	}
}
