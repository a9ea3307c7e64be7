package virtualrack

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"

	"firstlight.dev/firstlight/image/lab/accelerator"
)

// MeasureHost finds out what this computer has for a rack, in some seconds.
func MeasureHost(ctx context.Context, choice accelerator.Choice) (HostCapacity, error) {
	h := HostCapacity{Accel: choice, Cores: runtime.GOMAXPROCS(0)}
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return h, fmt.Errorf("measure this computer: %w", err)
	}

	h.MiB, _ = freeMiB(string(text))
	h.Speed, err = choice.Kind.Speed(ctx)
	return h, err
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
