// Package redfish gives a machine of the lab a BMC that speaks Redfish (DMTF, DSP0266 and DSP0268) over TLS, as far as
// Ironic and the appliance ask. It is the counterpart of package bmc, whose BMCs speak IPMI: the buttons act on the
// Machine behind it. It can also put the image of a disc, which it fetches itself, into the machine's drive.
package redfish

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"firstlight.dev/firstlight/image/lab/bmc"
)

// Machine is what the buttons act on, and the drive that discs are put into. Calls come one at a time.
type Machine interface {
	bmc.Machine

	// Insert puts the image of a disc into the drive, whether the machine is on or off; "" empties it.
	Insert(file string) error
}

// Config describes one BMC.
type Config struct {
	Name     string // of the server
	Dir      string // for its certificate and the disc that is in the drive; made if absent
	User     string
	Password string
	Serial   string             // of the server; "": it says none
	MACs     []net.HardwareAddr // of the server's NICs
	UEFI     bool               // the machine's firmware; else it is a BIOS
	Front    net.Listener       // where it is asked, without TLS; closed with the BMC

	// Dial connects to where images are, from the network that the BMC is in; nil: from this computer's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// BMC is a controller that answers.
type BMC struct {
	config  Config
	machine Machine
	server  *http.Server
	client  *http.Client // for images

	mu       sync.Mutex
	boot     boot
	media    media
	sessions map[string]bool // by token
	writes   []string
}

// Start makes the BMC answer.
func Start(c Config, m Machine) (*BMC, error) {
	b := &BMC{
		config:   c,
		machine:  m,
		client:   &http.Client{Transport: &http.Transport{DialContext: c.Dial, DisableKeepAlives: true}},
		sessions: map[string]bool{},
	}
	if err := b.start(); err != nil {
		return nil, fmt.Errorf("start BMC of %s: %w", c.Name, errors.Join(err, c.Front.Close()))
	}

	return b, nil
}

func (b *BMC) start() error {
	dir, err := filepath.Abs(b.config.Dir)
	if err != nil {
		return err
	}
	b.config.Dir = dir
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}

	left, err := filepath.Glob(filepath.Join(dir, discFiles)) // the drive is empty when a BMC starts
	for _, file := range left {
		err = errors.Join(err, os.Remove(file))
	}
	if err != nil {
		return err
	}

	if b.boot, err = loadBoot(dir); err != nil {
		return err
	}

	certificate, err := ensureCertificate(dir)
	if err != nil {
		return err
	}

	b.server = &http.Server{Handler: b.handler(), ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute}
	listener := tls.NewListener(b.config.Front, &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{certificate},
	})
	go func() { _ = b.server.Serve(listener) }() // until it is closed
	return nil
}

// Writes is every order that the BMC was given and followed, oldest first: "boot Pxe Once", "power ForceOff", "insert
// http://…", "eject".
func (b *BMC) Writes() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.writes...)
}

// Device is what the machine starts from next, as package bmc names it.
func (b *BMC) Device() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	device, _ := b.boot.next()
	return device
}

// PowerOn does what a person at the server's front would, in line with what the BMC is told.
func (b *BMC) PowerOn() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reset(resetOn)
}

// Close ends the BMC, not the machine.
func (b *BMC) Close() error { return b.server.Close() }
