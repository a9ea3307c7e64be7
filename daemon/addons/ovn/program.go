package ovn

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netns"

	"firstlight.dev/firstlight/assets/atomicfile"
)

// Program is one of Open vSwitch or OVN, as a container runs it.
type Program struct {
	Path      string
	Args      []string
	Run       string   // folder of its sockets
	Namespace string   // that it runs in; "" is this one
	Database  File     // that it needs as a file; zero for none
	WaitFor   []string // files that must be there first
}

// File is a database that a program serves, and the schema that it is made of.
type File struct{ Path, Schema string }

// Certificates are the files of one side of TLS.
type Certificates string

// Args are what every program of theirs takes.
func (c Certificates) Args() []string {
	dir := string(c)
	return []string{
		"--private-key=" + filepath.Join(dir, keyFile), "--certificate=" + filepath.Join(dir, certificateFile),
		"--ca-cert=" + filepath.Join(dir, authorityFile),
	}
}

// logArgs have a program say on standard error what happens; there is no syslog.
func logArgs() []string { return []string{"-vconsole:info", "-vsyslog:off", "-vfile:off"} }

func controlSocket(dir, name string) string { return filepath.Join(dir, name+".ctl") }

func controlArg(dir, name string) string { return "--unixctl=" + controlSocket(dir, name) }

// NodeDatabase is the ovsdb-server of a node's Open_vSwitch.
func NodeDatabase() Program {
	const name = "ovsdb-server"
	file := File{filepath.Join(Run, "conf.db"), "/usr/share/openvswitch/vswitch.ovsschema"}
	args := append([]string{"--remote=p" + Socket(), controlArg(Run, name)}, logArgs()...)
	return Program{Path: "/usr/sbin/ovsdb-server", Args: append(args, file.Path), Run: Run, Database: file}
}

const switchName = "ovs-vswitchd"

// Switch is ovs-vswitchd.
func Switch() Program {
	socket := Socket()
	return Program{
		Path:      "/usr/lib/openvswitch-switch/ovs-vswitchd",
		Args:      append([]string{socket, controlArg(Run, switchName)}, logArgs()...),
		Run:       Run,
		Namespace: Namespace,
		WaitFor:   []string{strings.TrimPrefix(socket, "unix:")},
	}
}

const controllerName = "ovn-controller"

// Controller is ovn-controller. If it is killed, what it set up stays.
func Controller(c Certificates) Program {
	socket := Socket()
	args := append([]string{socket, controlArg(Run, controllerName)}, c.Args()...)
	return Program{
		Path:    "/usr/bin/ovn-controller",
		Args:    append(args, logArgs()...),
		Run:     Run,
		WaitFor: []string{strings.TrimPrefix(socket, "unix:")},
	}
}

// Central are the folders of OVN's central part.
type Central struct {
	Run   string // of sockets
	State string // of databases
}

func (c Central) database(short, name string, port int, certificates Certificates) Program {
	file := File{filepath.Join(c.State, short+".db"), "/usr/share/ovn/ovn-" + short + ".ovsschema"}
	args := []string{
		"--remote=punix:" + c.socket(short), "--remote=pssl:" + strconv.Itoa(port) + ":0.0.0.0",
		controlArg(c.Run, name),
	}
	args = append(append(args, certificates.Args()...), logArgs()...)
	return Program{Path: "/usr/sbin/ovsdb-server", Args: append(args, file.Path), Run: c.Run, Database: file}
}

func (c Central) socket(short string) string { return filepath.Join(c.Run, "ovn"+short+"_db.sock") }

// Northbound is the ovsdb-server of what networks there are.
func (c Central) Northbound(certificates Certificates) Program {
	return c.database("nb", "ovnnb", NorthboundPort, certificates)
}

// Southbound is the ovsdb-server of what ovn-controllers do.
func (c Central) Southbound(certificates Certificates) Program {
	return c.database("sb", "ovnsb", SouthboundPort, certificates)
}

// Northd is ovn-northd, which makes the one of the other.
func (c Central) Northd() Program {
	args := []string{"--ovnnb-db=unix:" + c.socket("nb"), "--ovnsb-db=unix:" + c.socket("sb"), controlArg(c.Run, "ovn-northd")}
	return Program{
		Path: "/usr/bin/ovn-northd", Args: append(args, logArgs()...), Run: c.Run,
		WaitFor: []string{c.socket("nb"), c.socket("sb")},
	}
}

// Exec becomes the program, once what it needs is there.
func (p Program) Exec(ctx context.Context) error {
	for _, dir := range []string{p.Run, filepath.Dir(p.Database.Path)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("run %s: %w", p.Path, err)
		}
	}
	if p.Database != (File{}) {
		if err := ensureDatabase(ctx, p.Database); err != nil {
			return err
		}
	}
	if err := p.wait(ctx); err != nil {
		return err
	}

	environment := append(os.Environ(), "OVS_RUNDIR="+p.Run, "OVN_RUNDIR="+p.Run, "OVS_LOGDIR="+p.Run, "OVN_LOGDIR="+p.Run,
		"OVS_DBDIR="+p.Run)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if p.Namespace != "" {
		ns, err := netns.GetFromPath(p.Namespace)
		if err == nil {
			err = netns.Set(ns)
		}
		if err != nil {
			return fmt.Errorf("run %s in namespace %s: %w", p.Path, p.Namespace, err)
		}
	}
	err := syscall.Exec(p.Path, append([]string{filepath.Base(p.Path)}, p.Args...), environment)
	return fmt.Errorf("run %s: %w", p.Path, err)
}

// wait waits for what must be there first.
func (p Program) wait(ctx context.Context) error {
	isThere := func() bool {
		for _, file := range p.WaitFor {
			if _, err := os.Stat(file); err != nil {
				return false
			}
		}
		return p.Namespace == "" || HasNamespace(p.Namespace)
	}
	for !isThere() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// ensureDatabase makes a database that is missing, brings one of an older version to this one's schema, and replaces one
// that cannot be read: all that is in it is made again from what the cluster has.
func ensureDatabase(ctx context.Context, f File) error {
	_, err := os.Stat(f.Path)
	if err == nil {
		if _, err := runTool(ctx, "db-version", f.Path); err != nil {
			fmt.Fprintf(os.Stderr, "database %s is made again: %v\n", f.Path, err)
			return createDatabase(ctx, f)
		}
		answer, err := runTool(ctx, "needs-conversion", f.Path, f.Schema)
		if err != nil || strings.TrimSpace(answer) != "yes" {
			return err
		}
		_, err = runTool(ctx, "convert", f.Path, f.Schema)
		return err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("find database: %w", err)
	}
	return createDatabase(ctx, f)
}

func createDatabase(ctx context.Context, f File) error {
	draft := f.Path + ".new"
	if err := os.Remove(draft); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("make database: %w", err)
	}
	if _, err := runTool(ctx, "create", draft, f.Schema); err != nil {
		return err
	}
	text, err := os.ReadFile(draft)
	if err == nil {
		err = atomicfile.Write(f.Path, text, 0o600)
	}
	if err == nil {
		err = os.Remove(draft)
	}
	if err != nil {
		return fmt.Errorf("make database: %w", err)
	}
	return nil
}

func runTool(ctx context.Context, args ...string) (string, error) {
	var said strings.Builder
	cmd := exec.CommandContext(ctx, "/usr/bin/ovsdb-tool", append([]string{"-vsyslog:off"}, args...)...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("ovsdb-tool %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return string(out), nil
}
