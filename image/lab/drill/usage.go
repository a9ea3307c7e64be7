package drill

import (
	"context"
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
// children), KiB resident, context switches, and what it was started as.
const usage = `for p in /proc/[0-9]*; do
	set -- $(sed 's/.*) //' $p/stat); ticks=$((${12} + ${13} + ${14} + ${15}))
	echo "$ticks" $(cat $p/status $p/task/*/status | awk '/^VmRSS/ && !rss {rss = $2} /ctxt_switches/ {n += $2} END {print rss + 0, n + 0}') $(tr '\0' ' ' <$p/cmdline)
done 2>/dev/null`

// Usage reads it by part, the processes of a part together, and as "all" that of every process.
func (d *Drill) Usage(ctx context.Context) (map[string]Usage, error) {
	out, err := d.Bed.Run(ctx, "sh", "-c", usage)
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
		for _, name := range []string{"all", part(words[3:])} {
			if name != "" {
				u := sums[name]
				sums[name] = Usage{u.CPU + ticks/100, u.MiB + kib/1024, u.Switches + switches}
			}
		}
	}
	return sums, nil
}

func part(args []string) string {
	line := strings.Join(args, " ")
	for _, p := range []struct{ part, mark string }{
		{"ironic", "/usr/bin/ironic --config-file"}, {"operator", "/baremetal-operator"}, {"apiserver", "kube-apiserver"},
		{"etcd", "etcd "}, {"controller-manager", "kube-controller-manager"}, {"scheduler", "kube-scheduler"},
		{"firstlightd", "firstlightd"}, {"kubelet", "kubelet"}, {"containerd", "containerd"},
	} {
		if strings.Contains(line, p.mark) {
			return p.part
		}
	}
	return ""
}
