package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon"
	"firstlight.dev/firstlight/daemon/appliance/api"
	"firstlight.dev/firstlight/daemon/appliance/audit"
	"firstlight.dev/firstlight/daemon/appliance/bootchain"
	"firstlight.dev/firstlight/daemon/appliance/devpush"
	"firstlight.dev/firstlight/daemon/appliance/kube"
)

// pushPatience is how long what was restarted may take to run again.
const pushPatience = 10 * time.Minute

func newPushCommand() *cobra.Command {
	var o devpush.Order
	var undo, force bool
	cmd := &cobra.Command{
		Use:   "push PROGRAM... --sha256 DIGEST --revision COMMIT | --undo",
		Short: "Run another file in the place of a program, until this machine restarts (by firstlight dev push)",
		Long: `Take a program, compressed by zstd, from standard input, put it over the root's, and restart what runs it. It is kept
until this machine restarts; --undo takes away all that was put so. firstlight dev push calls this.

It is refused where the owner has said that only signed versions are taken: updates.keys of site.yaml, or the owner's
keys in firmware that enforces them. Root can run any program all the same; --force does it, and is in the audit log.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			a := newPushAppliance(cmd.ErrOrStderr())
			switch {
			case undo && len(args) == 0:
				return undoPush(cmd, a)
			case undo == (len(args) > 0):
				return commandline.NewUsageError(errors.New("name programs, or give --undo"))
			}

			o.Programs = args
			if err := o.Check(); err != nil {
				return commandline.NewUsageError(err)
			}
			return push(cmd, a, o, force)
		},
	}
	cmd.Flags().StringVar(&o.SHA256, "sha256", "", "digest of the program")
	cmd.Flags().StringVar(&o.Revision, "revision", "unknown", "what it was compiled from, for people")
	cmd.Flags().BoolVar(&undo, "undo", false, "take away all that was pushed")
	cmd.Flags().BoolVar(&force, "force", false, "push although the owner takes signed versions alone")
	return cmd
}

func newPushAppliance(report io.Writer) devpush.Appliance {
	return devpush.Appliance{
		Dir:       devpush.Dir,
		FindLayer: kube.FindLayer,
		Run: func(ctx context.Context, program string, args ...string) (string, error) {
			out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
			return string(out), err
		},
		Answers: func(ctx context.Context, since time.Time) error {
			d, err := api.Client{Socket: status.SocketPath}.Status(ctx)
			if err == nil && d.Started.Before(since) {
				err = errors.New("the one from before answers")
			}
			return err
		},
		Report:   func(text string) { fmt.Fprintln(report, text) },
		Patience: pushPatience,
	}
}

func push(cmd *cobra.Command, a devpush.Appliance, o devpush.Order, force bool) error {
	received, why := time.Now(), readPushPolicy().Refusal()
	if why != "" && !force {
		return fmt.Errorf("%s is refused: %s; root can run any program all the same: --force does it, and is in the audit "+
			"log; nothing is changed", strings.Join(o.Programs, ", "), why)
	}

	if why != "" { // before it is done: whoever hangs up ends this command
		auditPush(received, o, why, http.StatusAccepted, nil)
	}
	p, err := a.Put(cmd.Context(), o, cmd.InOrStdin())
	if why != "" && err != nil {
		auditPush(received, o, why, http.StatusInternalServerError, err)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), p.Describe())
	return err
}

func undoPush(cmd *cobra.Command, a devpush.Appliance) error {
	gone, err := a.Undo(cmd.Context())
	if err != nil {
		return err
	}
	if len(gone) == 0 {
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "Nothing is pushed.")
		return err
	}

	var names []string
	for _, p := range gone {
		names = append(names, p.Programs...)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "This appliance runs its version's %s again.\n", strings.Join(names, ", "))
	return err
}

// readPushPolicy reads what the owner says of programs that nobody signed. An appliance that did not start from a stick
// has no firmware of its own.
func readPushPolicy() (p devpush.Policy) {
	keys, err := daemon.UpdateKeys()
	p.Signed, p.Unknown = len(keys) > 0, err

	boot, err := stick.Load[stick.BootInfo](stick.BootInfoFile)
	if errors.Is(err, fs.ErrNotExist) {
		return p
	}
	var onStick bootchain.Stick
	var firmware bootchain.Firmware
	if err == nil {
		onStick, err = bootchain.OpenStick(boot)
	}
	if err == nil {
		firmware, err = bootchain.ReadFirmware(bootchain.Variables)
	}
	p.Boot, p.Unknown = err == nil && bootchain.IsWhole(firmware, onStick), errors.Join(p.Unknown, err)
	return p
}

// auditPush writes down who has a program run that the owner would have refused. code is of HTTP.
func auditPush(received time.Time, o devpush.Order, why string, code int, err error) {
	reason := fmt.Sprintf("unsigned, %s of %s: %s", o.Revision, o.SHA256, why)
	if err != nil {
		reason += "; " + err.Error()
	}
	audit.NewLog(audit.UpdateFile, slog.New(slog.NewTextHandler(os.Stderr, nil))).Add(audit.Request{
		Received: received,
		User:     defaultUser(os.Getenv("SSH_CONNECTION")),
		Verb:     "push",
		Object:   auditv1.ObjectReference{Resource: "appliance", Name: strings.Join(o.Programs, ",")},
		Code:     code,
		Reason:   reason,
	})
}
