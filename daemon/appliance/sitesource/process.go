package sitesource

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/excerpt"
)

// Bounds of the process that fetches.
const (
	fetchTimeout  = 2 * time.Minute
	memoryLimit   = 512 << 20 // bytes; more ends the process
	maxAnswer     = 2 * maxSize
	nobody        = 65534
	maxFetchFiles = 256
	processorTime = time.Minute // that it may take; more ends the process
	niceness      = 10
)

// Process fetches in a process of its own: what comes from outside is unpacked by a user without rights, and whatever it
// is takes no memory that others need.
type Process struct {
	Command []string // that calls Serve
	Memory  uint64   // bytes that it may have; 0 is 512 MiB
}

// task is what the process reads.
type task struct {
	Memory  uint64  `json:"memory"`
	Request Request `json:"request"`
}

type reply struct {
	Answer Answer `json:"answer"`
	Error  string `json:"error,omitempty"`
}

// Fetch has the process fetch. Credentials are passed by its input.
func (p Process) Fetch(ctx context.Context, r Request) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	question, err := json.Marshal(task{Memory: cmp.Or(p.Memory, memoryLimit), Request: r})
	if err != nil {
		return Answer{}, fmt.Errorf("encode request: %w", err)
	}

	var out, complaints bytes.Buffer
	cmd := exec.CommandContext(ctx, p.Command[0], p.Command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(question), &bounded{to: &out, room: maxAnswer}, &bounded{to: &complaints, room: 4 << 10}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	if err := runWithoutGains(cmd); err != nil {
		if ctx.Err() != nil {
			return Answer{}, fmt.Errorf("the source did not answer within %s", fetchTimeout)
		}
		line, _, _ := bytes.Cut(complaints.Bytes(), []byte("\n"))
		return Answer{}, fmt.Errorf("the process that reads the source ended, which it does if the source is too large: %w: %s",
			err, excerpt.Line(string(line)))
	}

	var got reply
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		return Answer{}, fmt.Errorf("read answer: %w", err)
	}
	if got.Error != "" {
		return Answer{}, errors.New(got.Error)
	}
	return got.Answer, nil
}

// runWithoutGains runs a program that gains no rights by the programs that it starts, and that gives way to others.
func runWithoutGains(cmd *exec.Cmd) error {
	ended := make(chan error, 1)
	go func() {
		// Programs have both from the thread that starts them. It is never unlocked, so nothing else is ever started by
		// it; nor does it end before the program, which would end with it (Pdeathsig).
		runtime.LockOSThread()
		if err := errors.Join(
			unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
			unix.Setpriority(unix.PRIO_PROCESS, 0, niceness),
		); err != nil {
			ended <- fmt.Errorf("bound what fetching may do: %w", err)
			return
		}
		ended <- cmd.Run()
	}()
	return <-ended
}

// bounded takes as many bytes as there is room for, and drops the rest.
type bounded struct {
	to   *bytes.Buffer
	room int
}

func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), b.room-b.to.Len())
	b.to.Write(p[:n])
	return len(p), nil
}

// Serve is the process: it reads one request, gives up its rights and writes one answer.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	var t task
	if err := json.NewDecoder(in).Decode(&t); err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	if err := giveUpRights(t.Memory); err != nil {
		return err
	}
	debug.SetMemoryLimit(int64(t.Memory / 4 * 3)) // from there on it tidies up all the time

	var said reply
	answer, err := Fetch(ctx, t.Request)
	if said.Answer = answer; err != nil {
		said.Error = excerpt.Line(err.Error())
	}
	return json.NewEncoder(out).Encode(said)
}

// giveUpRights makes a process of root one of nobody, which writes no file and has bounded memory and processor time.
func giveUpRights(memory uint64) error {
	for resource, limit := range map[int]uint64{
		unix.RLIMIT_DATA:   memory,
		unix.RLIMIT_CPU:    uint64(processorTime.Seconds()),
		unix.RLIMIT_FSIZE:  0,
		unix.RLIMIT_CORE:   0,
		unix.RLIMIT_NOFILE: maxFetchFiles,
	} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return fmt.Errorf("bound what fetching may use: %w", err)
		}
	}
	if os.Geteuid() != 0 {
		return nil
	}

	return errors.Join(
		syscall.Setgroups(nil),
		syscall.Setgid(nobody),
		syscall.Setuid(nobody),
	)
}
