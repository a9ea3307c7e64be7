package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/excerpt"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/stickupdate"
)

// UpdateState is how the appliance's versions stand. It is not changed.
type UpdateState struct {
	stickupdate.Status
	Images []UpdateImage // uploaded ones that are of this product
}

// UpdateImage is an uploaded image of this product.
type UpdateImage struct {
	Name    string // OWNER/CLUSTER/NAME
	Version string
}

// onUpdates is the appliance's version.
var onUpdates = subject{"updates", "/updates", "/updates"}

// updateAnswer is how the versions stand, or why that is not known.
type updateAnswer struct {
	UpdateState
	Error string
}

// newVersions reads the stick while somebody looks.
func (s *Server) newVersions() *lookup[updateAnswer] {
	return &lookup[updateAnswer]{
		ask: func(context.Context, string) updateAnswer {
			state, err := s.sources.Update()
			a := updateAnswer{UpdateState: state}
			if err != nil {
				a.Error = excerpt.Start(excerpt.Line(err.Error()), 400)
			}
			return a
		},
		changed:  func() { s.hub.forget() },
		parallel: 1,
		timeout:  20 * time.Second,
		fresh:    3 * time.Second,
		stale:    lookupTTL,
		wait:     3 * time.Second,
	}
}

// readWriting is how far the update is that the page began. At its end the stick is read again.
func (s *Server) readWriting() stickupdate.BackgroundState {
	now := s.sources.Writing()
	if s.wasWriting && !now.IsRunning {
		s.versions.expire("")
	}
	s.wasWriting = now.IsRunning
	return now
}

// askVersions has it in the next picture how the versions stand, or soon after.
func (s *Server) askVersions(r *http.Request) { s.versions.get(r.Context(), "") }

// updatesView is the page of updates.
type updatesView struct {
	Denied   string // why the versions are not shown
	IsKnown  bool
	Error    string
	Running  string // version
	Slots    []slotView
	Text     string // what became of the last update
	Level    level  // of Text
	Writing  stickupdate.BackgroundState
	Images   []UpdateImage
	Offers   []offer
	Clusters []clusterUpdates
}

// Name and Percent are of the bar of what is being written.
func (v updatesView) Name() string { return "the update" }
func (v updatesView) Percent() int {
	return int(100 * v.Writing.Done / max(1, v.Writing.Total))
}

// slotView is one place for a version.
type slotView struct {
	Name    stick.Slot
	Version string
	State   string
}

// clusterUpdates are the NodeUpdates of one cluster.
type clusterUpdates struct {
	Ref, Path string
	Text      string // where there is none
	Updates   []nodeUpdateView
	Offers    []offer
}

func showUpdates(p *picture, by Role, r *http.Request) (any, string, bool) {
	v := newUpdatesView(p, by)
	if v.Denied = deniedText(denialOf(r)); v.Denied != "" {
		v = updatesView{Denied: v.Denied, Running: v.Running, Clusters: v.Clusters}
	}
	return v, "Updates", true
}

func newUpdatesView(p *picture, by Role) updatesView {
	v := updatesView{Running: p.doc.Version, Offers: newOffers(p, by, onUpdates, "")}
	for _, c := range p.doc.Clusters {
		ref := status.ClusterRef(p.doc.Clusters, c)
		of := clusterUpdates{Ref: ref, Path: clusterPath(ref), Updates: newNodeUpdates(p, by, c)}
		of.Text = "Nothing keeps its nodes up to date."
		if c.Kind == status.KindCluster {
			of.Text = "Cluster API replaces its machines instead."
		}
		for _, o := range newOffers(p, by, onCluster, ref) {
			if strings.HasSuffix(o.Path, "-node-updates") {
				of.Offers = append(of.Offers, o)
			}
		}
		v.Clusters = append(v.Clusters, of)
	}

	if p.versions == nil {
		return v
	}
	a := p.versions.Value
	v.IsKnown, v.Error, v.Text, v.Writing, v.Images = true, a.Error, a.Text, p.writing, a.Images
	v.Level = map[stickupdate.Outcome]level{
		stickupdate.Kept: good, stickupdate.FellBack: bad, stickupdate.Refused: bad, stickupdate.Cut: bad,
	}[a.Outcome]
	if v.Level == "" {
		v.Level = busy
	}
	for _, which := range []stick.Slot{stick.SlotA, stick.SlotB} {
		version, ok := a.Slots[which]
		if !ok {
			continue
		}
		v.Slots = append(v.Slots, slotView{which, version, describeSlot(a.Status, which)})
	}
	return v
}

// describeSlot says what a slot does.
func describeSlot(s stickupdate.Status, which stick.Slot) string {
	var is []string
	if which == s.Running {
		is = append(is, "running")
	}
	if which == s.Running && s.Trial {
		is = append(is, "on trial")
	}
	if which == s.Starts {
		is = append(is, "next start")
	}
	return strings.Join(is, ", ")
}

// newUpdateActions write an uploaded version into the other slot, and start it.
func newUpdateActions() []action {
	return []action{
		{
			name: "update", on: onUpdates, needs: Owner, title: "Update the appliance",
			effect: "An uploaded version is written into the stick's other slot, and tried at the next start. The running " +
				"one stays, and runs again unless the new one comes to Ready within 30 minutes. DATA, the site and the " +
				"servers of the rack are left alone.",
			read:    (*Server).askVersions,
			offered: canUpdate,
			choice:  &choice{legend: "Version", isOne: true, options: listVersions, preview: previewUpdate},
			do: func(_ context.Context, s *Server, o order) (result, error) {
				if len(o.chosen) != 1 {
					return result{}, errOneImage
				}
				defer s.versions.expire("")
				return result{text: "The version is being written. This page says how far it is."},
					s.deeds.BeginUpdate(o.chosen[0])
			},
		},
		{
			name: "restart", on: onUpdates, needs: Owner, title: "Restart the appliance to try it",
			effect: "This machine starts again. DHCP, network boots, the API and this page are away for some minutes; nodes " +
				"and clusters run on. The new version is kept when the appliance is ready with it.",
			typed:   typeAppliance,
			read:    (*Server).askVersions,
			offered: isUpdateWaiting,
			do: func(ctx context.Context, s *Server, _ order) (result, error) {
				return result{text: "The appliance restarts."}, s.deeds.Restart(ctx)
			},
		},
	}
}

var errOneImage = errors.New("choose one version")

// canUpdate is true if there is a version to update to, and none is being written, tried or about to be.
func canUpdate(p *picture, _ string) (about string, ok bool) {
	if p.versions == nil {
		return "", false
	}
	a := p.versions.Value
	return "", a.Error == "" && !a.Trial && !p.writing.IsRunning && a.Outcome != stickupdate.Writing && len(a.Images) > 0
}

// isUpdateWaiting is about the version that the next start tries.
func isUpdateWaiting(p *picture, _ string) (about string, ok bool) {
	if p.versions == nil || p.versions.Value.Outcome != stickupdate.Waiting || p.writing.IsRunning {
		return "", false
	}
	return "version " + p.versions.Value.Last.To, true
}

func listVersions(p *picture, _ string) (all []option) {
	for _, i := range p.versions.Value.Images {
		all = append(all, option{i.Name, i.Version + ", " + i.Name})
	}
	return all
}

// previewUpdate says which version would be written where, on whose word.
func previewUpdate(_ context.Context, s *Server, _ *picture, _ string, chosen []string) (question, error) {
	if len(chosen) != 1 {
		return question{}, errOneImage
	}
	to, err := s.deeds.PreviewUpdate(chosen[0])
	if err != nil {
		return question{}, err
	}
	word := "No key of the site signs versions, so nobody vouches for it."
	if to.SignedBy != "" {
		word = "It is signed by the key " + to.SignedBy + "."
	}
	return question{
		about:   "version " + to.To + " of " + chosen[0],
		details: []string{fmt.Sprintf("It is written to slot %s; %s runs.", to.Slot, to.From), word},
	}, nil
}
