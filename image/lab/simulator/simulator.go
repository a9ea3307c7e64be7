// Package simulator is servers that do not exist, for the appliance to provision: each has a Redfish BMC
// that speaks HTTP or TLS, a firmware that asks the boot server for its script, a ramdisk whose agent
// makes the requests of ironic-python-agent, and disks that remember what was written to them. Fifty
// fit into one process, so that what fifty hosts do to Ironic and to the operator is seen in minutes.
//
//	f, err := simulator.Start(simulator.Config{Hosts: 50, Boot: "http://172.22.0.1:6180", Namespace: "/proc/4711/ns/net"})
//	defer f.Close()
//	f.Hosts()[6].Break(simulator.Faults{Hang: true})
//	fmt.Println(f.Total().BMCWrites, f.Total().DiskWrites)
//
// What is real: the network (each host has two addresses of its own, one of them from DHCP), TLS on both sides, the trust in
// the appliance (read from the end of the ramdisk that is served, as the kernel would unpack it), the
// requests and their order, the pauses between heartbeats, tokens, an image that is downloaded and
// summed up. What is not: TFTP (the firmware asks for the script that DHCP would name), the
// kernel, the bytes on the disks. Modelled on ironic-python-agent 10.2 and DMTF's DSP0266.
package simulator

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"
)

// Ports of every host.
const (
	BMCPort   = 8443
	AgentPort = 9999 // ironic-python-agent's own
)

// Config sets a simulator up. Hosts and Boot are required.
type Config struct {
	Hosts int
	Boot  string // the boot server, http://ADDR:PORT

	// Addresses of the first host; each further host has the next ones.
	BMC   netip.Addr // zero: 127.23.0.1
	Agent netip.Addr // zero: 127.22.0.1

	Username, Password string // of every BMC; "": admin and secret-of-bmc
	PlainBMC           bool   // BMCs speak HTTP (redfish+http), not TLS

	// Namespace is the network namespace that the BMCs are in, e.g. /proc/PID/ns/net; "": this one's.
	Namespace string
	// Wire is the network namespace that the hosts boot in, and NIC its interface on the provisioning network, by
	// which each asks for its address when it is switched on. Without a NIC they have those of Agent, in Namespace.
	Wire string
	NIC  string

	BootTime  time.Duration // from power to the agent's first call; 0: 3 s
	WorkTime  time.Duration // of a command that a real agent takes a while for; 0: 500 ms
	Heartbeat time.Duration // least time between two heartbeats; 0: 5 s, as the real agent
	Log       *slog.Logger  // nil: nothing is logged

	// Keep is a file that keeps disks, power, passwords and the BMCs' certificate: hosts begin with what it says. "":
	// nothing outlives the simulator.
	Keep string
}

// Simulator is hosts that live.
type Simulator struct {
	config Config
	net    *network         // of the BMCs
	wire   *network         // of the hosts: the provisioning network
	cert   *tls.Certificate // of every BMC
	hosts  []*Server

	leasing sync.Mutex    // of the addresses of wire's interface
	changed chan struct{} // something is to be kept
	keeping sync.WaitGroup
	ctx     context.Context
	stop    context.CancelFunc
	work    sync.WaitGroup
}

// Start plugs in the hosts: switched off, nothing on their disks, their BMCs alive; or as Config.Keep has them.
func Start(c Config) (*Simulator, error) {
	c.setDefaults()
	f := &Simulator{config: c, net: &network{namespace: c.Namespace}, changed: make(chan struct{}, 1)}
	f.wire = f.net
	if c.NIC != "" {
		f.wire = &network{namespace: c.Wire}
	}

	f.ctx, f.stop = context.WithCancel(context.Background())
	var kept keptServers
	var err error
	if c.Keep != "" {
		if kept, err = readKept(c.Keep); err != nil {
			return nil, err
		}
	}
	if !c.PlainBMC {
		if f.cert, err = kept.certificate(c.BMC); err != nil {
			return nil, err
		}
	}

	bmc, agent := c.BMC, c.Agent
	for i := range c.Hosts {
		h := newServer(f, i+1, bmc, agent)
		f.hosts = append(f.hosts, h)
		if was, found := kept.Servers[h.Name]; found {
			h.restore(was)
		}
		if err := h.service.open(f.net); err != nil {
			return nil, errors.Join(err, f.Close())
		}

		bmc, agent = bmc.Next(), agent.Next()
	}

	if c.Keep != "" {
		f.keeping.Go(f.keepServers)
		f.noteChange()
	}
	for _, h := range f.hosts {
		if kept.Servers[h.Name].On {
			h.SwitchOn(!h.isInstalled()) // from a disk with nothing on it a firmware goes on to the network
		}
	}

	return f, nil
}

func (c *Config) setDefaults() {
	if !c.BMC.IsValid() {
		c.BMC = netip.MustParseAddr("127.23.0.1")
	}

	if !c.Agent.IsValid() {
		c.Agent = netip.MustParseAddr("127.22.0.1")
	}

	if c.Username == "" {
		c.Username = "admin"
	}

	if c.Password == "" {
		c.Password = "secret-of-bmc"
	}

	if c.BootTime == 0 {
		c.BootTime = 3 * time.Second
	}

	if c.WorkTime == 0 {
		c.WorkTime = 500 * time.Millisecond
	}

	if c.Heartbeat == 0 {
		c.Heartbeat = 5 * time.Second
	}

	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

// Hosts are all hosts, the first at index 0.
func (f *Simulator) Hosts() []*Server { return f.hosts }

// Username and Password are what the site needs to know of the BMCs.
func (f *Simulator) Username() string { return f.config.Username }

// Password of every BMC, unless a fault changed it.
func (f *Simulator) Password() string { return f.config.Password }

// TotalCounters sums up what was done to all hosts.
func (f *Simulator) TotalCounters() Counters {
	var sum Counters
	for _, h := range f.hosts {
		sum = sum.plus(h.Counters())
	}
	return sum
}

// ResetCounters begins counting anew.
func (f *Simulator) ResetCounters() {
	for _, h := range f.hosts {
		h.resetCounters()
	}
}

// MoveTo moves the BMCs of all hosts, and without a NIC the hosts, as they are, to another network namespace: that of an
// appliance which was switched off and on again. Connections break, as they do then.
func (f *Simulator) MoveTo(namespace string) error {
	return f.net.move(namespace)
}

// Close cuts the power and ends the BMCs.
func (f *Simulator) Close() error {
	f.stop() // from now on no button starts anything
	f.keeping.Wait()
	var err error
	if f.config.Keep != "" {
		err = f.writeKept() // before the power is cut: what was on goes on
	}

	for _, h := range f.hosts {
		h.Power(false)
	}

	f.work.Wait()
	return errors.Join(err, f.net.close(), f.wire.close())
}

// sleep waits; false when the host lost its power meanwhile.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
