package page

import (
	"cmp"
	"context"
	"errors"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// newEraseAction erases disks of a server that was given up, each of which was chosen by name.
func newEraseAction() action {
	return action{
		name: "erase", on: onNode, needs: Owner, title: "Erase its disks",
		effect: "The server is started into the ramdisk, which erases the disks that you choose and no other: by the " +
			"drive's own secure erase if it has one, else by overwriting. Nothing brings back what is on them.",
		isFinal: true,
		offered: mayBeErased,
		choice:  &choice{legend: "Disks to erase", options: listDisks, preview: previewErase},
		do: func(ctx context.Context, s *Server, o order) (result, error) {
			if len(o.chosen) == 0 {
				return result{}, errors.New("no disk was chosen") // without any, the root device is meant elsewhere
			}
			now, err := s.deeds.Erase(ctx, o.name, o.chosen, "")
			if err = cmp.Or(err, o.checkAsked(newEraseQuestion(now))); err != nil {
				return result{}, err
			}
			e, err := s.deeds.Erase(ctx, o.name, o.chosen, now.Word)
			return result{text: o.name + " is erased: " + e.Text() + ". This page says how that stands."}, err
		},
	}
}

// newReplaceServerAction lets the server that the site names now take the place of the one that a node had.
func newReplaceServerAction() action {
	return action{
		name: "replace-server", on: onNode, needs: Owner, title: "Let its new server take its place",
		effect: "The server that the node had is not a node any more. It is not written to; one in service runs on, " +
			"another one is switched off. The new one is checked, inspected and installed under this name, and what is " +
			"on its disks is not lost without consent.",
		isFinal: true,
		offered: hasOtherServer,
		do: func(_ context.Context, s *Server, o order) (result, error) {
			now, err := s.deeds.Replace(o.name, "")
			if err = cmp.Or(err, o.checkAsked(question{about: describeReplacement(now.New, now.Host)})); err != nil {
				return result{}, err
			}
			r, err := s.deeds.Replace(o.name, now.Word)
			return result{text: o.name + " is replaced: it has " + r.New + ". This page says how that stands."}, err
		},
	}
}

// mayBeErased is a node whose server nobody uses and whose disks are known. What else keeps it from being erased is
// said when disks were chosen.
func mayBeErased(p *picture, name string) (about string, ok bool) {
	h := p.hosts[name]
	return "", h != nil && metal3.CanInspect(h) && h.Spec.ConsumerRef == nil && h.Status.HardwareDetails != nil &&
		len(h.Status.HardwareDetails.Storage) > 0 && !metal3.IsErasing(h) && !metal3.IsPausedByOwner(h) && !p.noBMC[name]
}

// hasOtherServer is about what the site says of a node that is another server's, and about the host that goes.
func hasOtherServer(p *picture, name string) (about string, ok bool) {
	h, other := p.hosts[name], p.otherServers[name]
	if h == nil || other == "" {
		return "", false
	}
	return describeReplacement(other, string(h.UID)), true
}

// describeReplacement is what a person confirms before a server is replaced.
func describeReplacement(other, host string) string {
	return other + ", and BareMetalHost " + host + " goes"
}

// listDisks are the disks of a node, each by what names it also after the next boot if it has that.
func listDisks(p *picture, name string) (all []option) {
	for _, d := range p.hosts[name].Status.HardwareDetails.Storage {
		text := d.Name + ", " + formatBytes(int64(d.SizeBytes))
		for _, more := range []struct{ before, text string }{
			{"", d.Model}, {"serial number ", d.SerialNumber}, {"WWN ", d.WWN},
		} {
			if more.text != "" {
				text += ", " + more.before + more.text
			}
		}
		all = append(all, option{cmp.Or(d.WWN, d.SerialNumber, d.Name), text})
	}
	return all
}

// previewErase says which disks would be erased, with what is on them, and which would not.
func previewErase(ctx context.Context, s *Server, _ *picture, name string, chosen []string) (question, error) {
	e, err := s.deeds.Erase(ctx, name, chosen, "")
	if err != nil {
		return question{}, err
	}

	return newEraseQuestion(e), nil
}

// newEraseQuestion is what a person confirms before disks are erased.
func newEraseQuestion(e status.Erase) question {
	q := question{about: "BareMetalHost " + e.Host, details: e.Lines()}
	if !e.Inspected.IsZero() {
		q.about = "what the inspection saw of " + q.about + " that ended at " + formatDate(e.Inspected)
	}
	return q
}
