// Package bench_test measures the boot servers and others with them, in one run on one machine. It needs root, for
// network namespaces. Its rows are build/bench/{dhcp,http,tftp,memory}.json.
package bench_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
)

// servers are what this program is instead of a benchmark, in the servers' namespace, by its first argument; the
// second is theirs.
var servers = map[string]func(context.Context, string) error{
	serveDHCPArg:  serveDHCP,
	serveFilesArg: serveFiles,
}

func TestMain(m *testing.M) {
	if len(os.Args) != 3 || servers[os.Args[1]] == nil {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := servers[os.Args[1]](ctx, os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
