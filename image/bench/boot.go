package main

import (
	"context"
	"fmt"
	"time"

	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/image/lab"
)

// moments of a boot, by the lines that say so.
var moments = []struct{ name, line string }{
	{"init", ": looking for the stick"},
	{"root", ": starts from "},
	{"systemd", "Welcome to "},
	{"data", "storage: data on /dev/"},
	{"daemon", "firstlight: data-mounted: ok"},
}

// measureBoots measures the second and later boots of a stick, by BIOS from USB, each ended by
// pulling the plug once the daemon runs.
func measureBoots(ctx context.Context, path, dir string) ([]bench.Row, error) {
	m, err := lab.New(lab.Config{Name: "bench", Dir: dir, Disks: []lab.Disk{{Image: path, Bytes: 4 << 30}}})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	walls, cpus := map[string][]float64{}, map[string][]float64{}
	for i := range runs + 1 {
		before, began := m.CPU(), time.Now()
		if err := m.Start(ctx); err != nil {
			return nil, err
		}
		for _, moment := range moments {
			waiting, stop := context.WithTimeout(ctx, lab.BootDeadline)
			_, err := m.Console().Wait(waiting, moment.line)
			stop()
			if err != nil {
				return nil, err
			}
			if i > 0 { // the first boot makes DATA
				walls[moment.name] = append(walls[moment.name], time.Since(began).Seconds())
				cpus[moment.name] = append(cpus[moment.name], (m.CPU() - before).Seconds())
			}
		}
		if err := m.Kill(); err != nil {
			return nil, err
		}
	}
	var rows []bench.Row
	for _, moment := range moments {
		rows = append(rows,
			bench.Row{Name: "image/boot-to-" + moment.name + "-cpu", Unit: "s", Ours: bench.Median(cpus[moment.name]), Note: "processor seconds of QEMU, without KVM; BIOS, USB, 2 processors, second boot"},
			bench.Row{Name: "image/boot-to-" + moment.name, Unit: "s", Ours: bench.Median(walls[moment.name]), Note: fmt.Sprintf("the same by the clock; median of %d; load of the machine at the end %s", runs, bench.LoadAverage())})
	}
	return rows, nil
}
