package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/guest"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/api"
	"firstlight.dev/firstlight/daemon/clusters/bpa/operator"
	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/clusters/contract/kubeconfig"
	"firstlight.dev/firstlight/daemon/clusters/kpa/builtin"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider"
	"firstlight.dev/firstlight/daemon/engine/apply"
)

func newBPACommand() *cobra.Command {
	c := operator.Config{Elect: true}
	var kubeconfig string
	cmd := &cobra.Command{
		Use:   "bpa",
		Short: "Run the operator of clusters (what its pod runs)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch c.Proposal {
			case operator.ProposalOff, operator.ProposalShow, operator.ProposalApply:
			default:
				return commandline.NewUsageError(fmt.Errorf(
					"proposal %q is unknown; use %s, %s or %s", c.Proposal, operator.ProposalOff,
					operator.ProposalShow, operator.ProposalApply,
				))
			}

			if text := os.Getenv(guest.Variable); text != "" {
				p, err := guest.Parse(text)
				if err != nil {
					return err
				}
				c.Place = func(pod *corev1.PodSpec) { apply.PlacePod(pod, p) }
			}

			api, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return fmt.Errorf("find the API: %w", err)
			}

			api.QPS, api.Burst = 100, 200
			log := slog.New(slog.NewTextHandler(os.Stderr, nil))
			// One process, one cache of hosts: an appliance without Cluster API pays nothing for its provider.
			c.Beside = func(m manager.Manager) error { return metal3provider.Add(m, log) }
			runForever(
				cmd.Context(), log, 10*time.Second,
				func(ctx context.Context) error { return operator.Run(ctx, api, c, log) },
			)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "how to reach the API; in a pod nothing is needed")
	f.StringVar(&c.Namespace, "namespace", "bpa", "the operator's own namespace, with the Jobs, the clusters' keys and the lock")
	f.StringVar(&c.Agent, "agent", "", "socket of an SSH agent with the appliance's log-in to nodes")
	f.StringVar(&c.Dir, "dir", contract.Dir, "directory of clusters")
	f.StringVar(&c.LeaseFile, "lease-file", "", "leases in the format of ISC's dhcpd")
	f.StringVar(&c.Installer, "installer-image", "", "installer of Provisionings that name none")
	f.StringSliceVar(&c.Allowed, "allowed-image", nil, "installers that Provisionings may name; give it once for each")
	f.StringSliceVar(&c.AddOns, "add-ons", builtin.Names(), "plugins that Components install, from the stick")
	f.StringVar(&c.Site, "site", "firstlight", "name of proposed clusters")
	f.StringVar(
		&c.Proposal, "proposal", operator.ProposalOff,
		"what to do with clusters for hosts that nobody asked for: off, show or apply",
	)
	f.BoolVar(&c.Elect, "elect", true, "wait until no other operator runs")
	f.StringVar(&c.Metrics, "metrics", "0", "address to serve metrics at; 0 for none")
	f.StringVar(&c.Health, "health", "0", "address to serve /readyz at; 0 for none")
	return cmd
}

// runForever runs what may fail while the API is away, until ctx ends. A process that ended instead would be
// started again by the kubelet later and later, up to five minutes after the API is back.
func runForever(ctx context.Context, log *slog.Logger, pause time.Duration, run func(context.Context) error) {
	for {
		err := run(ctx)
		if ctx.Err() != nil {
			return
		}

		log.Error("the operator starts again", "error", err, "in", pause)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func newKubeconfigCommand() *cobra.Command {
	var dir, socket string
	cmd := &cobra.Command{
		Use:   "kubeconfig CLUSTER",
		Short: "Print the kubeconfig of a workload cluster",
		Long: `Print the kubeconfig of a workload cluster, of a Provisioning or of Cluster API. If clusters of two namespaces have one
name, it is NAMESPACE/NAME.

With --dir the daemon is not asked: the file is printed that the installer of a Provisioning left there.`,
		Args: cobra.ExactArgs(1),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if dir == "" {
				return completeNames(&socket, listClusterRefs)(cmd, args, word)
			}
			return kubeconfig.ListInstalled(dir), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			read := api.Client{Socket: socket}.Kubeconfig
			if dir != "" {
				read = func(_ context.Context, name string) ([]byte, error) { return kubeconfig.ReadInstalled(dir, name) }
			}
			text, err := read(cmd.Context(), args[0])
			if errors.Is(err, kubeconfig.ErrNoName) {
				return commandline.NewUsageError(err)
			}
			if err != nil {
				return err
			}

			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "directory of installed clusters, such as "+contract.Dir)
	cmd.Flags().StringVar(&socket, "socket", status.SocketPath, "where the daemon answers")
	return cmd
}
