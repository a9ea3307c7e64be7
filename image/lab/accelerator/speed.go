package accelerator

import (
	"context"
	"fmt"
	"time"
)

// The measure of speed is the processor time that an emulated machine takes for rounds of the trial's work, without
// that of its firmware. Other load changes it little.
const (
	rounds    = 100_000_000
	reference = 650 * time.Millisecond
)

// Speed is how fast a machine's processor is, next to the emulated one of the computer on which the README's times
// were taken. It takes some seconds.
func (k Kind) Speed(ctx context.Context) (float64, error) {
	alone, err := k.run(ctx, 0)
	if err != nil {
		return 0, fmt.Errorf("measure speed: %w", err)
	}
	all, err := k.run(ctx, rounds)
	if err != nil {
		return 0, fmt.Errorf("measure speed: %w", err)
	}
	return speed(all - alone), nil
}

// speed is that of a processor that takes so long for the rounds.
func speed(took time.Duration) float64 {
	return float64(reference) / float64(max(took, time.Millisecond))
}
