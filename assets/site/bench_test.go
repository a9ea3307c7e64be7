package site

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"firstlight.dev/firstlight/assets/bench"
)

// largeSite is a site of many nodes with what makes checks compare them with each other: the shape is redfish, ipmi
// (without MACs, which tell servers apart), refused (each has an image that only a document in use may have), or clusters
// (each node is one).
func largeSite(shape string, nodes int) []byte {
	var text, clusters strings.Builder
	text.WriteString("networks:\n" +
		"  provisioning: {interface: eno1, cidr: 10.0.0.0/16, address: 10.0.0.1, dhcp: {range: 10.0.16.0-10.0.255.250}}\n" +
		"  bmc: {interface: eno2, cidr: 10.1.0.0/16, address: 10.1.0.1}\nnodes:\n")
	for i := range nodes {
		fmt.Fprintf(&text, "  - {name: node-%d, rootDevice: {serialNumber: S%[1]d}, labels: {row: r%d}, "+
			"bmc: {username: admin, password: secret-%[1]d, address: ", i, i%10)
		host := fmt.Sprintf("10.1.%d.%d", 1+i/250, 1+i%250)
		if shape == "ipmi" {
			fmt.Fprintf(&text, "%q}", "ipmi://"+host)
		} else {
			fmt.Fprintf(&text, "%q}, macs: [\"52:54:00:00:%02x:%02x\"]", "redfish://"+host+"/redfish/v1/Systems/1", i>>8, i&255)
		}
		if shape == "refused" {
			fmt.Fprintf(&text, ", os: {image: x-%d.iso}", i)
		}
		text.WriteString("}\n")
		fmt.Fprintf(&clusters, "  - {name: c%d, controlPlane: [{name: m, node: node-%[1]d}]}\n", i)
	}
	if shape == "clusters" {
		text.WriteString("clusters:\n" + clusters.String())
	}
	return []byte(text.String())
}

// BenchmarkAccept is what the check of a document takes of the processor, after one that it replaces: ten times as many
// nodes are ten times as much work, give or take.
func BenchmarkAccept(b *testing.B) {
	runs := bench.Runs(b, 3)
	bench.Run(b, "site", func(context.Context) (rows []bench.Row, err error) {
		for _, shape := range []string{"redfish", "ipmi", "refused", "clusters"} {
			var few float64
			for _, nodes := range []int{300, 3000} {
				text := largeSite(shape, nodes)
				var times []float64
				for range runs {
					before := bench.ProcessorTime()
					if _, problems := LoadAfter("site.yaml", text, text); len(problems) > 0 {
						return rows, problems.Err()
					}
					times = append(times, float64((bench.ProcessorTime()-before).Microseconds())/1000)
				}

				row := bench.Row{
					Name: fmt.Sprintf("site/accept-%s-%d", shape, nodes), Unit: "ms", Ours: bench.Median(times),
					Note: fmt.Sprintf("processor time of the document in use and of the new one; median of %d", runs),
				}
				if nodes > 300 {
					row = row.Less("ten of 300", 10*few, 0.5)
				}
				few = row.Ours
				rows = append(rows, row)
			}
		}
		return rows, nil
	})
}
