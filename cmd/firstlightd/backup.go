package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/carrier"
	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/daemon"
	"firstlight.dev/firstlight/daemon/appliance/away"
)

func newBackupCommand() *cobra.Command {
	var recipients []string
	cmd := &cobra.Command{
		Use:   "backup FILE|-",
		Short: "Make an away copy: what cannot be made again, sealed to a recovery key",
		Long: `Make an away copy of what cannot be made again: the records of hosts and clusters, kubeconfigs, the authority, keys and
passwords, leases, site.yaml. The appliance runs on meanwhile, and works with the daemon dead. - is standard output:

  ssh root@APPLIANCE firstlightd backup - > rack.age

It is sealed to the recovery keys whose public halves (age1…) are given by --recipient or, without that, in awayCopy of
site.yaml. Without either a recovery key is made and printed, once: write it down, away from the appliance. Later copies
are sealed to the same. What was uploaded is not in it. firstlightd restore takes it over on another appliance.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := openBackup(recipients)
			if err != nil {
				return err
			}
			return b.run(cmd, args[0])
		},
	}
	cmd.Flags().StringArrayVar(&recipients, "recipient", nil, "public half of a recovery key that opens it; may be repeated")
	return cmd
}

// backup is one away copy that is about to be made by hand.
type backup struct {
	copier     *daemon.Copier
	recipients []age.Recipient
	minted     *age.X25519Identity // the recovery key, if none was named
}

// openBackup finds out to whom it is sealed.
func openBackup(recipients []string) (*backup, error) {
	b := &backup{copier: daemon.NewCopier()}
	if len(recipients) == 0 {
		named, err := b.copier.Recipients()
		if err != nil {
			return nil, err
		}
		recipients = named
	}

	if len(recipients) == 0 {
		key, err := age.GenerateX25519Identity()
		if err != nil {
			return nil, err
		}
		b.minted, recipients = key, []string{key.Recipient().String()}
	}

	var err error
	b.recipients, err = away.ParseRecipients(recipients)
	if err != nil {
		return nil, commandline.NewUsageError(err)
	}

	return b, nil
}

func (b *backup) run(cmd *cobra.Command, name string) error {
	if name == "-" {
		if isTerminal(cmd.OutOrStdout()) {
			return errors.New("an away copy is not for a screen; redirect it (firstlightd backup - > FILE), or name a file")
		}
		if err := b.copier.Write(cmd.OutOrStdout(), b.recipients); err != nil {
			return err
		}
		return b.finish(cmd.ErrOrStderr(), "standard output")
	}

	if err := checkAbsent(name); err != nil {
		return err
	}

	size, err := writeAtomically(name, func(w io.Writer) error { return b.copier.Write(w, b.recipients) })
	if err != nil {
		return err
	}

	fmt.Fprintf(cmd.OutOrStdout(), "%s, %d KiB\n", name, (size+1023)/1024)
	return b.finish(cmd.OutOrStdout(), name)
}

// finish remembers that the copy was made. A key that was minted is printed before its public half is kept: cut between,
// the next copy is sealed to another key, and this one was seen.
func (b *backup) finish(w io.Writer, to string) error {
	if b.minted != nil {
		fmt.Fprintf(w, `
The recovery key, printed this once and kept nowhere. Without it the copy is worth nothing; with it, it is worth the
rack. Write it down, away from the appliance and from the copy:

%s

`, b.minted)
		if err := b.copier.SaveRecipient(b.minted.Recipient().String()); err != nil {
			return err
		}
	}
	return b.copier.Made(to)
}

func newRestoreCommand() *cobra.Command {
	var keyFile string
	var check bool
	cmd := &cobra.Command{
		Use:   "restore FILE|- --key KEYFILE",
		Short: "Take a rack over from an away copy, onto a blank appliance",
		Long: `Take a rack over from an away copy, onto a blank appliance, of a stick or of firstlight install, whichever made the
copy. All of it is checked and written next to this appliance's state; when the appliance has started again, it is in that
state's place, and the servers that it has records of are in service as they were. Nothing is written to their BMCs or
disks. --check reads the copy to its end and writes nothing.

  scp rack.age recovery.key root@APPLIANCE:/run/
  ssh root@APPLIANCE 'firstlightd restore /run/rack.age --key /run/recovery.key && systemctl reboot'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			keys, err := readKeys(cmd.InOrStdin(), keyFile)
			if err != nil {
				return err
			}

			in := cmd.InOrStdin()
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return fmt.Errorf("read away copy: %w", err)
				}
				defer f.Close()
				in = f
			} else if keyFile == "-" {
				return commandline.NewUsageError(errors.New("copy and key cannot both come from standard input"))
			}

			if check {
				h, err := away.Check(in, keys)
				if err == nil {
					fmt.Fprintln(cmd.OutOrStdout(), "whole: "+describeCopy(h))
				}
				return err
			}

			if isGuest() {
				return errors.New("this appliance is a guest: its cluster has objects that would contradict the away copy, " +
					"and its Ironic runs on; restore onto a stick, or an appliance that firstlight install has made")
			}

			h, err := daemon.NewCopier().Unpack(in, keys)
			if err != nil {
				return err
			}

			fmt.Fprintf(cmd.OutOrStdout(), "unpacked: %s\nTo take them over, %s\n",
				describeCopy(h), carrier.Read("").Restart)
			return nil
		},
	}
	cmd.Flags().StringVar(&keyFile, "key", "", "file with the recovery key; - is standard input")
	cmd.Flags().BoolVar(&check, "check", false, "only read the copy to its end")
	_ = cmd.MarkFlagRequired("key") // it is a flag of this command
	return cmd
}

// readKeys reads recovery keys, one a line; # begins a comment.
func readKeys(in io.Reader, name string) ([]age.Identity, error) {
	var r = in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("read recovery key: %w", err)
		}
		defer f.Close()
		r = f
	}

	keys, err := age.ParseIdentities(io.LimitReader(r, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("read recovery key %s: it is a line AGE-SECRET-KEY-1…, as it was printed: %w", name, err)
	}

	return keys, nil
}

func describeCopy(h away.Header) string {
	return fmt.Sprintf("away copy of site %s, made %s by Firstlight %s: %s, %s", h.Site,
		h.Made.UTC().Format("2006-01-02 15:04 UTC"), h.Version, commandline.Amount(h.Hosts, "host"), commandline.Amount(h.Clusters, "cluster"))
}
