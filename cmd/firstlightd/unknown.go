package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/api"
	"firstlight.dev/firstlight/daemon/metal/unknown"
)

func newUnknownCommand() *cobra.Command {
	var output unknownFormat
	var socket string
	cmd := &cobra.Command{
		Use:     "unknown [MAC|BMC]",
		Aliases: []string{"discovered"},
		Short:   "Show machines that booted from the network and that neither site.yaml nor a host names",
		Long: `Show machines that booted from the network and that neither site.yaml nor a host names, and with discover.leases the
BMCs that leased an address.

Their ramdisk said what they have; nothing of it is trusted, and nothing is written to them. Next to each are an entry
for nodes of site.yaml and a BareMetalHost for kubectl apply, to have it installed. Those of the last three days are
shown, since the appliance was switched on.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := api.Client{Socket: socket}.Unknown(cmd.Context())
			if err != nil {
				return err
			}

			if len(args) == 1 {
				mac := strings.ReplaceAll(strings.ToLower(args[0]), "-", ":")
				all = slices.DeleteFunc(all, func(u status.UnknownMachine) bool { return u.MAC != mac && u.BMC != args[0] })
				if len(all) == 0 {
					return fmt.Errorf("no unknown machine with the MAC or the BMC %q is known", args[0])
				}
			}

			switch output {
			case unknownFormat(commandline.JSON):
				return commandline.WriteJSON(cmd.OutOrStdout(), all)
			case siteOutput:
				_, err = io.WriteString(cmd.OutOrStdout(), unknown.SiteNodes(all))
				return err
			}

			writeUnknown(cmd.OutOrStdout(), all, time.Now())
			return nil
		},
	}
	output = unknownFormat(commandline.Text)
	cmd.Flags().VarP(&output, "output", "o", "text, json, or site: nodes of site.yaml, ready to be pasted")
	cmd.Flags().StringVar(&socket, "socket", status.SocketPath, "where the daemon answers")
	return cmd
}

// unknownFormat is -o of this command.
type unknownFormat string

// siteOutput is what can be pasted into site.yaml.
const siteOutput unknownFormat = "site"

// String is the word.
func (f *unknownFormat) String() string { return string(*f) }

// Type is what the help calls a value.
func (f *unknownFormat) Type() string { return "FORMAT" }

// Set takes the word behind -o.
func (f *unknownFormat) Set(word string) error {
	switch unknownFormat(word) {
	case unknownFormat(commandline.Text), unknownFormat(commandline.JSON), siteOutput:
		*f = unknownFormat(word)
		return nil
	}
	return errors.New("use text, json or site")
}

func writeUnknown(w io.Writer, all []status.UnknownMachine, now time.Time) {
	if len(all) == 0 {
		fmt.Fprintln(w, "No unknown machine was inspected.")
		return
	}

	for i, u := range all {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if u.MAC != "" {
			fmt.Fprintf(w, "%s  inspected %s ago\n", unknown.Text(u), now.Sub(u.Time).Round(time.Second))
		} else {
			fmt.Fprint(w, unknown.Text(u))
		}
		fmt.Fprintf(w, "\nTo install it, add to nodes in site.yaml, with the BMC's user and password, and run firstlightd reload:\n\n%s",
			unknown.SiteEntry(u))
		if document := unknown.HostDocument(u); document != "" {
			fmt.Fprintf(w, "\nor apply with kubectl:\n\n%s", document)
		}
	}
}
