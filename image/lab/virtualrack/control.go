package virtualrack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"time"

	"firstlight.dev/firstlight/image/lab/vswitch"
)

// serve answers on the control socket; whoever may enter the rack's directory may use it.
func (s *supervisor) serve(stop func()) (end func(), err error) {
	if err := os.Remove(controlSocket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("serve control socket: %w", err)
	}

	l, err := net.Listen("unix", controlSocket)
	if err != nil {
		return nil, fmt.Errorf("serve control socket: %w", err)
	}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s.status())
	})
	mux.HandleFunc("POST /v1/power", errorHandler(s.servePower))
	mux.HandleFunc("POST /v1/throttle", errorHandler(s.serveThrottle))
	mux.HandleFunc("POST /v1/cable", errorHandler(s.serveCable))
	mux.HandleFunc("GET /v1/dial", s.serveDial)
	mux.HandleFunc("POST /v1/stop", func(http.ResponseWriter, *http.Request) { stop() })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }() // until it is closed
	return func() { server.Close() }, nil
}

// errorHandler turns a function's error into an answer.
func errorHandler(do func(*http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := do(r); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	}
}

func (s *supervisor) find(name string) (*machine, error) {
	for _, c := range s.all {
		if c.Name == name {
			return c, nil
		}
	}
	_, err := s.rack.Find(name)
	return nil, err
}

// machinesNamed are the machine of that name, or all.
func (s *supervisor) machinesNamed(name string) ([]*machine, error) {
	if name == All {
		return s.all, nil
	}
	c, err := s.find(name)
	return []*machine{c}, err
}

func (s *supervisor) servePower(r *http.Request) error {
	machines, err := s.machinesNamed(r.FormValue("machine"))
	if err != nil {
		return err
	}

	var errs []error
	for _, c := range machines {
		s.log.Info("button pressed", "machine", c.Name, "button", r.FormValue("button"))
		errs = append(errs, c.press(r.FormValue("button")))
	}

	s.updatePhases(time.Now()) // who asks next is not told of what was before
	return errors.Join(errs...)
}

// serveThrottle gives machines a share of this computer's processors each.
func (s *supervisor) serveThrottle(r *http.Request) error {
	machines, err := s.machinesNamed(r.FormValue("machine"))
	if err != nil {
		return err
	}

	share, err := strconv.ParseFloat(r.FormValue("share"), 64)
	if err := errors.Join(err, CheckShare(share)); err != nil {
		return err
	}

	var errs []error
	for _, c := range machines {
		s.log.Info("machine throttled", "machine", c.Name, "processors", share)
		errs = append(errs, c.machine.Throttle(share))
	}

	return errors.Join(errs...)
}

// serveCable changes the cables of a machine, or that of one of its networks.
func (s *supervisor) serveCable(r *http.Request) error {
	c, err := s.find(r.FormValue("machine"))
	if err != nil {
		return err
	}

	var f vswitch.Fault
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<16)).Decode(&f); err != nil {
		return fmt.Errorf("read fault: %w", err)
	}
	if f.Loss < 0 || f.Loss > 1 || f.Delay < 0 || f.Delay > time.Minute {
		return fmt.Errorf("loss %v, delay %s; want 0 to 1 and 0 to 1m", f.Loss, f.Delay)
	}

	which := Cables{Network: r.FormValue("network")}
	if text := r.FormValue("card"); text != "" {
		if which.Card, err = strconv.Atoi(text); err != nil {
			return fmt.Errorf("card %q: want a number", text)
		}
	}

	cards := c.findCards(which)
	if len(cards) == 0 {
		return fmt.Errorf("machine %s has no cable %s", c.Name, which)
	}

	var errs []error
	for _, i := range cards {
		errs = append(errs, c.setFault(i, f))
	}

	s.log.Info("cables changed", "machine", c.Name, "which", which, "now", f)
	return errors.Join(errs...)
}

// serveDial connects the caller to a TCP port of a machine, by name or by address.
func (s *supervisor) serveDial(w http.ResponseWriter, r *http.Request) {
	to, err := s.resolveAddress(r.FormValue("host"), r.FormValue("port"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}

	for network, st := range s.endpoints {
		if !networks[network].Contains(to.Addr()) {
			continue
		}

		far, err := st.Dial(r.Context(), to)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}

		near, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			far.Close()
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}

		_, _ = io.WriteString(near, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
		join(far, near, buffered)
		return
	}

	http.Error(w, fmt.Sprintf("%s is in none of the rack's networks", to), http.StatusBadRequest)
}

// join copies both ways until either side ends.
func join(far, near net.Conn, from io.Reader) {
	done := make(chan struct{}, 2)
	go func() { _, _ = io.Copy(far, from); done <- struct{}{} }()
	go func() { _, _ = io.Copy(near, far); done <- struct{}{} }()
	<-done
	far.Close()
	near.Close()
	<-done
}

func (s *supervisor) resolveAddress(host, port string) (netip.AddrPort, error) {
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("port %q is no number from 1 to 65535", port)
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return netip.AddrPortFrom(a, uint16(number)), nil
	}
	if host == Appliance { // also while the provisioning network is in use by a test
		return netip.AddrPortFrom(addressOf(bmcs, applianceHost), uint16(number)), nil
	}
	if host == System && s.rack.Order.System != "" {
		return netip.AddrPortFrom(addressOf(system, systemHost), uint16(number)), nil
	}

	c, err := s.rack.Find(host)
	return netip.AddrPortFrom(s.addressOf(c), uint16(number)), err
}

// addressOf is where a node is reached: where the appliance logs in to it, once it says so, else as planned.
func (s *supervisor) addressOf(c MachineSpec) netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.doc == nil {
		return c.Address
	}

	for _, n := range s.doc.Nodes {
		if a, err := netip.ParseAddr(n.Address); err == nil && n.Name == c.Name {
			return a
		}
	}
	return c.Address
}
