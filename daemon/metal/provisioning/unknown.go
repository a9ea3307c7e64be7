package provisioning

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/engine/rerun"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/daemon/metal/unknown"
)

// What kubectl shows of unknown machines: a ConfigMap in metal3.Namespace, of so many bytes at most.
const (
	unknownFile    = stick.RunDir + "/unknown.json"
	unknownName    = "unknown-machines"
	unknownOwner   = "firstlight-unknown" // field manager
	unknownBytes   = 512 << 10
	unknownAtLeast = 5 * time.Second // between two writes: machines come in racks
)

func (p *Provisioner) newUnknown() *unknown.Machines {
	return &unknown.Machines{Path: unknownFile, IsKnown: p.isKnownMAC, Log: p.Log}
}

// isKnownMAC reports whether a node of the site or a host has a MAC.
func (p *Provisioner) isKnownMAC(mac string) bool {
	if h, _ := p.Hosts.HostByMAC(mac); h != nil {
		return true
	}
	return slices.ContainsFunc(p.AllNodes().Nodes, func(n site.Node) bool {
		return n.BootMAC == site.MAC(mac) || slices.Contains(n.MACs, site.MAC(mac))
	})
}

// UnknownMachines are those that were inspected and that neither the site nor a host names, with what the site's policy
// says of them.
func (p *Provisioner) UnknownMachines() []status.UnknownMachine {
	all := p.Unknown.List(time.Now())
	if p.DescribeUnknown != nil {
		all = p.DescribeUnknown(all)
	}
	return all
}

// UnknownNotes say that there are some; none if there are not.
func (p *Provisioner) UnknownNotes() []string {
	all := p.UnknownMachines()
	booted := 0
	for _, u := range all {
		if u.MAC != "" {
			booted++
		}
	}

	var notes []string
	switch booted {
	case 0:
	case 1:
		notes = append(notes, "1 machine that site.yaml does not name was inspected; firstlightd unknown shows it")
	default:
		notes = append(notes,
			fmt.Sprintf("%d machines that site.yaml does not name were inspected; firstlightd unknown shows them", booted))
	}
	switch n := len(all) - booted; n {
	case 0:
	case 1:
		notes = append(notes, "1 BMC that site.yaml does not name leased an address; firstlightd discovered shows it")
	default:
		notes = append(notes,
			fmt.Sprintf("%d BMCs that site.yaml does not name leased addresses; firstlightd discovered shows them", n))
	}

	all = slices.DeleteFunc(all, func(u status.UnknownMachine) bool { return !u.Awaits })
	switch n := len(all); n {
	case 0:
	case 1:
		notes = append(notes, "1 of them awaits approval: firstlightd approve "+all[0].Node)
	default:
		notes = append(notes, fmt.Sprintf("%d of them await approval: firstlightd approve NODE, or --all", n))
	}
	return notes
}

// ShowUnknown keeps the ConfigMap as they are until ctx ends.
func (p *Provisioner) ShowUnknown(ctx context.Context, up func() bool) error {
	if !rerun.Await(ctx, up) {
		return nil
	}

	var shown map[string]string
	for ctx.Err() == nil {
		if data := unknownData(p.UnknownMachines()); len(data)+len(shown) > 0 && !maps.Equal(data, shown) {
			if err := p.applyUnknown(ctx, data); err != nil {
				return err
			}
			shown = data
		}

		select {
		case <-ctx.Done():
		case <-time.After(unknownAtLeast):
		}
	}
	return nil
}

func (p *Provisioner) applyUnknown(ctx context.Context, data map[string]string) error {
	c, err := p.Client()
	if err != nil {
		return err
	}

	set, err := apply.New(unknownOwner, &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: metal3.Namespace, Name: unknownName},
		Data:       data,
	})
	if err != nil {
		return err
	}
	if err := set.Apply(ctx, c); err != nil {
		return fmt.Errorf("show unknown machines: %w", err)
	}

	return nil
}

// unknownData is pure. What does not fit is shown by firstlightd unknown alone.
func unknownData(all []status.UnknownMachine) map[string]string {
	data, size := map[string]string{}, 0
	for _, u := range all {
		text := comment(unknown.Text(u)) + "# For nodes of site.yaml:\n" + comment(unknown.SiteEntry(u)) + unknown.HostDocument(u)
		if size += len(text); size > unknownBytes {
			break
		}
		data[strings.ReplaceAll(u.Key(), ":", "-")+".yaml"] = text
	}
	return data
}

func comment(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("# " + line)
	}
	return b.String()
}
