package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon"
	"firstlight.dev/firstlight/daemon/appliance/stickupdate"
)

func newUpdateCommand() *cobra.Command {
	var output commandline.Format
	var downgrade, reboot, show bool
	cmd := &cobra.Command{
		Use:   "update IMAGE | --status",
		Short: "Write another version into the stick's other slot, which the next start tries",
		Long: `Write another version into the stick's other slot, which the next start tries. IMAGE is firstlight.img or
firstlight.img.zst, or a disk that holds it. All of it is checked before anything is written, and read back afterwards.

The stick starts the running version until then, and again afterwards unless the appliance comes to Ready with the new
one within 30 minutes. The power may be cut at any moment. DATA, SITE and the servers of the rack are not touched.

  scp firstlight.img.zst root@APPLIANCE:/var/lib/firstlight/
  ssh root@APPLIANCE firstlightd update /var/lib/firstlight/firstlight.img.zst --reboot`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			u := stickupdate.New(slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)), daemon.BootID())
			switch {
			case show == (len(args) == 1):
				return commandline.NewUsageError(errors.New("name an image, or give --status"))
			case show:
				return showUpdate(cmd.OutOrStdout(), u, output)
			}

			r, err := u.Update(cmd.Context(), args[0], downgrade, showProgress(cmd.OutOrStdout()))
			if err != nil {
				return err
			}

			fmt.Fprintln(cmd.OutOrStdout(), r.Explain(stickupdate.Waiting))
			if reboot {
				return exec.CommandContext(cmd.Context(), "systemctl", "reboot").Run()
			}
			return nil
		},
	}
	output.Bind(cmd)
	cmd.Flags().BoolVar(&downgrade, "downgrade", false, "take an older version as well")
	cmd.Flags().BoolVar(&reboot, "reboot", false, "start this machine again when it is written")
	cmd.Flags().BoolVar(&show, "status", false, "show the slots and what became of the last update")
	return cmd
}

// showProgress prints a line for each tenth of a phase.
func showProgress(w io.Writer) stickupdate.Progress {
	last := ""
	return func(phase string, done, total int64) {
		if line := fmt.Sprintf("%s %d %% of %d MiB", phase, done*10/total*10, total>>20); line != last {
			last = line
			fmt.Fprintln(w, line)
		}
	}
}

func showUpdate(w io.Writer, u *stickupdate.Updater, output commandline.Format) error {
	s, err := u.Status()
	if err != nil {
		return err
	}
	if output == commandline.JSON {
		return commandline.WriteJSON(w, s)
	}

	for _, which := range []stick.Slot{stick.SlotA, stick.SlotB} {
		var is []string
		if which == s.Running {
			is = append(is, "running")
		}
		if which == s.Running && s.Trial {
			is = append(is, "on trial")
		}
		if which == s.Starts {
			is = append(is, "next start")
		}
		version := s.Slots[which]
		if version == "" {
			version = "empty"
		}
		fmt.Fprintln(w, strings.TrimSpace(fmt.Sprintf("%s  %s  %s", which, version, strings.Join(is, ", "))))
	}
	if s.Text != "" {
		fmt.Fprintln(w, s.Text)
	}
	return nil
}
