package page

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/excerpt"
	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/boottrace"
	"firstlight.dev/firstlight/pxe/capture"
)

// nodePattern is the page of a node.
const nodePattern = "/nodes/{name}"

// bootNetwork is the role of the network that nodes boot from.
const bootNetwork = "provisioning"

// maxBootRows is how many rows of a boot are listed, the newest.
const maxBootRows = 200

// packetsAnswer is what the machines of a node asked and were answered in their last boots, by their MACs, or why that
// is not known.
type packetsAnswer struct {
	Boots map[string][]capture.Exchange
	Error string
}

// newPackets reads captures while somebody looks.
func (s *Server) newPackets() *lookup[packetsAnswer] {
	return &lookup[packetsAnswer]{
		ask: func(_ context.Context, key string) packetsAnswer {
			a := packetsAnswer{Boots: map[string][]capture.Exchange{}}
			for _, mac := range strings.Fields(key) {
				boot, err := s.sources.Packets(mac)
				if err != nil {
					a.Error = excerpt.Start(excerpt.Line(err.Error()), 400)
				}
				if len(boot) > 0 {
					a.Boots[mac] = boot
				}
			}
			return a
		},
		changed:  func() { s.hub.forget() },
		most:     256,
		parallel: 2,
		timeout:  15 * time.Second,
		fresh:    pictureAge / 2,
		stale:    lookupTTL,
		wait:     3 * time.Second,
	}
}

// askPackets has it in the next picture what a node asked when it booted, or soon after.
func (s *Server) askPackets(r *http.Request) {
	p, err := s.hub.current()
	if err != nil {
		return
	}
	if name := r.PathValue("name"); p.hasNode(name) {
		s.packets.get(r.Context(), p.packetsKey(name))
	}
}

// packetsKey is what newPackets is asked about a node: its MACs.
func (p *picture) packetsKey(name string) string { return strings.Join(p.macsOf(name), " ") }

// macsOf are all MACs that a node is known by, in order. A machine that nobody named is called by its own.
func (p *picture) macsOf(name string) []string {
	macs := append(slices.Clone(p.macs[name]), name)
	if host := p.hosts[name]; host != nil {
		macs = append(macs, host.Spec.BootMACAddress)
		if h := host.Status.HardwareDetails; h != nil {
			for _, nic := range h.NIC {
				macs = append(macs, nic.MAC)
			}
		}
	}

	for i := range macs {
		macs[i] = strings.ToLower(macs[i])
	}
	macs = slices.DeleteFunc(macs, func(mac string) bool { return strings.Count(mac, ":") != 5 })
	slices.Sort(macs)
	return slices.Compact(macs)
}

// packetsView is how far the reading of captures is.
type packetsView struct {
	answerView
	Denied string // why they are not shown
}

// boot is the last network boot of one MAC.
type boot struct {
	MAC     string
	Address string
	Since   time.Time // zero: the daemon was started since
	Boots   int
	Rows    []bootRow
	Hidden  int // older rows that are not listed
}

// bootRow is a question of a machine with what it was answered.
type bootRow struct {
	Time     time.Time
	Protocol string
	Asked    string
	Answers  []bootAnswer
	Silence  string // where there is no answer
	Error    string // what the machine itself did about it

	file string // that it asked for by TFTP
}

type bootAnswer struct {
	Server string // "": it is not known
	Text   string
	Error  string
}

// showNode is the page of a node.
func showNode(p *picture, by Role, r *http.Request) (any, string, bool) {
	name := r.PathValue("name")
	v, ok := newNodeView(p, by, name)
	if !ok {
		return v, name, false
	}

	v.Packets.Denied = deniedText(denialOf(r))
	var packets map[string][]capture.Exchange
	if v.Packets.Denied == "" {
		a, isKnown := p.packets[p.packetsKey(name)]
		v.Packets.answerView = answerView{Asking: !isKnown, Error: a.Value.Error, Time: a.Time}
		packets = a.Value.Boots
	}
	v.Boots = newBoots(p, name, packets)
	return v, name, true
}

// newBoots are the last boots of a node: of each of its MACs what was captured, and the steps that the boot servers
// noted.
func newBoots(p *picture, name string, packets map[string][]capture.Exchange) (all []boot) {
	for _, mac := range p.macsOf(name) {
		t, isTraced := p.traces[mac]
		if !isTraced && len(packets[mac]) == 0 {
			continue
		}

		b := boot{MAC: mac, Since: t.Since, Boots: t.Boots}
		if t.Addr.IsValid() {
			b.Address = t.Addr.String()
		}
		b.addExchanges(p, packets[mac])
		b.addMarks(p, t.Marks, len(packets[mac]) > 0)
		slices.SortStableFunc(b.Rows, func(x, y bootRow) int { return x.Time.Compare(y.Time) })
		b.Hidden = max(0, len(b.Rows)-maxBootRows)
		b.Rows = b.Rows[b.Hidden:]
		all = append(all, b)
	}
	return all
}

// addExchanges adds what was on the wire.
func (b *boot) addExchanges(p *picture, all []capture.Exchange) {
	for _, e := range all {
		row := bootRow{
			Time:     e.Time,
			Protocol: string(e.Protocol),
			Asked:    questionText(e),
			Silence:  "No answer was seen.",
			file:     strings.Trim(e.File, "/"),
		}
		if e.GaveUp != "" {
			row.Error = "It ended the transfer: " + e.GaveUp
		}
		for _, a := range e.Answers {
			text := answerText(a)
			if a.Kind == capture.Nak || a.Kind == capture.Failure {
				row.Answers = append(row.Answers, bootAnswer{p.serverName(a.Server), "", text})
				continue
			}
			row.Answers = append(row.Answers, bootAnswer{p.serverName(a.Server), text, ""})
		}
		b.Rows = append(b.Rows, row)
	}
}

// programNames are who asks by DHCP.
var programNames = map[pxe.Firmware]string{
	pxe.FirmwareUnknown:  "an operating system",
	pxe.FirmwarePXE:      "PXE firmware",
	pxe.FirmwareHTTPBoot: "UEFI HTTP boot",
	pxe.FirmwareIPXE:     "iPXE",
	pxe.FirmwareGRUB:     "GRUB",
}

// questionText is what a machine asked.
func questionText(e capture.Exchange) string {
	text := string(e.Kind)
	switch {
	case e.Count == 0:
		return "not captured"
	case e.Protocol != capture.TFTP:
		text += " by " + programNames[e.Program]
	case e.Kind == capture.Write:
		text = "writes " + e.File
	default:
		text = "reads " + e.File
	}
	if e.Count > 1 {
		text += fmt.Sprintf(", %d times", e.Count)
	}
	return text
}

// answerText is what a server answered.
func answerText(a capture.Answer) string {
	switch a.Kind {
	case capture.Data:
		return "sends it"
	case capture.Options:
		if a.Size == 0 {
			return "takes its options"
		}
		return "has " + formatBytes(a.Size)
	case capture.Failure:
		return a.Text
	}

	text := string(a.Kind)
	if a.Addr.IsValid() {
		text += " of " + a.Addr.String()
	}
	if a.File != "" {
		text += ", boot program " + a.File
	}
	if a.Text != "" {
		text += ": " + a.Text
	}
	return text
}

// serverName is who has an address.
func (p *picture) serverName(addr netip.Addr) string {
	for _, network := range p.doc.Addresses {
		for _, own := range network.Addresses {
			if prefix, err := netip.ParsePrefix(own); err == nil && prefix.Addr() == addr {
				return addr.String() + ", this appliance"
			}
		}
	}
	return addr.String() + ", another server"
}

// stepTitles are the steps of a network boot in words.
var stepTitles = map[boottrace.Step]string{
	boottrace.StepDiscover: "Asked for an address",
	boottrace.StepOffer:    "Was offered an address",
	boottrace.StepLease:    "Got its address",
	boottrace.StepTFTP:     "Loads a boot program by TFTP",
	boottrace.StepBootFile: "Loads a boot program by HTTP",
	boottrace.StepScript:   "Got its boot script",
	boottrace.StepKernel:   "Loads a kernel",
	boottrace.StepRamdisk:  "Loads a ramdisk",
	boottrace.StepImage:    "Loads an image",
	boottrace.StepDisc:     "Its BMC reads its disc",
}

// stepProtocols are those that packets are captured of. The others are HTTP's, whose scripts and images may hold
// secrets.
var stepProtocols = map[boottrace.Step]capture.Protocol{
	boottrace.StepDiscover: capture.DHCP,
	boottrace.StepOffer:    capture.DHCP,
	boottrace.StepLease:    capture.DHCP,
	boottrace.StepTFTP:     capture.TFTP,
}

// addMarks adds the steps that the boot servers noted. Of those whose packets were captured only what packets do not
// say: why the appliance refused something, and how far a transfer is.
func (b *boot) addMarks(p *picture, marks []boottrace.Mark, isCaptured bool) {
	for _, m := range marks {
		protocol := string(cmp.Or(stepProtocols[m.Step], "HTTP"))
		wrong := cmp.Or(m.Refused, m.Error)
		progress := ""
		if m.Total > 0 {
			progress = formatBytes(m.Bytes) + " of " + formatBytes(m.Total)
		}
		if isCaptured && protocol != "HTTP" && wrong == "" {
			if m.Step == boottrace.StepTFTP && progress != "" {
				b.addProgress(m.Detail, progress)
			}
			continue
		}

		row := bootRow{
			Time:     m.Time,
			Protocol: protocol,
			Asked:    markTitle(m),
			Silence:  "Its packets were not captured.",
		}
		if m.Detail != "" {
			row.Asked += ": " + m.Detail
		}
		if protocol == "HTTP" && wrong == "" {
			progress = cmp.Or(progress, "answered")
		}
		if progress != "" || wrong != "" {
			row.Answers = []bootAnswer{{p.bootServer(), progress, wrong}}
		}
		b.Rows = append(b.Rows, row)
	}
}

// markTitle is a step in words.
func markTitle(m boottrace.Mark) string {
	if m.ByAnother {
		return "Another machine asked for its boot script"
	}
	return cmp.Or(stepTitles[m.Step], string(m.Step))
}

// addProgress adds to the last answer with a file how far it is.
func (b *boot) addProgress(file, progress string) {
	for i := len(b.Rows) - 1; i >= 0; i-- {
		row := &b.Rows[i]
		if row.file == "" || row.file != strings.Trim(file, "/") || len(row.Answers) == 0 {
			continue
		}
		if last := &row.Answers[len(row.Answers)-1]; last.Error == "" {
			last.Text += ", " + progress
		}
		return
	}
}

// bootServer is the appliance on the network that machines boot from.
func (p *picture) bootServer() string {
	for _, network := range p.doc.Addresses {
		for _, own := range network.Addresses {
			if prefix, err := netip.ParsePrefix(own); err == nil && network.Role == bootNetwork {
				return prefix.Addr().String() + ", this appliance"
			}
		}
	}
	return "this appliance"
}
