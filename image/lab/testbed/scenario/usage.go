package scenario

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Usage is what one part of the appliance has taken so far.
type Usage struct {
	CPU      float64 // seconds
	MiB      float64 // resident now
	Switches float64 // context switches of its threads
}

// usage prints of every process: clock ticks (proc_pid_stat(5): utime, stime and those of its ended
// children), KiB resident, context switches, and what it was started as. One that has ended since it was
// listed has no words.
const usage = `for p in /proc/[0-9]*; do
	set -- $(sed 's/.*) //' $p/stat); [ $# -gt 15 ] || continue
	ticks=$((${12} + ${13} + ${14} + ${15}))
	echo "$ticks" $(cat $p/status $p/task/*/status | awk '/^VmRSS/ && !rss {rss = $2} /ctxt_switches/ {n += $2} END {print rss + 0, n + 0}') $(tr '\0' ' ' <$p/cmdline)
done 2>/dev/null`

// Usage reads it by part, the processes of a part together, and as "all" that of every process.
func (d *Scenario) Usage(ctx context.Context) (map[string]Usage, error) {
	out, err := d.Sandbox.Run(ctx, "sh", "-c", usage)
	if err != nil {
		return nil, err
	}

	sums := map[string]Usage{}
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		if len(words) < 4 {
			continue // a thread of the kernel, or it has ended
		}

		ticks, errTicks := strconv.ParseFloat(words[0], 64)
		kib, errRSS := strconv.ParseFloat(words[1], 64)
		switches, errSwitches := strconv.ParseFloat(words[2], 64)
		if errTicks != nil || errRSS != nil || errSwitches != nil {
			continue
		}

		for _, name := range []string{"all", partOf(words[3:])} {
			if name != "" {
				u := sums[name]
				sums[name] = Usage{u.CPU + ticks/100, u.MiB + kib/1024, u.Switches + switches}
			}
		}
	}

	return sums, nil
}

func partOf(args []string) string {
	line := strings.Join(args, " ")
	for _, p := range []struct{ part, mark string }{
		{"ironic", "/usr/bin/ironic --config-file"}, {"operator", "/baremetal-operator"}, {"apiserver", "kube-apiserver"},
		{"etcd", "etcd "}, {"controller-manager", "kube-controller-manager"}, {"scheduler", "kube-scheduler"},
		{"kube-proxy", "kube-proxy"}, {"coredns", "coredns"},
		{"bpa", "firstlightd bpa"}, {"kpa", "firstlightd kpa"}, {"artifacts", "firstlightd artifacts"}, {"firstlightd", "firstlightd"},
		{"cluster-api", "/cluster-api "},
		{"kubelet", "kubelet"}, {"shims", "containerd-shim"}, {"containerd", "containerd"},
	} {
		if strings.Contains(line, p.mark) {
			return p.part
		}
	}
	return ""
}

// Objects counts what the API keeps, by resource: pods, baremetalhosts.metal3.io. It is the API server's own
// figure (apiserver_resource_objects), up to a minute old.
func (d *Scenario) Objects(ctx context.Context) (map[string]int, error) {
	out, err := d.Sandbox.Run(ctx, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "get", "--raw", "/metrics")
	if err != nil {
		return nil, err
	}
	return objects(out)
}

var objectLine = regexp.MustCompile(`^apiserver_(?:resource|storage)_objects\{(.*)\} (\S+)$`)

// objects reads that figure from the text of /metrics. Older servers give the resource with its group, newer
// ones have a label for each.
func objects(text string) (map[string]int, error) {
	counts := map[string]int{}
	for line := range strings.Lines(text) {
		found := objectLine.FindStringSubmatch(strings.TrimSpace(line))
		if found == nil {
			continue
		}

		name := label(found[1], "resource")
		if group := label(found[1], "group"); group != "" {
			name += "." + group
		}

		n, err := strconv.ParseFloat(found[2], 64)
		if err != nil {
			return nil, fmt.Errorf("count objects: %w", err)
		}

		counts[name] = max(counts[name], int(n))
	}
	return counts, nil
}

// label is the value of one of a metric's labels.
func label(labels, name string) string {
	_, rest, _ := strings.Cut(","+labels, ","+name+`="`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}
