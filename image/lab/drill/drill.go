// Package drill lets an appliance provision a fleet, and breaks things meanwhile: the appliance runs in a
// bed (package native) with its real Ironic, operator and daemon, the servers are fakes (package fleet)
// in the same network. Tests and measurements share it.
package drill

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"firstlight.dev/firstlight/image/lab/fleet"
	"firstlight.dev/firstlight/image/lab/native"
	"firstlight.dev/firstlight/image/lab/netns"
)

// The appliance's address and what it serves.
const (
	Address = "172.22.0.1"
	Boot    = "http://" + Address + ":6180"
)

// Config is what a drill is made of.
type Config struct {
	Name     string // of the bed, unique on this machine
	Dir      string // the appliance's DATA, and logs
	Root     string // see native.Root
	Programs native.Programs
	Fleet    fleet.Config // Boot and Namespace are filled in
	Log      io.Writer    // what happens; may be nil
}

// Drill is an appliance and its servers.
type Drill struct {
	Bed   *native.Bed
	Fleet *fleet.Fleet

	config Config
	api    *api
}

// Start makes the bed with its provisioning NIC, and plugs in the fleet. The daemon waits for Begin.
func Start(ctx context.Context, c Config) (*Drill, error) {
	if c.Log == nil {
		c.Log = io.Discard
	}
	d := &Drill{config: c}
	if err := d.power(ctx); err != nil {
		return nil, err
	}
	fakes := c.Fleet
	fakes.Boot, fakes.Namespace = Boot, netns.Of(d.Bed.PID())
	var err error
	if d.Fleet, err = fleet.Start(fakes); err != nil {
		return nil, errors.Join(err, d.Bed.Close())
	}
	for _, name := range []string{ImageA, ImageB} {
		if err := d.serve(name); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	return d, nil
}

// power starts a bed on the drill's Dir.
func (d *Drill) power(ctx context.Context) error {
	if err := os.MkdirAll(d.config.Dir, 0o755); err != nil {
		return fmt.Errorf("start drill: %w", err)
	}
	bed, err := native.Start(ctx, native.Config{Name: d.config.Name, Root: d.config.Root, Dir: d.config.Dir, Manager: d.config.Programs.Manager,
		Log: d.config.Log, Add: map[string]string{"/usr/bin/firstlightd": d.config.Programs.Daemon}})
	if err != nil {
		return err
	}
	// The provisioning NIC needs a cable with something at its other end. The servers are not there: they
	// have addresses of their own in the bed's network, because fifty of them shall cost little.
	for _, args := range []string{"link add eth0 type veth peer name far0", "link set far0 up", "link set eth0 up"} {
		if _, err := bed.Run(ctx, "ip", strings.Fields(args)...); err != nil {
			return errors.Join(err, bed.Close())
		}
	}
	d.Bed, d.api = bed, newAPI(bed)
	return nil
}

// Close ends everything. What was kept stays in Dir.
func (d *Drill) Close() error { return errors.Join(d.Fleet.Close(), d.Bed.Close()) }

// Begin writes the site and starts the daemon.
func (d *Drill) Begin(ctx context.Context, site string) error {
	if err := d.write(site); err != nil {
		return err
	}
	_, err := d.Bed.Run(ctx, "systemctl", "start", "firstlightd")
	return err
}

// Edit replaces the site, as its owner does.
func (d *Drill) Edit(ctx context.Context, site string) error {
	if err := d.write(site); err != nil {
		return err
	}
	_, err := d.Bed.Run(ctx, "firstlightd", "reload")
	return err
}

func (d *Drill) write(site string) error {
	dir := d.Bed.Path("/run/firstlight/site")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write site: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "site.yaml"), []byte(site), 0o644); err != nil {
		return fmt.Errorf("write site: %w", err)
	}
	return nil
}

// Images that the appliance serves: small, each with bytes of its own.
const (
	ImageA = "system-a"
	ImageB = "system-b"
)

func content(image string) []byte { return []byte(strings.Repeat(image+"\n", 1<<16)) }

// Sum is the sha256 of an image.
func Sum(image string) string { return fmt.Sprintf("%x", sha256.Sum256(content(image))) }

// OS is the line of a node in the site that asks for an image, with a digest that may be wrong.
func OS(image, sum string) string {
	return fmt.Sprintf("os: {url: %q, sha256: %q, format: raw}", Boot+"/"+image+".raw", sum)
}

func (d *Drill) serve(image string) error {
	dir := d.Bed.Kept("/var/lib/firstlight/http")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("serve image: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, image+".raw"), content(image), 0o644); err != nil {
		return fmt.Errorf("serve image: %w", err)
	}
	return nil
}

// What a power cut may lose, each below DATA.
var (
	etcd   = []string{"/var/lib/etcd"}
	ironic = []string{"/var/lib/ironic"}
)

// Loss is what a power cut takes with it.
type Loss int

const (
	Nothing Loss = iota
	Etcd
	Ironic
	Both
)

func (l Loss) String() string {
	return [...]string{"nothing", "etcd", "Ironic's database", "etcd and Ironic's database"}[l]
}

// PowerCut ends the appliance at once, loses what is to be lost, and switches it on again with the same
// site. The servers go on as they are.
func (d *Drill) PowerCut(ctx context.Context, loss Loss, site string) error {
	if err := d.Bed.Close(); err != nil {
		return err
	}
	var lost []string
	if loss == Etcd || loss == Both {
		lost = append(lost, etcd...)
	}
	if loss == Ironic || loss == Both {
		lost = append(lost, ironic...)
	}
	for _, dir := range lost {
		if err := os.RemoveAll(d.Bed.Kept(dir)); err != nil {
			return fmt.Errorf("lose %s: %w", loss, err)
		}
	}
	if err := d.power(ctx); err != nil {
		return err
	}
	if err := d.Fleet.Plug(netns.Of(d.Bed.PID())); err != nil {
		return err
	}
	return d.Begin(ctx, site)
}

// Kill ends a part of the appliance at once, without a chance to tidy up; whoever keeps it starts it again.
func (d *Drill) Kill(ctx context.Context, part string) error {
	commands := map[string][]string{
		"firstlightd": {"systemctl", "kill", "--signal=SIGKILL", "firstlightd"},
		"ironic":      {"pkill", "-KILL", "-f", "/usr/bin/ironic --config-file"},
		"operator":    {"pkill", "-KILL", "-f", "^/baremetal-operator"},
		"apiserver":   {"pkill", "-KILL", "-f", "^kube-apiserver"},
		"etcd":        {"pkill", "-KILL", "-x", "etcd"},
	}
	command := commands[part]
	if command == nil {
		return fmt.Errorf("kill %s: it is no part of the appliance", part)
	}
	_, err := d.Bed.Run(ctx, command[0], command[1:]...) // in the bed's own process namespace
	return err
}

// Dial connects to an address inside the bed's network.
func dial(pid int) func(context.Context, string, string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: 10 * time.Second, FallbackDelay: -1}
	return func(ctx context.Context, family, addr string) (conn net.Conn, err error) {
		err = netns.Within(netns.Of(pid), func() (err error) {
			conn, err = dialer.DialContext(ctx, family, addr)
			return err
		})
		return conn, err
	}
}

// Logs are the last lines of what a container of namespace metal3 said, all its lives together.
func (d *Drill) Logs(container string, bytes int) string {
	files, _ := filepath.Glob(d.Bed.Kept("/var/log/pods/metal3_*/" + container + "/*.log"))
	var out strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		fmt.Fprintf(&out, "%s:\n%s\n", filepath.Base(filepath.Dir(filepath.Dir(file))), text[max(0, len(text)-bytes):])
	}
	return out.String()
}
