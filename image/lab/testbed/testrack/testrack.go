// Package testrack is servers for the appliance to provision: QEMU machines on one switch (package
// vswitch), each with a BMC that turns it on and off. The BMC is OpenIPMI's ipmi_sim, so that Ironic
// talks to it as it does to a real one, or one of package redfish. The appliance is a sandbox that is connected to that
// switch: it may be cut off and started again, and the servers go on running.
package testrack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/image/lab"
	"firstlight.dev/firstlight/image/lab/accelerator"
	"firstlight.dev/firstlight/image/lab/bmc"
	"firstlight.dev/firstlight/image/lab/netns"
	"firstlight.dev/firstlight/image/lab/redfish"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
	"firstlight.dev/firstlight/image/lab/vswitch"
)

// BMCAddr is where the BMCs are: an address of the rack's own on the provisioning network, one
// port per server.
const BMCAddr = "172.22.0.2"

// inside are the addresses of the rack and of what runs within the appliance (its pods and
// services, daemon/appliance/kube). What a frame is for beside them is outside; see Rack.OutsideAddresses.
var inside = []netip.Prefix{
	netip.MustParsePrefix("172.22.0.0/24"), netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("10.96.0.0/12"),
}

// Credentials of every BMC.
const (
	User     = "admin"
	Password = "secret-of-bmc"
)

// ServerConfig is what a server is made of.
type ServerConfig struct {
	Name     string
	Dir      string // disk, console log, BMC's state
	MAC      string
	Port     int    // of the BMC: UDP, or TCP with Redfish
	Redfish  bool   // its BMC speaks Redfish over TLS, and has a drive for discs; else it speaks IPMI
	Disk     int64  // bytes; blank at first; serial number: Name
	Data     string // file of a second disk, serial number Name-data; "": none
	MiB      int    // memory
	Firmware lab.Firmware
	Disks    []lab.Disk // further ones
	Extra    []string   // further arguments of QEMU

	// NoROM lets the firmware boot from the network by itself, which loads its boot program by TFTP; it
	// takes UEFI. Else the NIC has iPXE in its ROM.
	NoROM bool
}

// Server is a server with its BMC.
type Server struct {
	ServerConfig
	ctx     context.Context // of the rack: its machine ends with it
	bmc     *bmc.BMC        // nil: it speaks Redfish
	redfish *redfish.BMC    // nil: it speaks IPMI
	cable   *vswitch.Port
	machine *lab.Machine
}

// Rack is a switch, and a bridge of the kernel's that hangs on it, where the appliance and the BMCs are.
type Rack struct {
	bridge *netns.Bridge
	sw     *vswitch.Switch
	uplink *os.File // the tap between the two
	dir    string   // of sockets; short, because their names may not be long
	accel  accelerator.Choice
}

// New makes a rack without servers. Close it.
func New(ctx context.Context) (*Rack, error) {
	accel, err := accelerator.Choose(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("make rack: %w", err)
	}

	bridge, err := netns.NewBridge(ctx)
	if err != nil {
		return nil, fmt.Errorf("make rack: %w", err)
	}

	r := &Rack{bridge: bridge, sw: vswitch.New(netns.BridgeName, inside...), accel: accel}
	if err := r.build(ctx); err != nil {
		return nil, fmt.Errorf("make rack: %w", errors.Join(err, r.Close()))
	}

	return r, nil
}

func (r *Rack) build(ctx context.Context) error {
	var err error
	if r.dir, err = os.MkdirTemp("", "rack"); err != nil {
		return err
	}
	if err := netns.Do(r.Network(), func() (err error) { r.uplink, err = openTap("uplink"); return err }); err != nil {
		return err
	}
	if err := r.bridge.IP(ctx, "link set uplink master "+netns.BridgeName+" up",
		"addr add "+BMCAddr+"/24 dev "+netns.BridgeName); err != nil {
		return err
	}

	port, err := r.sw.Attach(
		"uplink", func(frame []byte) { _, _ = r.uplink.Write(frame) },
	) // a full queue loses frames, as switches do
	if err != nil {
		return err
	}

	go func() {
		for {
			frame := make([]byte, 2048)
			n, err := r.uplink.Read(frame)
			if err != nil {
				return // closed
			}

			port.Send(frame[:n])
		}
	}()

	return nil
}

// openTap makes a tap in the network of the calling thread (the kernel's tuntap.rst).
func openTap(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open tap: %w", err)
	}

	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}

	if err != nil {
		return nil, fmt.Errorf("open tap %s: %w", name, errors.Join(err, unix.Close(fd)))
	}

	return os.NewFile(uintptr(fd), name), nil
}

// Name is the rack's, unlike that of any other that lives on this machine at the same time.
func (r *Rack) Name() string { return "rack-" + strconv.Itoa(r.bridge.PID()) }

// Network is the file that stands for the network in which the appliance and the BMCs are.
func (r *Rack) Network() string { return r.bridge.Path() }

// Accelerator is what runs the servers' processors, and why.
func (r *Rack) Accelerator() accelerator.Choice { return r.accel }

// OutsideAddresses is every address outside the rack that a frame on its switch was for, with how many.
func (r *Rack) OutsideAddresses() map[netip.Addr]int { return r.sw.Outside() }

// CaptureTo writes every frame on the rack's switch to a new file in pcap's format, until stop is called.
func (r *Rack) CaptureTo(path string) (stop func() error, err error) {
	c, err := vswitch.CaptureTo(path)
	if err != nil {
		return nil, err
	}

	r.sw.Capture(c)
	return func() error {
		r.sw.Capture(nil)
		return c.Close()
	}, nil
}

// Close ends the rack's network. Unplug its servers before.
func (r *Rack) Close() error {
	errs := []error{r.sw.Close()}
	if r.uplink != nil {
		errs = append(errs, r.uplink.Close())
	}

	if r.dir != "" {
		errs = append(errs, os.RemoveAll(r.dir))
	}

	r.bridge.Close()
	return errors.Join(errs...)
}

// Connect gives an appliance its provisioning NIC, eth0. It must be called before the daemon starts. The
// cable of the sandbox before goes with that sandbox, or a little later: the kernel takes its time.
func (r *Rack) Connect(ctx context.Context, appliance *sandbox.Sandbox) error {
	return r.bridge.Connect(ctx, appliance.PID(), "port0", "eth0")
}

// Plug puts a server into the rack: switched off, its BMC alive. A disk that is there already
// is kept. The server lives no longer than ctx.
func (r *Rack) Plug(ctx context.Context, s ServerConfig) (*Server, error) {
	b := &Server{ServerConfig: s, ctx: ctx}
	if err := r.plug(b); err != nil {
		return nil, fmt.Errorf("plug server %s: %w", s.Name, err)
	}
	return b, nil
}

func (r *Rack) plug(b *Server) error {
	socket := filepath.Join(r.dir, b.Name)
	mac, err := net.ParseMAC(b.MAC)
	if err != nil {
		return err
	}
	if b.machine, err = lab.New(b.machineConfig(r.accel.Kind, mac, socket)); err != nil {
		return err
	}

	disk, err := os.OpenFile(b.DiskFile(), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	if err := errors.Join(disk.Truncate(b.Disk), disk.Close()); err != nil {
		return err
	}
	if b.cable, err = r.sw.Listen(b.Name, socket); err != nil {
		return err
	}

	if b.Redfish {
		return r.startRedfish(b)
	}
	return r.startIPMI(b)
}

// machineConfig is the server's machine, with its network at a socket of the switch.
func (b *Server) machineConfig(accel accelerator.Kind, mac net.HardwareAddr, socket string) lab.Config {
	c := lab.Config{
		Name:     b.Name,
		Dir:      b.Dir,
		Firmware: b.Firmware,
		Accel:    accel,
		CPUs:     1, // of two, Debian's kernel now and then falls over its own patching of code (int3), when emulation is slow
		MiB:      b.MiB,
		Disks:    []lab.Disk{{Image: b.DiskFile(), Bus: lab.Virtio, Direct: true, Serial: b.Name, Quick: true}},
		NICs:     []lab.NIC{{MAC: mac, Port: socket, NoROM: b.NoROM}},
		Extra:    b.Extra,
	}
	if b.Redfish {
		c.CD = &lab.CD{}
	}

	if b.Data != "" {
		data := lab.Disk{
			Image:  b.Data,
			Bus:    lab.Virtio,
			Direct: true,
			Serial: b.Name + "-data",
			Quick:  true,
		}
		c.Disks = append(c.Disks, data)
	}
	c.Disks = append(c.Disks, b.Disks...)
	return c
}

// Cable is the server's port of the switch: what is wrong with it can be set, and counted.
func (b *Server) Cable() *vswitch.Port { return b.cable }

// DiskFile is the server's disk, raw.
func (b *Server) DiskFile() string { return filepath.Join(b.Dir, "disk.raw") }

// Console is what the server printed on its serial line, all power-on periods together.
func (b *Server) Console() string {
	text, err := os.ReadFile(filepath.Join(b.Dir, "console.log"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// IsOn reports whether the server has power.
func (b *Server) IsOn() bool { return b.machine.IsRunning() }

// SwitchOn starts the server from the device that its BMC was given last.
func (b *Server) SwitchOn(device string) error {
	if b.IsOn() {
		return nil
	}
	b.machine.Reconfigure(func(c *lab.Config) { c.BootFrom(lab.BootDevice(device)) })
	return b.machine.Start(b.ctx)
}

// SwitchOff cuts the server's power.
func (b *Server) SwitchOff() error { return b.machine.Kill() }

// ShutDown cuts the power as well: no system waits for a button here.
func (b *Server) ShutDown() error { return b.SwitchOff() }

// Insert puts the image of a disc into the server's drive; "" empties it.
func (b *Server) Insert(file string) error { return b.machine.Insert(b.ctx, file) }

// Unplug ends the BMC and cuts the power. The disk stays.
func (b *Server) Unplug() error {
	return errors.Join(b.closeBMC(), b.machine.Close(), b.cable.Close())
}
