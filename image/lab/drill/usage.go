package drill

import (
	"context"
	"strconv"
	"strings"
)

// Usage is what one part of the appliance has taken so far.
type Usage struct {
	CPU float64 // seconds
	MiB float64 // resident now
}

// Usage reads it by part, the processes of a part together.
func (d *Drill) Usage(ctx context.Context) (map[string]Usage, error) {
	out, err := d.Bed.Run(ctx, "ps", "-eo", "times=,rss=,args=")
	if err != nil {
		return nil, err
	}
	sums := map[string]Usage{}
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		if len(words) < 3 {
			continue
		}
		cpu, errCPU := strconv.ParseFloat(words[0], 64)
		kib, errRSS := strconv.ParseFloat(words[1], 64)
		if errCPU != nil || errRSS != nil {
			continue
		}
		if part := part(words[2:]); part != "" {
			u := sums[part]
			sums[part] = Usage{u.CPU + cpu, u.MiB + kib/1024}
		}
	}
	return sums, nil
}

func part(args []string) string {
	line := strings.Join(args, " ")
	for _, p := range []struct{ part, mark string }{
		{"ironic", "/usr/bin/ironic --config-file"}, {"operator", "/baremetal-operator"}, {"apiserver", "kube-apiserver"},
		{"etcd", "etcd "}, {"controller-manager", "kube-controller-manager"}, {"firstlightd", "firstlightd"}, {"kubelet", "kubelet"}, {"containerd", "containerd"},
	} {
		if strings.Contains(line, p.mark) {
			return p.part
		}
	}
	return ""
}
