package main

import (
	"time"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/daemon/addons/chain"
)

func newChainCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "chain",
		Short: "The parts of the sample of a service function chain, each in a pod of its own",
		Args:  cobra.NoArgs,
	}
	c.AddCommand(newGenerateCommand(), newFilterCommand(), newSinkCommand())
	return c
}

// addPageFlags adds the flags that all parts of the chain have.
func addPageFlags(c *cobra.Command, listen *string, interval *time.Duration) {
	c.Flags().StringVar(listen, "listen", ":8080", "where it answers at /, /metrics and /ready: ADDRESS:PORT")
	c.Flags().DurationVar(interval, "interval", 5*time.Second, "time between two lines in the log")
}

func newGenerateCommand() *cobra.Command {
	var g chain.Generator
	c := &cobra.Command{
		Use:   "generate --to ADDRESS:PORT",
		Short: "Send UDP packets at a given rate",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			g.Log = newLog(c)
			return g.Run(c.Context())
		},
	}
	c.Flags().StringVar(&g.To, "to", "", "where to: ADDRESS:PORT")
	c.Flags().IntVar(&g.Rate, "rate", 500, "packets per second")
	c.Flags().IntVar(&g.Size, "size", 64, "bytes of each packet, without headers")
	addPageFlags(c, &g.Listen, &g.Interval)
	_ = c.MarkFlagRequired("to") // it is there
	return c
}

func newSinkCommand() *cobra.Command {
	var s chain.Sink
	c := &cobra.Command{
		Use:   "sink --at ADDRESS:PORT",
		Short: "Count UDP packets",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s.Log = newLog(c)
			return s.Run(c.Context())
		},
	}
	c.Flags().StringVar(&s.At, "at", "", "where they come to: ADDRESS:PORT")
	addPageFlags(c, &s.Listen, &s.Interval)
	_ = c.MarkFlagRequired("at") // it is there
	return c
}

func newFilterCommand() *cobra.Command {
	var f chain.Filter
	var in, out string
	c := &cobra.Command{
		Use:   "filter --in INTERFACE --out INTERFACE",
		Short: "Forward between two interfaces of this pod by the rules of a ConfigMap",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			client, _, err := connect()
			if err != nil {
				return err
			}
			f.Client, f.Log = client, newLog(c)
			if f.Table, err = chain.NewTable(in, out); err != nil {
				return err
			}
			f.Open = func() error { return chain.OpenForwarding(in, out) }

			events, stop := newEvents(c, client, "service-chain", "")
			defer stop()
			f.Events = events
			return f.Run(c.Context())
		},
	}
	c.Flags().StringVar(&in, "in", "", "the interface on the generator's network")
	c.Flags().StringVar(&out, "out", "", "the interface on the sink's network")
	c.Flags().StringVar(&f.Namespace, "namespace", "", "the namespace of the ConfigMap")
	c.Flags().StringVar(&f.ConfigMap, "configmap", "chain", "the ConfigMap; its key rules has the rules")
	addPageFlags(c, &f.Listen, &f.Interval)
	for _, name := range []string{"in", "out", "namespace"} {
		_ = c.MarkFlagRequired(name) // it is there
	}
	return c
}
