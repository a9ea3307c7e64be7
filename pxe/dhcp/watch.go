package dhcp

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// state is the phase of the server and what it is based on.
type state struct {
	mu     sync.Mutex
	status Status
	open   bool          // the sockets are there
	served time.Time     // since when we serve; zero if we do not
	wake   chan struct{} // asks for a probe now
	woken  time.Time
}

func (s *state) phase() Phase {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status.Phase
}

func (s *state) servedFor() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served.IsZero() {
		return 0
	}

	return time.Since(s.served)
}

// Status says what the server does now and why.
func (s *Server) Status() Status {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	return s.state.status
}

func (s *Server) setStatus(st Status) {
	s.state.mu.Lock()
	old := s.state.status
	st.Since = old.Since
	if st.Phase != old.Phase {
		st.Since = time.Now()
	}

	switch {
	case st.Phase != PhaseServing && st.Phase != PhaseProxy:
		s.state.served = time.Time{}
	case s.state.served.IsZero():
		s.state.served = time.Now()
	}

	s.state.status = st
	s.state.mu.Unlock()
	if st.Phase == old.Phase && st.Text == old.Text {
		return
	}

	attrs := []any{"phase", st.Phase, "status", st.Text}
	if st.Phase == PhaseSilent || st.Phase == PhaseBroken || len(st.Foreign) > 0 {
		s.deps.Log.Error("dhcp status", attrs...)
	} else {
		s.deps.Log.Info("dhcp status", attrs...)
	}

	s.deps.Events.DHCPStatus(st)
}

func (s *Server) setBroken(err error) {
	s.setStatus(Status{
		Phase: PhaseBroken,
		Text:  fmt.Sprintf("no DHCP on %s: %v; it is tried again every second", s.conf.Interface, err),
	})
}

// markOpen notes that the sockets are there; a probe decides what to do with them.
func (s *Server) markOpen() {
	s.state.mu.Lock()
	s.state.open = true
	s.state.mu.Unlock()
	s.wakeProbe(0)
}

// markClosed notes that they are gone: nothing can be served whatever a probe finds.
func (s *Server) markClosed() {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	s.state.open = false
}

func (s *state) isOpen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

const defaultProbeEvery = 3 * time.Minute

// watch probes before serving and then for as long as the server runs: a foreign server
// that appears silences us, and we resume when it is gone.
func (s *Server) watch(ctx context.Context) error {
	for {
		every := s.conf.ProbeEvery
		if every == 0 {
			every = defaultProbeEvery
		}

		wait := s.conf.ProbeWait
		if wait == 0 {
			wait = probeWait
		}

		plugged := plugCount(s.conf.Interface)
		ask := probe
		if s.conf.Server.Is6() {
			ask = probe6
		}

		found, err := ask(ctx, s.conf.Interface, wait)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			s.setBroken(err)
			sleep(ctx, retryEvery)
			continue
		}

		if s.state.isOpen() {
			s.setStatus(s.judgeProbe(found))
		}

		if p := s.state.phase(); p == PhaseSilent {
			every /= 10
		}

		s.waitForProbe(ctx, every, plugged)
	}
}

// waitForProbe waits until the next probe is due, or somebody asks for one, or the cable was
// plugged in since the count was plugged: it may lead elsewhere now, so nothing is served
// until that is known.
func (s *Server) waitForProbe(ctx context.Context, every time.Duration, plugged string) {
	next, look := time.NewTimer(every), time.NewTicker(lookEvery)
	defer next.Stop()
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
			return
		case <-s.state.wake:
			return
		case <-look.C:
			if plugCount(s.conf.Interface) != plugged {
				s.setStatus(Status{
					Phase: PhaseProbing,
					Text: fmt.Sprintf(
						"the link of %s came up again: listening for other DHCP servers", s.conf.Interface,
					),
				})
				return
			}
		}
	}
}

const lookEvery = 500 * time.Millisecond

// plugCount is how often the link came up, as the kernel counts it; "" if it does not say.
func plugCount(ifname string) string {
	count, err := os.ReadFile("/sys/class/net/" + ifname + "/carrier_up_count")
	if err != nil {
		return ""
	}
	return string(count)
}

// judgeProbe turns the result of a probe into a phase.
func (s *Server) judgeProbe(found []Foreign) Status {
	others := found[:0:0]
	for _, f := range found {
		if !strings.HasPrefix(f.Appliance, "firstlight "+s.id+" ") {
			others = append(others, f)
		}
	}

	dev := s.conf.Interface
	if s.conf.Mode == ModeProxy {
		return Status{
			Phase:   PhaseProxy,
			Foreign: others,
			Text:    "offering boot files on " + dev + " next to the DHCP server there",
		}
	}
	if len(others) == 0 {
		return Status{
			Phase: PhaseServing,
			Text:  fmt.Sprintf("serving DHCP on %s as %v; no other server answers", dev, s.conf.Server),
		}
	}

	f := others[0]
	who := fmt.Sprintf("DHCP server %v (MAC %s)", f.Server, f.MACText)
	if f.Appliance != "" {
		who = fmt.Sprintf("another Firstlight appliance %v (MAC %s)", f.Server, f.MACText)
	}

	if len(others) > 1 {
		who += fmt.Sprintf(" and %d more", len(others)-1)
	}

	if served := s.state.servedFor(); served > 0 && f.Appliance != "" && len(others) == 1 && !yieldsTo(
		s.id, served, f.Appliance,
	) {
		return Status{
			Phase:   PhaseServing,
			Foreign: others,
			Text: fmt.Sprintf(
				"%s is on %s too; this one serves on because it served longer; unplug one of the two", who, dev,
			),
		}
	}
	if s.conf.Foreign == ForeignIgnoreUnknown && !slices.ContainsFunc(others, func(f Foreign) bool { return f.Appliance != "" }) {
		return Status{
			Phase:   PhaseServing,
			Foreign: others,
			Text: fmt.Sprintf(
				"%s answers on %s, which is ours alone: serving on; find it and unplug it, machines may follow it", who, dev,
			),
		}
	}
	if s.conf.Foreign == ForeignProxy {
		return Status{
			Phase:   PhaseProxy,
			Foreign: others,
			Text:    fmt.Sprintf("%s answers on %s: offering boot files only; switch one of the two off", who, dev),
		}
	}

	return Status{
		Phase:   PhaseSilent,
		Foreign: others,
		Text: fmt.Sprintf(
			"%s answers on %s: staying silent; switch it off or unplug it, service resumes automatically", who, dev,
		),
	}
}

// noticeOtherServer looks at requests for other servers: a sign that a probe is due now. Only the
// probe decides, so a forged packet cannot silence us.
func (s *Server) noticeOtherServer(r Request) {
	other := optAddr(r.Packet, dhcpv4.OptionServerIdentifier)
	if other.IsValid() && other != s.conf.Server && r.Packet.MessageType() == dhcpv4.MessageTypeRequest {
		s.wakeProbe(otherServerPause)
	}
}

// otherServerPause is between two probes that requests for other servers cause.
const otherServerPause = 10 * time.Second

// wakeProbe asks for a probe now, at most one per pause.
func (s *Server) wakeProbe(pause time.Duration) {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	if time.Since(s.state.woken) < pause {
		return
	}

	s.state.woken = time.Now()
	select {
	case s.state.wake <- struct{}{}:
	default:
	}
}

// answerProbe answers another appliance's probe while we serve: it shall know whom it met.
// No address is held for it.
func (s *Server) answerProbe(w *packetConn, r Request, phase Phase) {
	if phase != PhaseServing || r.Packet.MessageType() != dhcpv4.MessageTypeDiscover {
		return
	}

	d := decision{plan: &Plan{Config: s.conf}, req: r}
	offer := d.newReply(dhcpv4.MessageTypeOffer)
	offer.Options[optAppliance.Code()] = []byte(applianceIdentity(s.id, s.state.servedFor()))
	if err := w.send(offer, r); err != nil {
		s.deps.Log.Warn("answer the probe of another appliance", "err", err)
	}

	s.wakeProbe(10 * time.Second)
}
