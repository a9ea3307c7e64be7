// Command firstlight-node is what a node of a workload cluster runs besides Kubernetes
// (daemon/clusters/noderuntime).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"firstlight.dev/firstlight/daemon/clusters/noderuntime"
)

const usage = `usage:
  firstlight-node endpoint --listen ADDR:PORT --to ADDR:PORT,…   the API servers at one local address
  firstlight-node network --node NAME --pods CIDR --services CIDR
                                                                 routes to the pods of other nodes
  firstlight-node certificates --dir DIR                         renew what ends, on a control plane
  firstlight-node float --endpoint ADDR:PORT                     the API's address, on one node that serves it
  firstlight-node features --node NAME [--root DIR]              labels of what the machine has; --remove: take them away
  firstlight-node probe --listen ADDR:PORT                       answer and ask, for the verification
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// execute executes one command line. Exit codes: 0 done, 1 refused or failed (one line says why), 2 usage.
func execute(ctx context.Context, args []string, out, problems io.Writer) int {
	err := run(ctx, args, slog.New(slog.NewTextHandler(problems, nil)))
	var wrong usageError
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(out, usage)
		return 0
	case errors.As(err, &wrong):
		fmt.Fprintf(problems, "firstlight-node: %v\n%s", err, usage)
		return 2
	case err != nil:
		fmt.Fprintln(problems, "firstlight-node:", err)
		return 1
	}

	return 0
}

// usageError marks a wrong command line: exit code 2.
type usageError struct{ error }

// run executes one command line until ctx ends.
func run(ctx context.Context, args []string, log *slog.Logger) error {
	if len(args) == 0 {
		return usageError{errors.New("name a command")}
	}
	if slices.Contains([]string{"-h", "-help", "--help"}, args[0]) {
		return flag.ErrHelp
	}

	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.SetOutput(io.Discard) // command tells
	listen := flags.String("listen", "", "where to listen")
	endpoint := flags.String("endpoint", "", "where the control plane is reached")
	to := flags.String("to", "", "API servers, commas between")
	node := flags.String("node", "", "this node's name")
	pods := flags.String("pods", "", "addresses of all pods of the cluster")
	services := flags.String("services", "", "addresses of all Services of the cluster")
	root := flags.String("root", "/", "where the machine's root is")
	remove := flags.Bool("remove", false, "take the labels from all nodes")
	dir := flags.String("dir", "/etc/kubernetes", "where kubeadm keeps what it made")
	if err := flags.Parse(args[1:]); errors.Is(err, flag.ErrHelp) {
		return err
	} else if err != nil {
		return usageError{err}
	}

	if flags.NArg() > 0 {
		return usageError{fmt.Errorf("%q is not expected", flags.Arg(0))}
	}

	switch args[0] {
	case "endpoint":
		servers, err := parseAddresses(*to)
		if err != nil {
			return usageError{err}
		}
		return (&noderuntime.Endpoint{Servers: servers, Log: log}).Run(ctx, *listen)
	case "float":
		at, err := netip.ParseAddrPort(*endpoint)
		if err != nil || !at.Addr().Is4() {
			return usageError{fmt.Errorf("--endpoint %q is no IPv4 address with a port", *endpoint)}
		}
		return (&noderuntime.Float{Endpoint: at, Log: log}).Run(ctx)
	case "network":
		allPods, err := netip.ParsePrefix(*pods)
		allServices, err2 := netip.ParsePrefix(*services)
		if errors.Join(err, err2) != nil || *node == "" {
			return usageError{errors.New("network needs --node, --pods and --services")}
		}

		n := noderuntime.Network{Node: *node, Pods: allPods.Masked(), Services: allServices.Masked(), Log: log}
		return n.Run(ctx)
	case "certificates":
		return noderuntime.RenewCertificates(ctx, *dir, time.Now(), log)
	case "features":
		if *remove {
			return noderuntime.RemoveFeatures(ctx)
		}
		if *node == "" {
			return usageError{errors.New("features needs --node")}
		}
		return noderuntime.Features{Node: *node, Root: *root, Log: log}.Run(ctx)
	case "probe":
		return noderuntime.RunProbe(ctx, *listen)
	}

	return usageError{fmt.Errorf("command %q is not known", args[0])}
}

func parseAddresses(list string) (all []netip.AddrPort, err error) {
	for _, text := range strings.Split(list, ",") {
		a, err := netip.ParseAddrPort(text)
		if err != nil {
			return nil, fmt.Errorf("--to: %w", err)
		}
		all = append(all, a)
	}
	return all, nil
}
