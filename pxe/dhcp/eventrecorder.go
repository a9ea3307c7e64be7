package dhcp

import (
	"context"
	"log/slog"

	"firstlight.dev/firstlight/pxe/boottrace"
	"firstlight.dev/firstlight/pxe/metrics"
)

// EventRecorder is the usual Events: it counts, notes where each machine is, and logs what a person
// would want to know. Book and Log may be nil.
type EventRecorder struct {
	Metrics *metrics.Metrics
	Traces  *boottrace.Recorder
	Log     *slog.Logger
}

// DHCP implements Events.
func (s EventRecorder) DHCP(e Event) {
	s.count(e)
	note := boottrace.Event{MAC: e.Machine.MAC, Addr: e.Addr, Detail: e.File}
	switch e.Kind {
	case KindDiscover:
		note.Step = boottrace.StepDiscover
	case KindOffer:
		note.Step = boottrace.StepOffer
	case KindAck:
		note.Step = boottrace.StepLease
	case KindRefuse, KindNak, KindDecline:
		note.Step, note.Refused = boottrace.StepDiscover, e.Text
	case KindRelease, KindPanic:
		note.MAC = nil
	}

	if note.Detail == "" && e.Kind != KindRefuse {
		note.Detail = e.Text // why no boot file was named
	}

	s.Traces.Add(note)
	if s.Log == nil || e.Kind == KindDiscover || e.Flood {
		return
	}

	level := slog.LevelInfo
	if e.Kind == KindRefuse || e.Kind == KindNak || e.Kind == KindDecline {
		level = slog.LevelWarn
	}

	s.Log.Log(
		context.Background(), level, "dhcp", "event", e.Kind, "mac", e.Machine.MAC.String(), "addr", e.Addr, "file",
		e.File, "reason", e.Reason, "why", e.Text,
	)
}

func (s EventRecorder) count(e Event) {
	if s.Metrics == nil {
		return
	}
	switch e.Kind {
	case KindOffer:
		s.Metrics.DHCPOffers.Inc()
	case KindAck:
		s.Metrics.DHCPAcks.Inc()
	case KindNak:
		s.Metrics.DHCPNaks.Inc()
	case KindRefuse:
		s.Metrics.DHCPRefusals.WithLabelValues(string(e.Reason)).Inc()
	case KindPanic:
		s.Metrics.Panics.WithLabelValues("dhcp").Inc()
	case KindDiscover, KindDecline, KindRelease:
	}
}

// DHCPStatus implements Events.
func (s EventRecorder) DHCPStatus(st Status) {
	if s.Metrics == nil {
		return
	}
	s.Metrics.DHCPForeign.Set(0)
	if st.Phase == PhaseSilent {
		s.Metrics.DHCPForeign.Set(1)
	}
}
