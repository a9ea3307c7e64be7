package page

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"firstlight.dev/firstlight/daemon/appliance/metrics"
)

// Sizes of the line of a number, in pixels of CSS, and what it is of.
const (
	lineWidth  = 240
	lineHeight = 40
	lineOf     = time.Hour
)

// numbersView is the page of numbers.
type numbersView struct{ Groups []numberGroup }

// numberGroup is numbers of one kind.
type numberGroup struct {
	ID, Title string
	Rows      []numberRow
}

// numberRow is a number over the last hour: as a line, and what there is to say of it without one.
type numberRow struct {
	Name          string
	Now           string // "not known" if it was not read last
	Least, Most   string
	Line          string // path of SVG
	Width, Height int

	points     []point
	format     func(float64) string
	topAtLeast float64 // of the line: what is less stays low
}

// point is a value at a time; after a gap if there was none before it.
type point struct {
	at       time.Time
	value    float64
	afterGap bool
}

func showNumbers(p *picture, _ Role, _ *http.Request) (any, string, bool) {
	return newNumbersView(p.numbers, p.time), "Numbers", true
}

func newNumbersView(all []metrics.Sample, now time.Time) numbersView {
	bytesPerSecond := func(v float64) string { return formatBytes(int64(v)) + "/s" }
	count := func(v float64) string { return fmt.Sprintf("%.0f", v) }
	groups := []numberGroup{
		{"machine", "The appliance", []numberRow{
			newRow("Processor", func(v float64) string { return fmt.Sprintf("%.0f %%", 100*v) }, 1, rate(all, metrics.ProcessorBusy,
				func(perSecond float64, s metrics.Sample) (float64, bool) {
					n := s.Values[metrics.Processors]
					return perSecond / max(1, n), n > 0
				})),
			newRow("Memory in use", func(v float64) string { return formatBytes(int64(v)) }, 0, gauge(all, func(s metrics.Sample) (float64, bool) {
				size, ok := s.Values[metrics.MemorySize]
				free, isKnown := s.Values[metrics.MemoryFree]
				return size - free, ok && isKnown
			})),
		}},
		{"traffic", "What servers are sent", []numberRow{
			newRow("Addresses given by DHCP, each minute", count, 1, rate(all, metrics.DHCPAcks,
				func(perSecond float64, _ metrics.Sample) (float64, bool) { return 60 * perSecond, true })),
			newRow("TFTP", bytesPerSecond, 1, rate(all, metrics.TFTPBytes, asItIs)),
			newRow("HTTP", bytesPerSecond, 1, rate(all, metrics.HTTPBytes, asItIs)),
			newRow("Container images", bytesPerSecond, 1, rate(all, metrics.ContainerBytes, asItIs)),
		}},
		{"servers", "Servers by phase", phaseRows(all, count)},
	}

	var v numbersView
	for _, g := range groups {
		g.Rows = slices.DeleteFunc(g.Rows, func(r numberRow) bool { return len(r.points) == 0 })
		for i := range g.Rows {
			g.Rows[i].draw(now, all)
		}
		if len(g.Rows) > 0 {
			v.Groups = append(v.Groups, g)
		}
	}
	return v
}

// phaseRows are how many servers were in each phase that one was in.
func phaseRows(all []metrics.Sample, format func(float64) string) (rows []numberRow) {
	seen := map[string]bool{}
	for _, s := range all {
		for name := range s.Values {
			if strings.HasPrefix(name, metrics.NodeState+"/") {
				seen[name] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		phase := strings.TrimPrefix(name, metrics.NodeState+"/")
		rows = append(rows, newRow(cmp.Or(phase, "new"), format, 1, gauge(all, func(s metrics.Sample) (float64, bool) {
			return s.Values[name], len(s.Values) > 0 // without a value none is in it
		})))
	}
	return rows
}

func newRow(name string, format func(float64) string, topAtLeast float64, points []point) numberRow {
	return numberRow{Name: name, Width: lineWidth, Height: lineHeight, format: format, topAtLeast: topAtLeast, points: points}
}

// gauge is a value of each sample that has it.
func gauge(all []metrics.Sample, of func(metrics.Sample) (float64, bool)) (points []point) {
	afterGap := true
	for _, s := range all {
		value, ok := of(s)
		if ok {
			points = append(points, point{s.Time, value, afterGap})
		}
		afterGap = !ok
	}
	return points
}

func asItIs(perSecond float64, _ metrics.Sample) (float64, bool) { return perSecond, true }

// rate is how fast a counter grew before each sample. One that is smaller than before began anew from zero.
func rate(all []metrics.Sample, name string, of func(perSecond float64, s metrics.Sample) (float64, bool)) []point {
	var before *metrics.Sample
	return gauge(all, func(s metrics.Sample) (value float64, ok bool) {
		last := before
		before = &s
		now, isKnown := s.Values[name]
		if last == nil || !isKnown {
			return 0, false
		}
		was, isKnown := last.Values[name]
		passed := s.Time.Sub(last.Time).Seconds()
		if !isKnown || passed <= 0 {
			return 0, false
		}
		if was > now {
			was = 0
		}
		return of((now-was)/passed, s)
	})
}

// draw makes the line, which ends at the right now, and the words.
func (r *numberRow) draw(now time.Time, all []metrics.Sample) {
	least, most := r.points[0].value, r.points[0].value
	for _, p := range r.points {
		least, most = min(least, p.value), max(most, p.value)
	}
	top, last := max(most, r.topAtLeast), r.points[len(r.points)-1]
	r.Least, r.Most, r.Now = r.format(least), r.format(most), "not known"
	if last.at.Equal(all[len(all)-1].Time) {
		r.Now = r.format(last.value)
	}

	var line strings.Builder
	for _, p := range r.points {
		x := lineWidth * (1 - now.Sub(p.at).Seconds()/lineOf.Seconds())
		y := lineHeight - 2 - (lineHeight-4)*p.value/top
		to := "L"
		if p.afterGap {
			to = "M"
		}
		fmt.Fprintf(&line, "%s%.0f %.0f", to, max(0, x), y)
		if p.afterGap {
			line.WriteString("h1") // a single value is a dot
		}
	}
	r.Line = line.String()
}
