package simulator

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"firstlight.dev/firstlight/assets/atomicfile"
)

// keptServers is the file of Config.Keep: what outlives the simulator as it would outlive a power cut.
type keptServers struct {
	Certificate []byte                `json:"certificate,omitempty"` // DER, of every BMC
	Key         []byte                `json:"key,omitempty"`         // DER, PKCS #8
	Servers     map[string]keptServer `json:"servers"`
}

// keptServer is what is kept of one server.
type keptServer struct {
	On       bool       `json:"on"`
	State    State      `json:"state"`   // for people
	Address  netip.Addr `json:"address"` // for people
	Disks    []Disk     `json:"disks"`
	Password string     `json:"password,omitempty"` // that the BMC was given
}

// Kept is what the file at path says that each server did when it was written.
func Kept(path string) (map[string]State, error) {
	kept, err := readKept(path)
	states := map[string]State{}
	for name, server := range kept.Servers {
		states[name] = server.State
	}
	return states, err
}

func readKept(path string) (keptServers, error) {
	var kept keptServers
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return kept, nil
	}
	if err != nil {
		return kept, fmt.Errorf("read servers: %w", err)
	}
	if err := json.Unmarshal(text, &kept); err != nil {
		return kept, fmt.Errorf("read servers from %s: %w", path, err)
	}

	return kept, nil
}

// certificate is the kept one, else a new one.
func (k keptServers) certificate(addr netip.Addr) (*tls.Certificate, error) {
	if len(k.Certificate) == 0 {
		cert, _, err := selfSigned(addr)
		return &cert, err
	}

	key, err := x509.ParsePKCS8PrivateKey(k.Key)
	if err != nil {
		return nil, fmt.Errorf("read key of BMCs: %w", err)
	}

	return &tls.Certificate{Certificate: [][]byte{k.Certificate}, PrivateKey: key}, nil
}

// restore gives a server that was just made what was kept of it. It was on: it is switched on when its BMC serves.
func (h *Server) restore(kept keptServer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.disks, h.password = kept.Disks, kept.Password
}

// keepServers writes the file whenever something has changed, until the simulator ends.
func (f *Simulator) keepServers() {
	for {
		select {
		case <-f.ctx.Done():
			return
		case <-f.changed:
			if err := f.writeKept(); err != nil {
				f.config.Log.Error("servers not kept", "error", err)
			}
		}
	}
}

// noteChange has the servers kept soon.
func (f *Simulator) noteChange() {
	select {
	case f.changed <- struct{}{}:
	default: // it is to be kept already
	}
}

func (f *Simulator) writeKept() error {
	kept := keptServers{Servers: map[string]keptServer{}}
	if f.cert != nil {
		key, err := x509.MarshalPKCS8PrivateKey(f.cert.PrivateKey)
		if err != nil {
			return fmt.Errorf("keep key of BMCs: %w", err)
		}
		kept.Certificate, kept.Key = f.cert.Certificate[0], key
	}

	for _, h := range f.hosts {
		kept.Servers[h.Name] = h.keep()
	}

	text, err := json.MarshalIndent(kept, "", "  ")
	if err != nil {
		return fmt.Errorf("keep servers: %w", err)
	}

	return atomicfile.Write(f.config.Keep, append(text, '\n'), 0o600)
}

func (h *Server) keep() keptServer {
	h.mu.Lock()
	defer h.mu.Unlock()
	disks := make([]Disk, len(h.disks))
	copy(disks, h.disks)
	return keptServer{
		On:       h.running != nil,
		State:    h.state(),
		Address:  h.address,
		Disks:    disks,
		Password: h.password,
	}
}
