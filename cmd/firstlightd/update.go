package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon"
	"firstlight.dev/firstlight/daemon/appliance/audit"
	"firstlight.dev/firstlight/daemon/appliance/stickupdate"
)

func newUpdateCommand() *cobra.Command {
	var output commandline.Format
	var o stickupdate.Options
	var reboot, show bool
	cmd := &cobra.Command{
		Use:   "update IMAGE | --status",
		Short: "Write another version into the stick's other slot, which the next start tries",
		Long: `Write another version into the stick's other slot, which the next start tries. IMAGE is firstlight.img or
firstlight.img.zst, or a disk that holds it. All of it is checked before anything is written, and read back afterwards.

The stick starts the running version until then, and again afterwards unless the appliance comes to Ready with the new
one within 30 minutes. The power may be cut at any moment. DATA, SITE and the servers of the rack are not touched.

If site.yaml has updates.keys, an image is taken only if it is signed by one of them (firstlight sign). The signature is
IMAGE.minisig or the file of --signature. --unsigned takes another image all the same, and the status says so.

  scp firstlight.img.zst firstlight.img.zst.minisig root@APPLIANCE:/var/lib/firstlight/
  ssh root@APPLIANCE firstlightd update /var/lib/firstlight/firstlight.img.zst --reboot`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			u := stickupdate.New(slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)), daemon.BootID(), daemon.UpdateKeys)
			switch {
			case show == (len(args) == 1):
				return commandline.NewUsageError(errors.New("name an image, or give --status"))
			case show:
				return showUpdate(cmd.OutOrStdout(), u, output)
			}

			r, err := runUpdate(cmd, u, args[0], o)
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
	cmd.Flags().BoolVar(&o.Downgrade, "downgrade", false, "take an older version as well")
	cmd.Flags().StringVar(&o.Signature, "signature", "", "file with the image's signature (default IMAGE.minisig, then the one on the disk)")
	cmd.Flags().BoolVar(&o.Unsigned, "unsigned", false, "take an image that no key of the site has signed")
	cmd.Flags().BoolVar(&reboot, "reboot", false, "start this machine again when it is written")
	cmd.Flags().BoolVar(&show, "status", false, "show the slots and what became of the last update")
	return cmd
}

// runUpdate writes an image into the other slot, if the site's keys have signed it. Who was asked to take one without that
// is in the audit log.
func runUpdate(cmd *cobra.Command, u *stickupdate.Updater, path string, o stickupdate.Options) (stickupdate.Attempt, error) {
	received := time.Now()
	r, err := u.Update(cmd.Context(), path, o, showProgress(cmd.OutOrStdout()))
	if r.Unsigned == "" {
		return r, err
	}

	code, reason := http.StatusOK, "unsigned: "+r.Unsigned
	if err != nil {
		code, reason = http.StatusInternalServerError, reason+"; "+err.Error()
	}
	audit.NewLog(audit.UpdateFile, u.Log).Add(audit.Request{
		Received: received,
		User:     defaultUser(os.Getenv("SSH_CONNECTION")),
		Verb:     "update",
		Object:   auditv1.ObjectReference{Resource: "appliance", Name: r.To},
		Code:     code,
		Reason:   reason,
	})
	return r, err
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
