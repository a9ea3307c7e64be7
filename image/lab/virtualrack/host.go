package virtualrack

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"firstlight.dev/firstlight/image/lab/accelerator"
)

// Threads are counted so often, so many times, before the speed is measured.
const (
	samples     = 10
	sampleEvery = 100 * time.Millisecond
)

// MeasureHost finds out what this computer has for a rack, in some seconds.
func MeasureHost(ctx context.Context, choice accelerator.Choice) (HostCapacity, error) {
	h := HostCapacity{Accel: choice, Cores: runtime.GOMAXPROCS(0)}
	for range samples {
		text, err := os.ReadFile("/proc/stat")
		if err != nil {
			return h, fmt.Errorf("measure this computer: %w", err)
		}
		h.Busy += float64(othersRunning(string(text))) / samples
		select {
		case <-ctx.Done():
			return h, ctx.Err()
		case <-time.After(sampleEvery):
		}
	}
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return h, fmt.Errorf("measure this computer: %w", err)
	}
	h.MiB, _ = freeMiB(string(text))
	h.Speed, err = choice.Kind.Speed(ctx)
	return h, err
}

// othersRunning is how many threads run or want to, beside the one that asks, by proc_stat(5).
func othersRunning(stat string) int {
	_, rest, _ := strings.Cut(stat, "procs_running ")
	var n int
	if _, err := fmt.Sscan(rest, &n); err != nil {
		return 0 // a kernel that does not say it
	}
	return max(0, n-1)
}

// freeMiB is the memory that is free, and that the kernel can give back at once, by proc_meminfo(5).
func freeMiB(meminfo string) (mib int, known bool) {
	_, rest, _ := strings.Cut(meminfo, "MemAvailable:")
	var kib int
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		return 0, false
	}
	return kib / 1024, true
}
