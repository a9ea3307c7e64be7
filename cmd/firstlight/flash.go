package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/image/flash"
	"firstlight.dev/firstlight/image/media"
)

func newFlashCommand() *cobra.Command {
	var f flasher
	var list bool
	cmd := &cobra.Command{
		Use:   "flash IMAGE DEVICE",
		Short: "Write an image to a stick and read it back",
		Long: `Write an image (.img or .img.zst) to a stick.

Refused is what is not removable, is mounted or in use, holds the running system, or is
too small. --force-device NAME, which must repeat the device's name, overrides only the
first of these. Every stick gets GUIDs of its own. The partition table is written last: a
stick that was pulled too early does not boot.

On a stick that an appliance has run from, DATA stays: what it knows of its servers, its keys,
what was uploaded. SITE stays as well, unless the image has a site.yaml. --forget gives all of
it up.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if list {
				return cobra.NoArgs(cmd, args)
			}
			return cobra.ExactArgs(2)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			f.out, f.progressOut, f.sysfs = cmd.OutOrStdout(), cmd.OutOrStdout(), flash.HostSysFS()
			if f.output == commandline.JSON {
				f.progressOut = cmd.ErrOrStderr()
			}

			if list {
				return f.list()
			}

			return f.run(cmd, args[0], args[1])
		},
	}
	cmd.Flags().BoolVar(&list, "list", false, "list the disks of this machine and whether they could be written")
	cmd.Flags().StringVar(
		&f.forced, "force-device", "", "the device's name again, to write it although it is not removable",
	)
	cmd.Flags().BoolVar(&f.forget, "forget", false, "give up DATA and SITE of a stick that an appliance has run from")
	f.output.Bind(cmd)
	return cmd
}

type flasher struct {
	out         io.Writer // what was asked for
	progressOut io.Writer // how it goes on
	sysfs       flash.SysFS
	forced      string
	forget      bool
	output      commandline.Format
}

// flashResult is what became of a stick, for programs.
type flashResult struct {
	Device  flash.Device `json:"device"`
	Image   string       `json:"image"`
	Written int64        `json:"written"` // bytes, read back as well
	GUID    string       `json:"guid"`    // of the disk
	Kept    []string     `json:"kept"`    // partitions that stay as they were
}

func (f *flasher) run(cmd *cobra.Command, imagePath, devicePath string) error {
	ctx := cmd.Context()
	device, err := f.sysfs.Find(devicePath)
	if err != nil {
		return err
	}

	fmt.Fprintln(f.progressOut, describeDevice(device))
	image, err := media.Open(ctx, imagePath)
	if err != nil {
		return err
	}
	defer image.Close()

	if err := flash.CheckAllowed(
		device, flash.RefusalReasons(device, flash.Image{Bytes: image.Size}), f.forced,
	); err != nil {
		return fmt.Errorf("refused: %w", err)
	}

	medium, drop, err := flash.Open(device.Path)
	if err != nil {
		return err
	}
	defer medium.Close()

	plan, err := f.plan(ctx, image, medium, device)
	if err != nil {
		return err
	}
	for _, name := range plan.Kept {
		fmt.Fprintf(f.progressOut, "%s stays as it is\n", name)
	}

	fmt.Fprintf(
		f.progressOut, "writing %s of %s, disk GUID %s\n", formatSize(plan.Bytes()), formatSize(image.Size),
		plan.Table.GUID,
	)
	if err := plan.Write(ctx, medium, drop, newMeter(f.progressOut)); err != nil {
		return fmt.Errorf("%w; %s does not boot now", err, device.Path)
	}

	flash.RereadTable(medium)
	if err := medium.Close(); err != nil {
		return fmt.Errorf("close %s: %w", device.Path, err)
	}
	if f.output == commandline.JSON {
		return commandline.WriteJSON(
			f.out,
			flashResult{
				Device:  device,
				Image:   imagePath,
				Written: plan.Bytes(),
				GUID:    fmt.Sprint(plan.Table.GUID),
				Kept:    append([]string{}, plan.Kept...),
			},
		)
	}

	_, err = fmt.Fprintf(f.out, "%s is written and read back; it may be pulled\n", device.Path)
	return err
}

// plan keeps what an appliance has on the medium, unless that is given up.
func (f *flasher) plan(ctx context.Context, image *media.Image, medium *os.File, d flash.Device) (*flash.Plan, error) {
	if !f.forget {
		old, err := flash.ReadStick(medium, d.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%w; to write it all the same, and lose what is on it, add --forget", err)
		}
		if old != nil {
			return flash.NewKeepPlan(ctx, image, d.Bytes, old)
		}
	}
	return flash.NewPlan(ctx, image, d.Bytes, rand.Reader)
}

// newMeter draws a bar on a terminal and writes a line for every tenth elsewhere.
func newMeter(w io.Writer) flash.Progress {
	file, ok := w.(*os.File)
	terminal := ok && term.IsTerminal(int(file.Fd()))
	shown := map[string]int64{}
	return func(phase string, done, total int64) {
		const width = 40
		steps := int64(10)
		if terminal {
			steps = 1000
		}

		part := steps * done / max(total, 1)
		if last, ok := shown[phase]; ok && part == last {
			return
		}

		shown[phase] = part
		if !terminal {
			fmt.Fprintf(w, "%s %3d %% of %s\n", phase, 100*done/max(total, 1), formatSize(total))
			return
		}

		full := int(width * done / max(total, 1))
		fmt.Fprintf(
			w, "\r\x1b[K  %-6s [%-*s] %3d %% of %s", phase, width, strings.Repeat("#", full), 100*done/max(total, 1),
			formatSize(total),
		)
		if done == total {
			fmt.Fprintln(w)
		}
	}
}

func formatSize(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

func describeDevice(d flash.Device) string {
	s := fmt.Sprintf("%s: %s", d.Path, formatSize(d.Bytes))
	if d.Model != "" {
		s += ", " + d.Model
	}

	if d.Serial != "" {
		s += ", serial " + d.Serial
	}

	return s
}

func (f *flasher) list() error {
	devices, err := f.sysfs.List()
	if err != nil {
		return err
	}
	if f.output == commandline.JSON {
		return commandline.WriteJSON(f.out, devices)
	}

	for _, d := range devices {
		state := "may be written"
		if reasons := flash.RefusalReasons(d, flash.Image{}); len(reasons) > 0 {
			state = reasons[0].Text
		}
		if _, err := fmt.Fprintf(f.out, "%s; %s\n", describeDevice(d), state); err != nil {
			return err
		}
	}

	return nil
}
