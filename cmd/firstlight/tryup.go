package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/excerpt"
	"firstlight.dev/firstlight/image/lab/try"
)

// tryUpFlags is what the command line of `firstlight try` says.
type tryUpFlags struct {
	image   string
	servers int
	ipv6    bool
	daemon  string
	timeout time.Duration
}

// start makes the rack, or finds it, brings it to life and shows how it comes up.
func (u tryUpFlags) start(cmd *cobra.Command, f *tryFlags) error {
	rack, err := f.rack()
	if err != nil {
		return err
	}

	order, err := u.order(cmd, rack)
	if err != nil {
		return err
	}
	if err := order.Check(); err != nil {
		return commandline.NewUsageError(err)
	}
	if err := rack.CheckMachine(); err != nil {
		return err
	}
	if err := u.buildImage(cmd, order.Image); err != nil {
		return err
	}
	if err := rack.Create(order); err != nil {
		return err
	}

	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start rack: %w", err)
	}

	if err := unpackRoot(cmd, rack); err != nil {
		return err
	}

	fresh, err := rack.Start(cmd.Context(), program, "try", "supervise", "--dir", rack.Dir)
	if err != nil {
		return err
	}

	out, say := cmd.OutOrStdout(), "The rack is on"
	if !fresh {
		say = "The rack was on already"
	}
	fmt.Fprintf(out, "%s: an appliance in namespaces and %s, in %s.\n", say,
		commandline.Amount(order.Servers, "simulated server"), shorten(rack.Dir))
	if ends, err := try.EndsWithLogin(); err != nil {
		return err
	} else if ends != "" {
		fmt.Fprintln(out, ends)
	}

	ctx, cancel := cmd.Context(), context.CancelFunc(func() {})
	if u.timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, u.timeout)
	}
	defer cancel()
	if err := watchTry(ctx, out, rack); err != nil {
		return err
	}

	return showTryHelp(out, rack, f.dir)
}

// unpackRoot unpacks the image's root for an ordinary user's new rack.
func unpackRoot(cmd *cobra.Command, rack try.Rack) error {
	isUnpacked, err := rack.IsUnpacked()
	if err != nil || isUnpacked {
		return err
	}

	again, err := asRootCommand()
	if err != nil {
		return err
	}

	out, began := cmd.OutOrStdout(), time.Now()
	fmt.Fprint(out, "Unpacking the image's root, once for this rack: ")
	if err := rack.Unpack(cmd.Context(), again); err != nil {
		fmt.Fprintln(out, "failed")
		return err
	}
	fmt.Fprintln(out, time.Since(began).Round(time.Second))

	return nil
}

// order is that of the rack that is there, with what the command line says otherwise.
func (u tryUpFlags) order(cmd *cobra.Command, rack try.Rack) (try.Order, error) {
	image, err := filepath.Abs(u.image)
	if err != nil {
		return try.Order{}, fmt.Errorf("find image: %w", err)
	}

	daemon := u.daemon
	if daemon != "" {
		if daemon, err = filepath.Abs(daemon); err != nil {
			return try.Order{}, fmt.Errorf("find daemon: %w", err)
		}
	}

	have, err := rack.Order()
	if errors.Is(err, try.NoRack) {
		return try.Order{Image: image, Servers: u.servers, IPv6: u.ipv6, Daemon: daemon}, nil
	}
	if err != nil {
		return try.Order{}, err
	}

	if cmd.Flags().Changed("image") {
		have.Image = image
	}
	if cmd.Flags().Changed("servers") {
		have.Servers = u.servers
	}
	if cmd.Flags().Changed("ipv6") {
		have.IPv6 = u.ipv6
	}
	if cmd.Flags().Changed("daemon") {
		have.Daemon = daemon
	}

	return have, nil
}

// buildImage builds the image where nobody named one and there is none.
func (u tryUpFlags) buildImage(cmd *cobra.Command, image string) error {
	_, err := os.Stat(image)
	if !errors.Is(err, os.ErrNotExist) || cmd.Flags().Changed("image") {
		return err
	}

	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("build image: %w", err)
	}

	fmt.Fprintf(cmd.OutOrStdout(), "There is no %s yet; it is built now.\n", u.image)
	build := exec.CommandContext(cmd.Context(), program, "build", "--out", image)
	build.Stdout, build.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
	if err := build.Run(); err != nil {
		return fmt.Errorf("build image: %w", err)
	}

	return nil
}

// lineLength is how much is shown of what the appliance waits for, in bytes; `try why` and `try status` say all.
const lineLength = 100

// watchTry shows every change of the rack until it has done all that it can.
func watchTry(ctx context.Context, out io.Writer, rack try.Rack) error {
	began, said := time.Now(), ""
	for {
		if _, err := rack.Processes(); err != nil {
			return fmt.Errorf("%w; %s says why it ended", err, shorten(rack.Log()))
		}

		line := "systemd starts"
		document, err := rack.Document(ctx)
		if err == nil {
			line = excerpt.Start(try.Describe(document), lineLength)
		}
		if line != said {
			fmt.Fprintf(out, "%6s  %s\n", time.Since(began).Round(time.Second), line)
			said = line
		}
		if err == nil && try.IsDone(document) {
			return nil
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("stopped looking: %w; the rack continues: firstlight try", context.Cause(ctx))
		case <-time.After(time.Second):
		}
	}
}

// showTryHelp says what to look at.
func showTryHelp(w io.Writer, rack try.Rack, dir string) error {
	now, err := rack.Processes()
	if err != nil {
		return err
	}

	command := "firstlight try"
	if program, err := os.Executable(); err == nil {
		command = shorten(program) + " try"
	}
	if os.Getenv("SUDO_USER") != "" { // sudo(8)
		command = "sudo " + command
	}
	if dir != defaultTryDir {
		command += " --dir " + dir
	}

	_, err = fmt.Fprintf(w, `The servers are provisioned, as far as simulated ones get. They have no system to log in to.
Look inside:
  %[1]s kubectl get bmh -A
  %[1]s status
  %[1]s why node1
  %[1]s shell
  https://127.0.0.1:%[2]d/   (the page; %[1]s shell firstlightd login prints a code)
End it: %[1]s down --remove
`, command, now.Page)
	return err
}
