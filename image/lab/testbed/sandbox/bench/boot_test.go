package bench_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/image/lab"
)

// stages of a first boot, by the lines that end them.
var stages = []struct{ name, line string }{
	{"images", "firstlight: images-present: ok"},
	{"control-plane", "firstlight: control-plane: ok"},
	{"node-ready", "firstlight: node-ready: ok"},
	{"system-pods", "firstlight: system-pods: ok"},
}

// BenchmarkBoot measures the first boot of a stick without a network card, from power on. It
// takes the processor seconds of QEMU, which other load changes less than the clock.
func BenchmarkBoot(b *testing.B) {
	dir := b.TempDir()
	bench.Run(b, "kube-boot", func(ctx context.Context) ([]bench.Row, error) { return measureBoot(ctx, dir) })
}

func measureBoot(ctx context.Context, dir string) ([]bench.Row, error) {
	top, err := bench.FindTop()
	if err != nil {
		return nil, err
	}
	image := filepath.Join(top, "build", "firstlight.img")
	m, err := lab.New(lab.Config{Name: "bench", Dir: dir, MiB: 4096, Disks: []lab.Disk{{Image: image, Bytes: 8 << 30}}})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	began := time.Now()
	if err := m.Start(ctx); err != nil {
		return nil, err
	}
	var rows []bench.Row
	for _, stage := range stages {
		waiting, stop := context.WithTimeout(ctx, lab.BootDeadline)
		_, err := m.Console().Wait(waiting, stage.line)
		stop()
		if err != nil {
			return nil, err
		}
		rows = append(rows, bench.Row{
			Name: "kube/boot-to-" + stage.name + "-cpu",
			Unit: "s",
			Ours: m.CPU().Seconds(),
			Note: fmt.Sprintf("processor seconds of QEMU without KVM, 2 processors, first boot from USB; by the clock %.0f s, "+
				"load of the machine %s", time.Since(began).Seconds(), bench.LoadAverage()),
		})
	}
	return rows, m.Kill()
}
