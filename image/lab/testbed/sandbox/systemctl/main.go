// Command systemctl is the sandbox's service manager: the first process of a sandbox (package sandbox), which
// mounts its file systems and then starts and watches the appliance's real units; and, called by any
// other process as systemctl, the client that asks it. So the daemon uses plain systemctl everywhere,
// on machines where systemd cannot run. It knows the directives that the appliance's services use and
// logs the others; it knows services only, no other kind of unit.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
)

const (
	socketPath = "/run/sandbox/systemctl.sock"
	logDir     = "/var/log/units"
)

// request is one call of systemctl, reply its outcome.
type request struct{ Args []string }

type reply struct {
	Out  string
	Code int
}

func main() {
	if filepath.Base(os.Args[0]) != "systemctl" && len(os.Args) == 3 && (os.Args[1] == "sandbox" || os.Args[1] == "sandbox-unshared") {
		if err := runSandbox(os.Args[1], os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "sandbox:", err)
			os.Exit(1)
		}
		return
	}

	code, err := sendRequest(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "systemctl:", err)
		code = 1
	}

	os.Exit(code)
}

// sendRequest sends one call to the first process.
func sendRequest(args []string) (int, error) {
	conn, err := net.Dial("unix", socketPath)
	if err != nil {
		return 1, fmt.Errorf("ask the sandbox's first process: %w", err)
	}
	defer conn.Close()

	if err := json.NewEncoder(conn).Encode(request{args}); err != nil {
		return 1, fmt.Errorf("ask the sandbox's first process: %w", err)
	}

	var r reply
	if err := json.NewDecoder(conn).Decode(&r); err != nil {
		return 1, fmt.Errorf("ask the sandbox's first process: %w", err)
	}

	io.WriteString(os.Stdout, r.Out)
	return r.Code, nil
}
