package simulator

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"firstlight.dev/firstlight/assets/inspection"
)

// Server is one server.
type Server struct {
	Name string // node1, node2, …
	MAC  string // of the NIC it boots from

	simulator *Simulator
	index     int
	bmcAddr   netip.Addr
	service   *service // the BMC

	mu        sync.Mutex
	address   netip.Addr // of its firmware and its agent
	faults    Faults
	disks     []Disk
	drives    [][]byte
	installed []byte   // config drive on the disk that was written last
	tokens    []string // that its ramdisks were given: of their boots, and of their agents
	seen      Counters
	events    []Event
	running   *powerOnPeriod // nil: switched off
	override  override
	disc      string          // image of the disc that it starts from next; "": none
	inBand    string          // address of its BMC as its own system sees it; "": it sees none
	netFirst  bool            // its firmware boots the network before its disk, and begins again when there is nothing
	sessions  map[string]bool // tokens of the BMC
	password  string          // that the BMC was given; "": the simulator's
}

// powerOnPeriod is the time from power on to power off.
type powerOnPeriod struct {
	ctx   context.Context
	off   context.CancelFunc
	state State
	agent *agent // of the ramdisk, once it is up
}

// State is what a host is doing.
type State string

const (
	Off      State = "off"
	Firmware State = "firmware" // boots, or waits for its boot
	Ramdisk  State = "ramdisk"
	OnDisk   State = "disk"    // the system on its disk runs
	Nothing  State = "nothing" // it found nothing to boot
)

// Faults are what is wrong with a host; the zero value is a sound one.
type Faults struct {
	Password    string // the BMC's, instead of the simulator's
	Hang        bool   // the BMC takes requests and never answers
	Status      int    // the BMC answers every request with it, e.g. 500
	FixedLogin  bool   // the BMC changes no password
	LostAnswer  bool   // the BMC changes a password, and its answer is lost
	StuckPower  bool   // the BMC accepts a reset and nothing happens
	Mute        bool   // the ramdisk boots and its agent never calls
	Corrupt     bool   // what the agent downloads arrives with a bit flipped
	BadDisk     bool   // every write to a disk ends in an input/output error
	TokenStolen bool   // somebody asks for the agent's token before the agent does
}

// Counters are what was done to a host.
type Counters struct {
	BMCReads     int // GET
	BMCWrites    int // resets, boot overrides, resets of the BMC: all that changes something
	BMCLogins    int // passwords and tokens of sessions that were right
	BMCRefused   int // and that were wrong
	BMCPasswords int // passwords that were changed
	BMCUnknown   int // requests for what the BMC does not have
	DiskWrites   int // images begun, disks erased
	Boots        int
	Heartbeats   int // that Ironic accepted
}

func (c Counters) plus(o Counters) Counters {
	return Counters{
		c.BMCReads + o.BMCReads, c.BMCWrites + o.BMCWrites, c.BMCLogins + o.BMCLogins, c.BMCRefused + o.BMCRefused,
		c.BMCPasswords + o.BMCPasswords, c.BMCUnknown + o.BMCUnknown, c.DiskWrites + o.DiskWrites, c.Boots + o.Boots, c.Heartbeats + o.Heartbeats,
	}
}

// Disk is one disk and what is on it.
type Disk struct {
	Name   string // /dev/sda
	Serial string
	WWN    string           // "": it has none
	Size   int64            // bytes
	Image  string           // sha256 of the whole image that was written last; "" if none was, or not to its end
	Drive  bool             // a config drive is beside it
	Holds  []string         // what the collector sees on it: tables, file systems (libblkid's names); nil: blank
	Mark   *inspection.Mark // and who installed it; nil: nobody says so
	Writes int
	Media  string   // how it erases itself: "nvme" or "ata"; "": it does not, and is overwritten
	Erased []string // how it was erased, each time to its end
	// HostKey is the public half of the SSH host key of the system on it, as in authorized_keys; "": none was made.
	HostKey string
}

// Event is something that happened to a host.
type Event struct {
	At   time.Time
	What string
}

// maxEvents bounds what is remembered; the oldest go.
const maxEvents = 2000

func newServer(f *Simulator, i int, bmc, agent netip.Addr) *Server {
	h := &Server{
		Name:      fmt.Sprintf("node%d", i),
		MAC:       fmt.Sprintf("52:54:01:00:%02x:%02x", i>>8, i&0xff),
		simulator: f,
		index:     i,
		bmcAddr:   bmc,
		address:   agent,
		sessions:  map[string]bool{},
		disks:     []Disk{{Name: "/dev/sda", Serial: fmt.Sprintf("DISK%d", i), Size: 480 << 30}},
	}
	h.service = &service{addr: netip.AddrPortFrom(bmc, BMCPort), handler: http.HandlerFunc(h.serveBMC), cert: f.cert}
	return h
}

// BMC is the address of the host's BMC as site.yaml takes it.
func (h *Server) BMC() string {
	scheme := "redfish"
	if h.simulator.config.PlainBMC {
		scheme = "redfish+http"
	}
	return fmt.Sprintf("%s://%s%s", scheme, h.service.addr, systemPath)
}

// ReplaceCertificate gives the BMC another certificate, as a new BMC or an impostor has. It returns its SHA-256.
func (h *Server) ReplaceCertificate() (string, error) {
	cert, _, err := selfSigned(h.bmcAddr)
	if err != nil {
		return "", err
	}

	h.logEvent("bmc: another certificate")
	return fmt.Sprintf("%x", sha256.Sum256(cert.Certificate[0])), h.simulator.net.replaceCertificate(h.service, &cert)
}

// SetFaults makes the host have these faults and no others.
func (h *Server) SetFaults(faults Faults) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = faults
}

func (h *Server) currentFaults() Faults {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.faults
}

// SetDisks gives the host other disks, blank or not.
func (h *Server) SetDisks(disks ...Disk) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.disks = slices.Clone(disks)
}

// Disks are its disks as they are now.
func (h *Server) Disks() []Disk {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.disks)
}

// Counters are what was done to the host since it was plugged in or Zero was called.
func (h *Server) Counters() Counters {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seen
}

func (h *Server) resetCounters() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = Counters{}
}

func (h *Server) count(add func(*Counters)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	add(&h.seen)
}

// State is what the host is doing.
func (h *Server) State() State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state()
}

func (h *Server) state() State {
	if h.running == nil {
		return Off
	}
	return h.running.state
}

// Events are what happened, oldest first.
func (h *Server) Events() []Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events)
}

func (h *Server) logEvent(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.logEventLocked(format, args...)
}

func (h *Server) logEventLocked(format string, args ...any) {
	e := Event{time.Now(), fmt.Sprintf(format, args...)}
	if len(h.events) == maxEvents {
		h.events = append(h.events[:0], h.events[maxEvents/2:]...)
	}

	h.events = append(h.events, e)
	h.simulator.noteChange()
	h.simulator.config.Log.Info(e.What, "host", h.Name)
}

// Power presses the button, as a person in front of the server would: it is no write of the BMC's.
func (h *Server) Power(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.power(on)
}

// SwitchOn is Power of another BMC than the server's own Redfish: it boots from the network or from its disk.
func (h *Server) SwitchOn(network bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.override = override{}
	if network {
		h.override = override{Target: "Pxe", Enabled: "Once"}
	}
	h.power(true)
}

// SetInBandBMC makes the server's system see a BMC with this address.
func (h *Server) SetInBandBMC(address string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.inBand = address
}

// SetNetworkFirst gives the host a firmware that boots the network before its disk, again and again while neither has
// anything for it.
func (h *Server) SetNetworkFirst() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.netFirst = true
}

func (h *Server) power(on bool) {
	h.simulator.noteChange()
	switch {
	case on && h.running == nil && h.simulator.ctx.Err() == nil:
		r := &powerOnPeriod{state: Firmware}
		r.ctx, r.off = context.WithCancel(h.simulator.ctx)
		h.running = r
		h.seen.Boots++
		network, disc := h.override.consume() || h.netFirst, h.disc
		h.disc = ""
		h.simulator.work.Go(func() {
			if disc != "" {
				h.runDisc(r, disc)
				return
			}
			h.runBoot(r, network)
		})
	case !on && h.running != nil:
		h.running.off()
		h.running = nil
	}
}

// setState notes that the host has come further; false if its power was cut meanwhile.
func (h *Server) setState(r *powerOnPeriod, s State, a *agent) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running != r {
		return false
	}

	r.state, r.agent = s, a
	h.logEventLocked("boot: %s", s)
	return true
}

// powerOffGuest is the guest's own power off, or reboot; of the boot that asked for it and no later one.
func (h *Server) powerOffGuest(r *powerOnPeriod, again bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running != r {
		return
	}

	h.logEventLocked("guest: power off, again=%v", again)
	h.power(false)
	h.power(again)
}
