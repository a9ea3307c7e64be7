package bench_test

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
func measureBoots(ctx context.Context, top, dir string) ([]bench.Row, error) {
	m, err := lab.New(lab.Config{Name: "bench", Dir: dir, Disks: []lab.Disk{{Image: imageOf(top), Bytes: 4 << 30}}})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	var walls, cpus bench.Series
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
				walls.Add(moment.name, time.Since(began).Seconds())
				cpus.Add(moment.name, (m.CPU() - before).Seconds())
			}
		}
		if err := m.Kill(); err != nil {
			return nil, err
		}
	}
	var rows []bench.Row
	byClock := fmt.Sprintf("the same by the clock; median of %d; load of the machine at the end %s", runs, bench.LoadAverage())
	for _, name := range walls.Names() {
		rows = append(rows,
			bench.Row{
				Name: "image/boot-to-" + name + "-cpu",
				Unit: "s",
				Ours: cpus.Median(name),
				Note: "processor seconds of QEMU, without KVM; BIOS, USB, 2 processors, second boot",
			},
			bench.Row{Name: "image/boot-to-" + name, Unit: "s", Ours: walls.Median(name), Note: byClock})
	}
	return rows, nil
}
