package verify

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/daemon/metal/verify/diagnose"
	"firstlight.dev/firstlight/daemon/metal/verify/fact"
	"firstlight.dev/firstlight/pxe/boottrace"
)

// installation identifies what is on a node's disk: another image, or the same one written
// anew, must be proven anew.
func installation(h fact.Host) string {
	return fmt.Sprintf("%s@%s", h.Installed, h.Deployed.UTC().Format(time.RFC3339))
}

// updateNodes says how every node and the launch stand. It returns whether anything is other than
// it was that somebody waits for. e.mu is held.
func (e *Engine) updateNodes(
	s *site.Site,
	hosts map[string]metal3api.BareMetalHost,
	waits string,
	silent, now time.Time,
) (changed bool) {
	records := map[string]boottrace.Trace{}
	for _, r := range e.Records() {
		records[r.MAC] = r
	}

	switch handsOver := e.HandsOver == nil || e.HandsOver(); {
	case !handsOver:
		e.handingSince = time.Time{}
	case e.handingSince.IsZero():
		e.handingSince = now
	}

	held := e.Blocked()
	var all []status.Node
	var stands []NodeStanding
	var unmatched []string
	known, named := map[string]bool{}, map[string]bool{}
	for _, n := range s.Nodes {
		named[string(n.Name)] = true
		st := e.nodes[n.Name]
		var h *fact.Host
		if api, ok := hosts[string(n.Name)]; ok {
			h = new(fact.HostOf(&api))
			h.Paused = h.Paused && !metal3.IsOnHold(&api)
			st.observe(h, wantedImage(&api), now)
		} else {
			st.forgetHost()
		}

		v := e.buildView(st, n, h, records, held[string(n.Name)])
		v.Now, v.Appliance, v.Silent, v.HandingSince = now, waits, silent, e.handingSince
		for _, m := range nodeMACs(n) {
			known[string(m)] = true
		}
		if len(nodeMACs(n)) == 0 && (h == nil || len(h.MACs) == 0) {
			unmatched = append(unmatched, string(n.Name))
		}

		node, reason := e.nodeStatus(st, v, now)
		changed = changed || st.rule != reason.Rule
		all = append(all, node)
		if !reason.Fails {
			st.failing = time.Time{}
		} else if st.failing.IsZero() {
			st.failing = now
		}

		stands = append(stands, NodeStanding{
			Name:     string(n.Name),
			Verified: v.Verified,
			Rule:     reason.Rule,
			Sentence: reason.Sentence,
			Fails:    reason.Fails,
			Lasts:    reason.Fails && now.Sub(st.failing) >= settled,
		})
		st.rule, st.ruleSince = reason.Rule, node.Since
	}

	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		h := fact.HostOf(new(hosts[name]))
		for _, m := range h.MACs {
			known[m] = true
		}

		if named[name] {
			continue
		}

		r := diagnose.Explain(diagnose.View{
			Now:       now,
			Name:      name,
			FromSite:  e.FromSite == nil || e.FromSite(name),
			Host:      &h,
			Appliance: waits,
			Silent:    silent,
			Erasure:   e.lastErasure(name),
		})
		all = append(all, status.Node{
			Name:   name,
			State:  stateName(&h),
			Rule:   r.Rule,
			Why:    r.Sentence,
			Next:   r.Next,
			Since:  r.Since,
			Error:  h.Error,
			Erased: erasedText(e.lastErasure(name)),
		})
	}

	e.unknownMachines = nil
	for _, mac := range slices.Sorted(maps.Keys(records)) {
		if !known[mac] {
			r := diagnose.Explain(diagnose.View{
				Now:       now,
				Name:      mac,
				Unmatched: unmatched,
				BootTrace: new(records[mac]),
			})
			e.unknownMachines = append(
				e.unknownMachines,
				status.Node{
					Name:  mac,
					State: "absent",
					Rule:  r.Rule,
					Why:   r.Sentence,
					Next:  r.Next,
					Since: r.Since,
				},
			)
		}
	}

	if waits == "" && silent.IsZero() && e.loaded != "" && e.launch.State != status.LaunchSucceeded {
		e.elapsed += now.Sub(e.ticked)
	}

	e.ticked = now
	launch := e.launch // stays as it was while nobody knows how the hosts are
	if silent.IsZero() {
		launch = JudgeLaunch(stands, e.elapsed, time.Duration(s.Verification.Timeout))
	}

	changed = changed || launch.State != e.launch.State || launch.Text != e.launch.Text
	e.all, e.launch = all, launch
	return changed
}

// Why is Nodes, and the machines that neither site nor API name.
func (e *Engine) Why() []status.Node {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Concat(e.all, e.unknownMachines)
}

func stateName(h *fact.Host) string {
	switch {
	case h == nil:
		return "absent"
	case h.State == "":
		return "new"
	}
	return h.State
}

// observe remembers what the operator forgets: since when a state is, and the last error until the host is in service
// or is to become something else. It completes h with the former.
func (st *state) observe(h *fact.Host, want string, now time.Time) {
	if h.State != st.hostState {
		st.hostState, st.hostSince = h.State, now
	}

	if h.InService() || want != st.want {
		st.want, st.lastError = want, ""
	}

	if h.Error != "" {
		st.lastError = h.Error
	}

	if h.Since.IsZero() {
		h.Since = st.hostSince
	}
}

// forgetHost is observe for a node that has no host.
func (st *state) forgetHost() { st.hostState, st.want, st.lastError = "", "", "" }

// buildView puts together all that is known of a node, whose host is nil if there is none.
func (e *Engine) buildView(
	st *state,
	n site.Node,
	h *fact.Host,
	records map[string]boottrace.Trace,
	block metal3.Block,
) diagnose.View {
	v := diagnose.View{
		Name:           string(n.Name),
		Node:           &n,
		Applied:        e.Applied != nil && e.Applied(string(n.Name)),
		Preflight:      st.preflight,
		Passed:         st.passed,
		PreflightSince: st.since,
		BMC:            st.bmc.Verdict,
		Blocked:        block,
		Host:           h,
		LastError:      st.lastError,
		Answer:         st.answer.Verdict,
		Checks:         st.checks,
	}
	v.Certificate, v.Erasure = e.change(n), e.lastErasure(v.Name)
	if h != nil {
		v.Verified = h.InService() && st.installed == installation(*h)
		if h.Error != "" && e.Log != nil {
			v.Log = e.Log(v.Name)
		}
	}

	if i, ok := e.ironic[v.Name]; ok {
		v.Ironic = &i
	}

	if r, ok := records[string(n.BootMAC)]; ok {
		v.BootTrace = &r
	}

	for _, m := range nodeMACs(n) {
		if r, ok := records[string(m)]; ok && m != n.BootMAC && h != nil && r.Last.Time.After(h.Since) {
			v.OtherNIC = string(m)
		}
	}

	if e.Refusal != nil {
		v.Refusal.Sentence, v.Refusal.Time = e.Refusal(v.Name)
	}

	if e.Claim != nil {
		v.Claim.Sentence, v.Claim.Time = e.Claim(v.Name)
	}

	if d := e.DHCP(); d.Enabled && d.Phase == "silent" {
		v.Foreign = d.Text
	}

	return v
}

// wantedImage identifies what a host is to become: with another one, earlier errors say nothing.
func wantedImage(h *metal3api.BareMetalHost) string {
	if h.Spec.Image == nil {
		return ""
	}
	return h.Spec.Image.URL + " " + h.Spec.Image.Checksum
}

// nodeStatus is the view for people.
func (e *Engine) nodeStatus(st *state, v diagnose.View, now time.Time) (status.Node, diagnose.Diagnosis) {
	r := diagnose.Explain(v)
	n := status.Node{
		Name:      v.Name,
		State:     stateName(v.Host),
		Rule:      r.Rule,
		Why:       r.Sentence,
		Next:      r.Next,
		Since:     r.Since,
		Percent:   r.Percent,
		Verified:  v.Verified,
		Preflight: slices.Clone(v.Preflight),
		Checks:    slices.Clone(v.Checks),
		Erased:    erasedText(v.Erasure),
	}
	if v.Host != nil {
		n.Error = cmp.Or(v.Host.Error, v.LastError)
	}

	if n.Error == "" {
		n.Error = v.Blocked.Sentence
	}

	if st.answer.Address.IsValid() {
		n.Address = st.answer.Address.String()
	}

	if n.Since.IsZero() {
		n.Since = st.ruleSince
		if st.rule != r.Rule {
			n.Since = now
		}
	}

	return n, r
}

// lastErasure is the last time that disks of a host were to be erased; nil: it never was.
func (e *Engine) lastErasure(host string) *metal3.Erasure {
	if e.Erasure == nil {
		return nil
	}
	return e.Erasure(host)
}

// erasedText says when and how which disks of a node were erased last; "" if none were.
func erasedText(e *metal3.Erasure) string {
	if e == nil || e.IsOpen() || e.Lost || e.HasFailed() {
		return ""
	}
	return e.Sentence()
}

// dueOutcome is what the API is to be told, and whether it is due. e.mu is held.
func (e *Engine) dueOutcome(now time.Time) (Outcome, bool) {
	if e.loaded == "" || e.saving {
		return Outcome{}, false
	}

	l := e.launch
	out := Outcome{
		State:          l.State,
		Message:        l.Text,
		Verified:       fmt.Sprintf("%d/%d", l.Verified, l.Nodes),
		ElapsedSeconds: int64(l.Elapsed),
	}
	for _, n := range e.all {
		st := e.nodes[site.Name(n.Name)]
		if st == nil {
			continue // not of the site
		}

		o := NodeOutcome{Name: n.Name, Verified: n.Verified, Rule: n.Rule, Checks: n.Checks}
		if n.Verified {
			o.Installed = st.installed
		}

		if n.Next != "" {
			o.Message = n.Why
		}

		o.NeedsPerson = !n.Verified && !st.failing.IsZero() && e.ticked.Sub(st.failing) >= settled

		out.Nodes = append(out.Nodes, o)
	}

	same := out
	same.ElapsedSeconds = e.saved.ElapsedSeconds
	early := now.Sub(e.savedAt) < saveEvery
	if reflect.DeepEqual(same, e.saved) && (early || out.ElapsedSeconds == e.saved.ElapsedSeconds) {
		return Outcome{}, false
	}

	e.saving = true
	return out, true
}

func (e *Engine) save(ctx context.Context, name string, out Outcome) {
	saving, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err := e.Outcomes.Save(saving, name, out)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.saving = false
	if err != nil {
		e.Logger.Debug("launch not written", "error", err) // the API is away; the next look tries again
		return
	}

	if out.State != e.saved.State || out.Message != e.saved.Message {
		e.Logger.Info(
			"launch", "state", string(out.State), "proven", out.Verified, "message", strings.TrimSpace(out.Message),
		)
	}

	e.saved, e.savedAt = out, time.Now()
}
