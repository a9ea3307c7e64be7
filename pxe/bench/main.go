// Command bench measures the boot servers beside others, in one run on one machine, and
// prints a row per figure. It measures and does not judge: it exits 0 unless it could not
// measure. It needs root, for network namespaces.
//
//	go run ./pxe/bench [NAME...]    all figures, or those named
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"firstlight.dev/firstlight/assets/bench"
)

// benches is all there is to measure, in the order of the rows.
func benches() []subject {
	return []subject{
		{"dhcp", benchDHCP},
		{"http", benchHTTP},
		{"tftp", benchTFTP},
		{"memory", benchMemory},
	}
}

// subject is something to measure. The context ends when the user does.
type subject struct {
	name string
	run  func(context.Context) ([]bench.Row, error)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) == 3 && os.Args[1] == serveDHCPArg {
		exitWith(serveDHCP(ctx, os.Args[2]))
	}
	if len(os.Args) == 3 && os.Args[1] == serveFilesArg {
		exitWith(serveFiles(ctx, os.Args[2]))
	}
	exitWith(measureAll(ctx, os.Args[1:]))
}

func exitWith(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func measureAll(ctx context.Context, names []string) error {
	for _, b := range benches() {
		if len(names) > 0 && !slices.Contains(names, b.name) {
			continue
		}
		rows, err := b.run(ctx)
		if err != nil {
			return fmt.Errorf("measure %s: %w", b.name, err)
		}
		if err := bench.Write(os.Stdout, bench.Dir, b.name, rows); err != nil {
			return err
		}
	}
	return nil
}
