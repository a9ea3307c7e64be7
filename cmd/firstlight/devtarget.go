package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/daemon/appliance/workstation"
	"firstlight.dev/firstlight/daemon/engine/remote"
	"firstlight.dev/firstlight/image/install"
	"firstlight.dev/firstlight/image/lab/try"
	"firstlight.dev/firstlight/image/lab/virtualrack"
)

// target is an appliance that runs, whichever way it does.
type target struct {
	name  string                                                                   // for people
	run   func(ctx context.Context, streams remote.Streams, words ...string) error // runs firstlightd there
	close func()
}

// targetFlags say which appliance is meant.
type targetFlags struct {
	host, dir           string
	lab, try, installed bool
}

func (f *targetFlags) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.host, "to", "", "an appliance that was logged in to (firstlight login)")
	cmd.Flags().BoolVar(&f.lab, "lab", false, "the rack of firstlight lab")
	cmd.Flags().BoolVar(&f.try, "try", false, "the rack of firstlight try (root)")
	cmd.Flags().BoolVar(&f.installed, "installed", false, "the appliance that is installed on this machine (root)")
	cmd.Flags().StringVar(&f.dir, "dir", "build/lab", "where the rack of firstlight lab is")
	cmd.MarkFlagsMutuallyExclusive("to", "lab", "try", "installed")
	if err := cmd.RegisterFlagCompletionFunc("to", completeHosts); err != nil {
		panic(err) // there is no such flag, or it was given values before
	}
}

// choice is a way to an appliance that may be there.
type choice struct {
	flag   string
	named  bool
	exists func(ctx context.Context) bool
	open   func(ctx context.Context) (target, error)
}

// choices are all ways to an appliance, in the order in which people read of them.
func (f *targetFlags) choices() []choice {
	lab := (&labFlags{dir: f.dir}).client
	return []choice{
		{"--to HOST", f.host != "", func(context.Context) bool {
			store, err := workstation.UserStore()
			if err == nil {
				_, err = store.Find("")
			}
			return err == nil
		}, f.openHost},
		{"--lab", f.lab, func(ctx context.Context) bool {
			c, err := lab()
			if err == nil {
				_, err = c.Status(ctx)
			}
			return err == nil
		}, f.openLab},
		{"--try", f.try, func(context.Context) bool { return try.RunningDir() != "" }, openTry},
		{"--installed", f.installed, func(context.Context) bool {
			_, err := install.Installation{}.Receipt()
			return err == nil
		}, openInstalled},
	}
}

// find opens the way that was named, or the only one that there is.
func (f *targetFlags) find(ctx context.Context) (target, error) {
	var there []choice
	for _, c := range f.choices() {
		if c.named {
			return c.open(ctx)
		}
	}
	for _, c := range f.choices() {
		if c.exists(ctx) {
			there = append(there, c)
		}
	}

	switch len(there) {
	case 0:
		return target{}, errors.New("there is no appliance to push to: none was logged in to (firstlight login), no rack of " +
			"firstlight lab or try runs, and none is installed here")
	case 1:
		return there[0].open(ctx)
	}
	var flags []string
	for _, c := range there {
		flags = append(flags, c.flag)
	}
	return target{}, commandline.NewUsageError(fmt.Errorf("there are several appliances; say which: %s",
		strings.Join(flags, ", ")))
}

func (f *targetFlags) openHost(ctx context.Context) (target, error) {
	_, c, err := connect(ctx, f.host)
	if err != nil {
		return target{}, err
	}
	return target{name: c.Host, run: c.Run, close: c.Close}, nil
}

func (f *targetFlags) openLab(context.Context) (target, error) {
	c, err := (&labFlags{dir: f.dir}).client()
	if err != nil {
		return target{}, err
	}
	ssh, err := c.SSH(virtualrack.Appliance)
	if err != nil {
		return target{}, err
	}
	return newCommandTarget("the appliance of the lab", func(ctx context.Context, words ...string) (*exec.Cmd, error) {
		line := append(ssh, quoteArgs(words)...)
		return exec.CommandContext(ctx, line[0], line[1:]...), nil
	}), nil
}

func openTry(context.Context) (target, error) {
	dir := try.RunningDir()
	if dir == "" {
		return target{}, errors.New("no rack of firstlight try runs; firstlight try starts one")
	}
	return newCommandTarget("the appliance of the try", try.Rack{Dir: dir}.Command), nil
}

func openInstalled(context.Context) (target, error) {
	if os.Geteuid() != 0 {
		return target{}, errors.New("needs root to enter the appliance: sudo firstlight dev push")
	}
	return newCommandTarget("the appliance of this machine", newInstallation(io.Discard).Command), nil
}

// newCommandTarget is an appliance that is entered by a command of this machine.
func newCommandTarget(
	name string, command func(ctx context.Context, words ...string) (*exec.Cmd, error),
) target {
	return target{
		name:  name,
		close: func() {},
		run: func(ctx context.Context, streams remote.Streams, words ...string) error {
			cmd, err := command(ctx, append([]string{"firstlightd"}, words...)...)
			if err != nil {
				return err
			}
			cmd.Stdin, cmd.Stdout, cmd.Stderr = streams.In, streams.Out, streams.Err
			err = cmd.Run()
			var exit *exec.ExitError
			if errors.As(err, &exit) && exit.Exited() {
				return &commandline.ExitError{Program: "firstlightd on " + name, Code: exit.ExitCode()}
			}
			return err
		},
	}
}
