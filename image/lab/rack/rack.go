// Package rack is servers for the appliance to provision: QEMU machines on the provisioning
// network of a bed (package native), each with a BMC that switches it on and off. The BMC is
// OpenIPMI's ipmi_sim, so that Ironic speaks to it as it does to a real one.
package rack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"firstlight.dev/firstlight/image/lab/bmc"
	"firstlight.dev/firstlight/image/lab/native"
	"firstlight.dev/firstlight/image/lab/netns"
)

// BMCAddr is where the BMCs of a bed are: an address of the bed's own, one port per server.
const BMCAddr = "10.55.0.1"

// Credentials of every BMC.
const (
	User     = "admin"
	Password = "secret-of-bmc"
)

// Server is what a server is made of.
type Server struct {
	Name string
	Dir  string // disk, console log, BMC's state
	MAC  string
	Port int    // of the BMC, UDP
	Disk int64  // bytes; blank at first
	MiB  int    // memory
	Code string // UEFI firmware (OVMF_CODE); "": BIOS
	Vars string // its variables, copied; with Code
}

// Box is a server with its BMC.
type Box struct {
	Server
	bed *native.Bed
	bmc *bmc.BMC

	mu    sync.Mutex
	qemu  *exec.Cmd
	ended chan struct{}
}

// Cable makes the bed's provisioning NIC, eth0, and the switch that servers are plugged into.
// It must be called before the daemon starts.
func Cable(ctx context.Context, bed *native.Bed) error {
	for _, args := range []string{
		"addr add " + BMCAddr + "/32 dev lo",
		"link add rack type bridge",
		"link add eth0 type veth peer name port0",
		"link set port0 master rack", "link set port0 up", "link set rack up", "link set eth0 up",
	} {
		if _, err := bed.Run(ctx, "ip", strings.Fields(args)...); err != nil {
			return fmt.Errorf("cable the rack: %w", err)
		}
	}
	return nil
}

// Plug puts a server into the rack: switched off, its BMC alive.
func Plug(ctx context.Context, bed *native.Bed, s Server) (*Box, error) {
	b := &Box{Server: s, bed: bed}
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("plug server %s: %w", s.Name, err)
	}
	disk, err := os.OpenFile(b.DiskFile(), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("plug server %s: %w", s.Name, err)
	}
	if err := errors.Join(disk.Truncate(s.Disk), disk.Close()); err != nil {
		return nil, fmt.Errorf("plug server %s: %w", s.Name, err)
	}
	for _, args := range []string{
		"tuntap add " + b.tap() + " mode tap", "link set " + b.tap() + " master rack", "link set " + b.tap() + " up",
	} {
		if _, err := bed.Run(ctx, "ip", strings.Fields(args)...); err != nil {
			return nil, fmt.Errorf("plug server %s: %w", s.Name, err)
		}
	}
	var front net.PacketConn
	at := net.JoinHostPort(BMCAddr, strconv.Itoa(s.Port))
	if err := netns.Within(netns.Of(bed.PID()), func() (err error) { front, err = net.ListenPacket("udp", at); return err }); err != nil {
		return nil, fmt.Errorf("plug server %s: listen for its BMC: %w", s.Name, err)
	}
	b.bmc, err = bmc.Start(bmc.Config{Name: s.Name, Dir: filepath.Join(s.Dir, "bmc"), User: User, Password: Password, Front: front}, b)
	if err != nil {
		return nil, fmt.Errorf("plug server %s: %w", s.Name, err)
	}
	return b, nil
}

// BMC is the server's controller.
func (b *Box) BMC() *bmc.BMC { return b.bmc }

func (b *Box) tap() string { return "tap" + strconv.Itoa(b.Port) }

// DiskFile is the server's disk, raw.
func (b *Box) DiskFile() string { return filepath.Join(b.Dir, "disk.raw") }

// Console is what the server said on its serial line, all power-on periods together.
func (b *Box) Console() string {
	text, err := os.ReadFile(filepath.Join(b.Dir, "console.log"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// On tells whether the server has power.
func (b *Box) On() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.on()
}

func (b *Box) on() bool {
	if b.qemu == nil {
		return false
	}
	select {
	case <-b.ended:
		return false
	default:
		return true
	}
}

// enter runs a program of this machine in the bed's network.
func (b *Box) enter(name string, args ...string) *exec.Cmd {
	cmd := exec.Command("nsenter", append([]string{"--net=/proc/" + strconv.Itoa(b.bed.PID()) + "/ns/net", "--", name}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// SwitchOn starts the server from the device that its BMC was told last.
func (b *Box) SwitchOn(device string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.on() {
		return nil
	}
	disk, nic := 1, 2
	if device == bmc.BootNetwork {
		disk, nic = 2, 1
	}
	args := []string{
		"-name", b.Name, "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "Nehalem,-cx16,+aes,+pclmulqdq,+rdrand",
		"-smp", "2", "-m", strconv.Itoa(b.MiB), "-display", "none", "-monitor", "none", "-no-user-config", "-nodefaults", "-vga", "none",
		"-chardev", "file,id=console,append=on,path=" + filepath.Join(b.Dir, "console.log"), "-serial", "chardev:console", "-device", "virtio-rng-pci",
		"-drive", "if=none,id=disk0,format=raw,cache=unsafe,discard=unmap,file=" + b.DiskFile(),
		"-device", fmt.Sprintf("virtio-blk-pci,drive=disk0,serial=%s,bootindex=%d", b.Name, disk),
		"-netdev", "tap,id=net0,script=no,downscript=no,ifname=" + b.tap(),
		"-device", fmt.Sprintf("virtio-net-pci,netdev=net0,mac=%s,bootindex=%d", b.MAC, nic),
	}
	if b.Code != "" {
		vars := filepath.Join(b.Dir, "vars.fd")
		if _, err := os.Stat(vars); err != nil {
			text, err := os.ReadFile(b.Vars)
			if err != nil {
				return fmt.Errorf("read firmware variables: %w", err)
			}
			if err := os.WriteFile(vars, text, 0o644); err != nil {
				return fmt.Errorf("write firmware variables: %w", err)
			}
		}
		args = append(args, "-drive", "if=pflash,format=raw,readonly=on,file="+b.Code, "-drive", "if=pflash,format=raw,file="+vars)
	}
	cmd := b.enter("qemu-system-x86_64", args...)
	said, err := os.OpenFile(filepath.Join(b.Dir, "qemu.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start server %s: %w", b.Name, err)
	}
	defer said.Close()
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start server %s: %w", b.Name, err)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	b.qemu, b.ended = cmd, ended
	return nil
}

// SwitchOff cuts the server's power.
func (b *Box) SwitchOff() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stop()
	return nil
}

// ShutDown cuts the power as well: no system waits for a button here.
func (b *Box) ShutDown() error { return b.SwitchOff() }

func (b *Box) stop() {
	if b.on() {
		syscall.Kill(-b.qemu.Process.Pid, syscall.SIGKILL)
		<-b.ended
	}
}

// Unplug ends the BMC and cuts the power. The disk stays.
func (b *Box) Unplug() error {
	return errors.Join(b.bmc.Close(), b.SwitchOff())
}
