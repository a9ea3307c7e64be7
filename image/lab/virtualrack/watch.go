package virtualrack

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/status"
)

// consoleFollower follows the appliance's console.
type consoleFollower struct {
	phaseTracker
	pid   int // of the power-on period that is followed
	heard int // lines
}

// listen takes what the console has said since.
func (s *supervisor) listen() {
	a := s.all[0]
	if pid := a.machine.PID(); pid != 0 && pid != s.watch.pid {
		s.watch.pid = pid
		s.watch.powerOn()
		s.doc = nil // said before
	}

	lines := a.machine.Console().LinesFrom(s.watch.heard)
	s.watch.heard += len(lines)
	for _, line := range lines {
		s.watch.handleLine(line)
	}
}

// updatePhases notes every change of phase.
func (s *supervisor) updatePhases(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logError(os.Chtimes(lockFile, now, now)) // the sign of life, see remembered
	s.listen()
	for i, c := range s.all {
		if !c.IsOn() {
			s.logError(c.noticeEnd())
		}

		phase := ""
		if i == 0 {
			phase, _ = applianceState(c.IsOn(), s.watch.phaseTracker, s.doc)
			if phase == PhaseStarting && !isBeforeAppliance(s.phases[c.Name].Phase) {
				continue // it was heard of, and does not answer at the moment
			}
		} else {
			if known := s.phases[c.Name].Phase; s.doc == nil && known != "" && known != PhaseOff {
				continue // nothing new is known of it
			}
			phase, _, _ = nodeState(c.Name, s.doc)
		}

		if phase == s.phases[c.Name].Phase {
			continue
		}

		s.logError(s.recordEvent(Event{At: now, Machine: c.Name, Phase: phase, CPU: c.machine.CPU().Seconds()}))
	}

	if s.doc != nil {
		for _, c := range s.doc.Clusters {
			name := ofCluster(c.Name)
			if c.State != s.phases[name].Phase {
				s.logError(s.recordEvent(Event{At: now, Machine: name, Phase: c.State}))
			}
		}
	}

	for _, c := range s.all {
		if c.ipmi != nil && !c.ipmi.IsRunning() {
			s.faults["BMC of "+c.Name] = "has ended; its log says why; `firstlight lab down` and `up` start it again"
		}
	}
}

// restorePhases goes on with the phases of an earlier supervisor. If that one was killed, they ended
// with its last sign of life.
func (s *supervisor) restorePhases() error {
	events, err := ReadEvents(".")
	if err != nil {
		return err
	}

	for _, e := range events {
		s.phases[e.Machine] = e
	}

	info, err := os.Stat(lockFile)
	if err != nil {
		return fmt.Errorf("read events: %w", err)
	}

	return s.closePhases(info.ModTime(), nil)
}

// closePhases closes every phase.
func (s *supervisor) closePhases(at time.Time, cpu map[string]float64) error {
	var errs []error
	for _, e := range closingEvents(s.phases, at, cpu) {
		errs = append(errs, s.recordEvent(e))
	}
	return errors.Join(errs...)
}

func (s *supervisor) recordEvent(e Event) error {
	s.phases[e.Machine] = e
	return appendEvent(e)
}

func appendEvent(e Event) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}

	f, err := os.OpenFile(eventsFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}

	_, err = f.Write(append(b, '\n'))
	return errors.Join(err, f.Close())
}

// ReadEvents returns every change of phase of the rack in dir, oldest first. A last line that a
// power cut has torn is left out.
func ReadEvents(dir string) ([]Event, error) {
	f, err := os.Open(dir + "/" + eventsFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	defer f.Close()

	var all []Event
	for in := bufio.NewScanner(f); in.Scan(); {
		var e Event
		if json.Unmarshal(in.Bytes(), &e) == nil {
			all = append(all, e)
		}
	}

	return all, nil
}

// clusterNodes are a cluster's nodes, each with the server that it is.
func clusterNodes(c status.Cluster) (all []ClusterNode) {
	for _, m := range c.Members {
		_, server, _ := strings.Cut(m.Host, "/")
		all = append(all, ClusterNode{
			Name:   m.Name,
			Server: server,
			Roles:  m.Roles,
			Phase:  m.State,
			Why:    m.Reason,
		})
	}
	return all
}

// status is how everything stands now.
func (s *supervisor) status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{Dir: s.dir, Since: s.started, Outside: map[string]int{}}
	st.Over, st.Failed, st.Text = rackOutcome(s.doc, s.rack.Order)
	if err := s.all[0].failure(); err != nil {
		st.Over, st.Failed, st.Dead, st.Text = true, true, true, fmt.Sprintf("%s: %s", Appliance, err)
	}

	if why := s.watch.systemFailure(); why != "" && s.doc == nil { // it may have been installed by hand since
		st.Over, st.Failed, st.Dead, st.Text = true, true, true, why
	}

	if st.Text == "" && s.doc != nil {
		st.Text = s.doc.Launch.Text
	}

	for _, c := range s.all {
		st.Machines = append(st.Machines, s.machineStatus(c))
	}

	if s.doc != nil {
		for _, c := range s.doc.Clusters {
			st.Clusters = append(st.Clusters, Cluster{
				Name:    c.Name,
				Phase:   c.State,
				Since:   s.phases[ofCluster(c.Name)].At,
				Percent: c.Percent,
				Nodes:   c.Nodes,
				Why:     c.Text,
				Error:   c.Error,
				Members: clusterNodes(c),
			})
		}
	}

	if s.doc != nil {
		st.Unknown = s.rack.unknownMachines(s.doc)
	}

	for _, sw := range s.switches {
		for a, n := range sw.Outside() {
			st.Outside[a.String()] += n
		}
	}

	for _, c := range s.all {
		if err := c.failure(); err != nil {
			st.Faults = append(st.Faults, fmt.Sprintf("%s: %s", c.Name, err))
		}
	}

	for who, what := range s.faults {
		st.Faults = append(st.Faults, who+" "+what)
	}

	slices.Sort(st.Faults)
	return st
}

func (s *supervisor) machineStatus(c *machine) Machine {
	e := s.phases[c.Name]
	m := Machine{
		Name:   c.Name,
		On:     c.IsOn(),
		Phase:  e.Phase,
		Since:  e.At,
		CPU:    c.machine.CPU().Seconds(),
		Last:   c.machine.Console().LastLine(),
		Share:  c.machine.Share(),
		Cables: c.cables(),
	}
	if m.On {
		m.Command = c.machine.CommandLine()
	}

	if c.bmc != nil {
		m.Boot = c.bmc.Device()
		_, percent, n := nodeState(c.Name, s.doc)
		m.Percent, m.Why, m.Next, m.Error = percent, n.Why, n.Next, n.Error
		return c.addOwnState(m)
	}

	_, m.Percent = applianceState(m.On, s.watch.phaseTracker, s.doc)
	if s.doc != nil {
		m.Why = s.doc.Summary
		if s.doc.State != status.StateWorking { // until then there is nothing to do
			m.Next = s.doc.Next
		}
		for _, st := range s.doc.Stages {
			m.Stages = append(m.Stages, Duration{st.Name, st.Seconds})
			m.Error = cmp.Or(m.Error, st.Error)
		}
	}

	return c.addOwnState(m)
}

// addOwnState says what the appliance cannot know of a machine, before all that it says.
func (c *machine) addOwnState(m Machine) Machine {
	if m.Paused = m.On && c.isPaused(); m.Paused {
		m.Why = "its time stands still: it is paused"
		m.Next = fmt.Sprintf("`firstlight lab power %s resume` lets it go on", c.Name)
	}
	if err := c.failure(); err != nil {
		m.Why, m.Error = err.Error(), err.Error()
		m.Next = fmt.Sprintf(
			"`firstlight lab power %s on` switches it on again, or `firstlight lab down` and `up`", c.Name,
		)
	}
	return m
}

// internalPrefixes are the addresses of the pods and services of the appliance, of the site's clusters and of clusters of
// Cluster API, as far as nobody chose others; they are no way out.
func (r Rack) internalPrefixes() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("10.244.0.0/15"), netip.MustParsePrefix("10.96.0.0/12"),
	}
}
