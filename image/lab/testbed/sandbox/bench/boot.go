package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/image/lab"
)

const imagePath = "build/firstlight.img"

// stages of a first boot, by the lines that end them.
var stages = []struct{ name, line string }{
	{"images", "firstlight: images-present: ok"},
	{"control-plane", "firstlight: control-plane: ok"},
	{"node-ready", "firstlight: node-ready: ok"},
	{"system-pods", "firstlight: system-pods: ok"},
}

// benchBoot measures the first boot of a stick without a network card, from power on. It
// takes the processor seconds of QEMU, which other load changes less than the clock.
func benchBoot(ctx context.Context) ([]bench.Row, error) {
	dir, err := os.MkdirTemp("", "firstlight-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	m, err := lab.New(lab.Config{Name: "bench", Dir: filepath.Join(dir, "machine"), MiB: 4096, Disks: []lab.Disk{{Image: imagePath, Bytes: 8 << 30}}})
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
		rows = append(rows, bench.Row{Name: "kube/boot-to-" + stage.name + "-cpu", Unit: "s", Ours: m.CPU().Seconds(),
			Note: fmt.Sprintf("processor seconds of QEMU without KVM, 2 processors, first boot from USB; by the clock %.0f s, load of the machine %s", time.Since(began).Seconds(), bench.LoadAverage())})
	}
	return rows, m.Kill()
}
