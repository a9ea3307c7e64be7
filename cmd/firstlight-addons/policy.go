package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"firstlight.dev/firstlight/daemon/clusters/addons/policy"
)

func newPolicyCommand() *cobra.Command {
	var node, health string
	c := &cobra.Command{
		Use:   "policy",
		Short: "Enforce NetworkPolicies for the pods of this node, as a pod with the host's network",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			config, err := rest.InClusterConfig()
			if err != nil {
				return fmt.Errorf("find the cluster: %w", err)
			}
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return fmt.Errorf("find the cluster: %w", err)
			}
			table, err := policy.NewTable()
			if err != nil {
				return err
			}

			events := record.NewBroadcaster(record.WithContext(c.Context()))
			events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
			defer events.Shutdown()
			a := policy.Agent{
				Node:   node,
				Health: health,
				Client: client,
				Table:  table,
				Events: events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: policy.Name, Host: node}),
				Log:    slog.New(slog.NewTextHandler(os.Stderr, nil)),
			}
			return a.Run(c.Context())
		},
	}
	c.Flags().StringVar(&node, "node", "", "name of this node")
	c.Flags().StringVar(&health, "health", "127.0.0.1:9881", "where it answers 200 if policies are enforced")
	_ = c.MarkFlagRequired("node")
	return c
}
