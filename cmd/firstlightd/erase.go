package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/api"
)

func newEraseCommand() *cobra.Command {
	var socket, word string
	var disks []string
	var cancel bool
	var output commandline.Format
	cmd := &cobra.Command{
		Use:   "erase NODE [--disk DISK]... [--confirm WORD | --cancel]",
		Short: "Erase disks of a server that was given up",
		Long: `Erase disks of a server that was given up, for good: its root device, or those that are named.

Without --confirm nothing is erased: what would be erased is printed, with what is on it, and a word. With that word the
server is started into the ramdisk, which erases these disks and no other, each by the drive's own secure erase if it
has one, else by overwriting it. The word is refused if the server was inspected again since, if another BareMetalHost
has its name, or if other disks would be erased. firstlightd why NODE says how the erasure stands, and afterwards when
and how each disk was erased.

With --cancel that is taken back, as long as nothing was written: the server needs minutes to start into the ramdisk.

A server that is in service, or that a cluster uses, is refused. --disk takes a serial number, a WWN or a device name,
once for each disk.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeNames(&socket, listNodes),
		RunE: func(cmd *cobra.Command, args []string) error {
			client := api.Client{Socket: socket}
			ask := func() (status.Erase, error) { return client.Erase(cmd.Context(), args[0], disks, word) }
			if cancel {
				ask = func() (status.Erase, error) { return client.CancelErase(cmd.Context(), args[0]) }
			}
			e, err := ask()
			if err != nil {
				return err
			}
			if output == commandline.JSON {
				return commandline.WriteJSON(cmd.OutOrStdout(), e)
			}
			writeErase(cmd, e)
			return nil
		},
	}
	output.Bind(cmd)
	cmd.Flags().StringArrayVar(&disks, "disk", nil, "a disk to erase, instead of the root device")
	bindConfirm(cmd, &word)
	cmd.Flags().BoolVar(&cancel, "cancel", false, "take the erasure back, if nothing was written yet")
	cmd.MarkFlagsMutuallyExclusive("cancel", "confirm")
	cmd.MarkFlagsMutuallyExclusive("cancel", "disk")
	cmd.Flags().StringVar(&socket, "socket", status.SocketPath, "where the daemon answers")
	return cmd
}

// bindConfirm binds the flag by which a person confirms what was printed without it. Shells complete nothing there.
func bindConfirm(cmd *cobra.Command, word *string) {
	cmd.Flags().StringVar(word, "confirm", "", "the word that is printed without this: do just what was printed with it")
	_ = cmd.RegisterFlagCompletionFunc("confirm", cobra.NoFileCompletions) // it is a flag of this command
}

// writeErase prints what is erased, or would be, and what is not.
func writeErase(cmd *cobra.Command, e status.Erase) {
	out, verb := cmd.OutOrStdout(), "would be erased"
	if e.Cancelled {
		fmt.Fprintf(out, "The erasure of %s is cancelled, and nothing was written. It is made available again; "+
			"firstlightd why %[1]s says how that stands.\n", e.Node)
		return
	}
	if e.Begun {
		verb = "is erased now"
	}
	fmt.Fprintf(out, "%s is BareMetalHost %s, inspected on %s.\n", e.Node, e.Host,
		e.Inspected.UTC().Format("2006-01-02 15:04:05 UTC"))
	for _, d := range e.Disks {
		fmt.Fprintf(out, "%-16s %s\n", verb, d.Text())
	}
	for _, d := range e.Kept {
		fmt.Fprintf(out, "%-16s %s\n", "is left alone", d.Text())
	}
	if e.Begun {
		fmt.Fprintf(out, "firstlightd why %s says how that stands.\n", e.Node)
		return
	}

	again := "firstlightd erase " + e.Node
	for _, d := range e.Disks {
		again += " --disk " + shellWord(cmp.Or(d.WWN, d.Serial, d.Name))
	}
	fmt.Fprintf(out, "Nothing was erased. What is on the disk is lost for good with: %s --confirm %s\n", again, e.Word)
}

// shellWord is a word of a command line as a shell takes it.
func shellWord(s string) string {
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._:-") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
