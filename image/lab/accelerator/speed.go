package accelerator

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// The measure of speed is how long as many emulated machines as a rack keeps busy take for rounds of the trial's work,
// side by side, without what their firmware takes. Whatever else runs on the processors, or takes them away, counts.
const (
	machines  = 2
	rounds    = 100_000_000
	reference = 670 * time.Millisecond
)

// Speed is how fast a rack's processors are now, next to those of the computer on which the README's times were
// taken, with everything that runs beside them. It takes some seconds.
func (k Kind) Speed(ctx context.Context) (float64, error) {
	alone, err := k.runBeside(ctx, 0)
	if err != nil {
		return 0, fmt.Errorf("measure speed: %w", err)
	}

	all, err := k.runBeside(ctx, rounds)
	if err != nil {
		return 0, fmt.Errorf("measure speed: %w", err)
	}

	return speedOf(all - alone), nil
}

// runBeside runs machines side by side and returns how long they took on average.
func (k Kind) runBeside(ctx context.Context, rounds uint32) (time.Duration, error) {
	var took [machines]time.Duration
	group, ctx := errgroup.WithContext(ctx)
	for i := range took {
		group.Go(func() error {
			var err error
			took[i], err = k.run(ctx, rounds)
			return err
		})
	}

	if err := group.Wait(); err != nil {
		return 0, err
	}

	var sum time.Duration
	for _, t := range took {
		sum += t
	}

	return sum / machines, nil
}

// speedOf is that of processors that take so long for the rounds.
func speedOf(took time.Duration) float64 {
	return float64(reference) / float64(max(took, time.Millisecond))
}
