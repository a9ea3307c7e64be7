package page

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/appliance/metrics"
)

// hour is a recorded hour that ends at a time, in which the boot server began anew after half of it.
func hour(end time.Time) (all []metrics.Sample) {
	for i := range 61 {
		n := float64(i)
		values := map[string]float64{
			metrics.Processors: 2, metrics.ProcessorBusy: 1000 + 60*n,
			metrics.MemorySize: 8e9, metrics.MemoryFree: 5e9 - 1e7*n,
			metrics.DHCPAcks: 100 + n, metrics.TFTPBytes: 6e6 * n, metrics.HTTPBytes: 6e9 * n,
			metrics.NodeState + "/provisioning": 3, metrics.NodeState + "/provisioned": 6,
		}
		if i >= 30 {
			values[metrics.HTTPBytes] = 6e9 * (n - 30)
		}
		if i < 10 {
			delete(values, metrics.NodeState+"/provisioned")
		}
		all = append(all, metrics.Sample{Time: end.Add(time.Duration(i-60) * time.Minute), Values: values})
	}
	return all
}

func TestNumbersAreDrawnAndSaid(t *testing.T) {
	of := rack(10)
	d := logIn(t, newServer(t, of)).open("/numbers")
	rows := map[string]string{}
	for _, tr := range d.id("main").all("tr") {
		cells := texts(tr.all("th", "td"))
		rows[cells[0]] = strings.Join(cells[2:], "; ")
	}
	assert.Equal(t, map[string]string{
		"Number":                               "Now; Least; Most",
		"Processor":                            "50 %; 50 %; 50 %",
		"Memory in use":                        "3.6 GB; 3.0 GB; 3.6 GB",
		"Addresses given by DHCP, each minute": "1; 1; 1",
		"TFTP":                                 "100 kB/s; 100 kB/s; 100 kB/s",
		"HTTP":                                 "100 MB/s; 0 B/s; 100 MB/s",
		"provisioned":                          "6; 0; 6",
		"provisioning":                         "3; 3; 3",
	}, rows, "what was never read is left out; a counter that begins anew does not fall")
	lines := d.id("main").all("svg")
	require.Len(t, lines, 7)
	for _, svg := range lines {
		assert.NotEmpty(t, svg.attr("aria-label"))
		assert.NotRegexp(t, `NaN|Inf|-\d`, svg.all("path")[1].attr("d"))
	}
}

// TestNumbersHaveGaps where nothing was read, and say that the last is not known.
func TestNumbersHaveGaps(t *testing.T) {
	now := time.Now()
	all := hour(now)
	for _, i := range []int{20, 60} {
		all[i].Values = map[string]float64{}
	}
	v := newNumbersView(all, now)
	memory := v.Groups[0].Rows[1]
	assert.Equal(t, []string{"Memory in use", "not known"}, []string{memory.Name, memory.Now})
	assert.Equal(t, 2, strings.Count(memory.Line, "M"))
	assert.Equal(t, 2, strings.Count(v.Groups[0].Rows[0].Line, "M"))

	for name, all := range map[string][]metrics.Sample{"none": nil, "nothing read": {{Time: now}, {Time: now}}} {
		assert.Empty(t, newNumbersView(all, now).Groups, name)
	}
	one := newNumbersView(hour(now)[:1], now)
	require.Len(t, one.Groups, 2, "a rate needs two samples")
	assert.Equal(t, "Memory in use", one.Groups[0].Rows[0].Name)
	assert.Contains(t, logIn(t, newServer(t, ready())).open("/numbers").id("empty").text(), "no numbers yet")
}
