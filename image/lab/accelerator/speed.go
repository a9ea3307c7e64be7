package accelerator

import (
	"context"
	"fmt"
	"math"
	"time"
)

// The measure of speed is the processor time that an emulated machine takes for rounds of the trial's work, without
// that of its firmware. Other load changes it little: beside two to thirteen threads most
// measures took 820 to 880 ms, a few up to 1,160; so the better one of two counts.
//
// The README's computer did not take it. Another one did on 2026-11-26: two processors of an AMD EPYC with QEMU 7.2
// took 870 ms. Its appliance's firmware and container runtime took 1.3 times the processor time that
// docs/performance.md has for them; hence the reference. Its whole systems took up to twice that time.
const (
	rounds    = 100_000_000
	measures  = 2
	reference = 670 * time.Millisecond
)

// Speed is how fast a machine's processor is, next to the emulated one of the computer on which the README's times
// were taken. It takes some seconds.
func (k Kind) Speed(ctx context.Context) (float64, error) {
	alone, err := k.run(ctx, 0)
	if err != nil {
		return 0, fmt.Errorf("measure speed: %w", err)
	}
	best := time.Duration(math.MaxInt64)
	for range measures {
		all, err := k.run(ctx, rounds)
		if err != nil {
			return 0, fmt.Errorf("measure speed: %w", err)
		}
		best = min(best, all-alone)
	}
	return speedOf(best), nil
}

// speedOf is that of a processor that takes so long for the rounds.
func speedOf(took time.Duration) float64 {
	return float64(reference) / float64(max(took, time.Millisecond))
}
