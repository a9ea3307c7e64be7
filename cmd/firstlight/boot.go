package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/image/lab"
	"firstlight.dev/firstlight/image/lab/accelerator"
)

// bootFlags is what the command line of `firstlight boot` says.
type bootFlags struct {
	uefi, secureBoot bool
	disk, nic, dir   string
	accel            string
	memory, cpus     int
	size             int64
	printOnly        bool
}

func newBootCommand() *cobra.Command {
	var f bootFlags
	cmd := &cobra.Command{
		Use:   "boot [IMAGE]",
		Short: "Boot the image in QEMU, its console on this terminal",
		Long: `Boot the image (default build/firstlight.img) in QEMU as a server would boot the stick.
The machine writes to an overlay, so the image stays as built. Its serial console is
this terminal; Ctrl-A x ends the machine, Ctrl-A h lists the other keys. With --dir the
overlay is kept, and the next boot from the same directory finds the same stick.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			image := "build/firstlight.img"
			if len(args) == 1 {
				image = args[0]
			}
			return bootImage(cmd, image, f)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.uefi, "uefi", false, "UEFI firmware instead of BIOS")
	flags.BoolVar(&f.secureBoot, "secure-boot", false, "UEFI firmware that enforces Secure Boot")
	flags.StringVar(
		&f.disk, "disk", string(lab.USB), "what the image is plugged in as: usb, ehci, nvme, virtio or ahci",
	)
	flags.StringVar(&f.nic, "nic", "user", "network card: none, unplugged (no cable) or user (QEMU's NAT)")
	flags.IntVar(&f.memory, "memory", 4096, "memory in MiB")
	flags.IntVar(&f.cpus, "cpus", 2, "number of CPUs")
	bindAccel(flags, &f.accel)
	flags.Int64Var(&f.size, "size", 8<<10, "size of the stick in MiB; 0: exactly as large as the image")
	flags.StringVar(
		&f.dir, "dir", "", "keep the stick's overlay here (default: a temporary directory, removed afterwards)",
	)
	flags.BoolVar(&f.printOnly, "print", false, "print QEMU's command line instead of running it (needs --dir)")
	cmd.MarkFlagsMutuallyExclusive("uefi", "secure-boot")
	return cmd
}

// bindAccel adds the flag that decides between KVM and emulation.
func bindAccel(flags *pflag.FlagSet, asked *string) {
	flags.StringVar(
		asked, "accel", "", "kvm or tcg (emulated); default: "+accelerator.Variable+", else KVM if it runs a trial",
	)
}

// bootConfig turns the flags into a machine.
func bootConfig(image, dir string, f bootFlags) (lab.Config, error) {
	c := lab.Config{Name: "firstlight", Dir: dir, MiB: f.memory, CPUs: f.cpus}
	switch {
	case f.secureBoot:
		c.Firmware = lab.SecureBoot
	case f.uefi:
		c.Firmware = lab.UEFI
	}

	bus := lab.Bus(f.disk)
	switch bus {
	case lab.USB, lab.EHCI, lab.NVMe, lab.Virtio, lab.AHCI:
	default:
		return c, commandline.NewUsageError(fmt.Errorf(
			"--disk %q is not known; use usb, ehci, nvme, virtio or ahci", f.disk,
		))
	}

	info, err := os.Stat(image)
	if err != nil {
		return c, fmt.Errorf("boot image: %w; `firstlight build` makes it", err)
	}

	c.Disks = []lab.Disk{{Image: image, Bus: bus, Serial: "stick", Bytes: max(info.Size(), f.size<<20)}}
	switch f.nic {
	case "none":
	case "unplugged":
		c.NICs = []lab.NIC{{}}
	case "user":
		c.NICs = []lab.NIC{{User: true}}
	default:
		return c, commandline.NewUsageError(fmt.Errorf("--nic %q is not known; use none, unplugged or user", f.nic))
	}

	return c, nil
}

func bootImage(cmd *cobra.Command, image string, f bootFlags) error {
	dir := f.dir
	if dir == "" {
		if f.printOnly {
			return commandline.NewUsageError(errors.New("--print needs --dir: the command line names files there"))
		}

		tmp, err := os.MkdirTemp("", "firstlight-boot-")
		if err != nil {
			return fmt.Errorf("boot image: %w", err)
		}
		defer os.RemoveAll(tmp)

		dir = tmp
	}

	c, err := bootConfig(image, dir, f)
	if err != nil {
		return err
	}

	choice, err := accelerator.Choose(cmd.Context(), f.accel)
	if err != nil {
		return commandline.NewUsageError(err)
	}

	c.Accel = choice.Kind
	m, err := lab.New(c)
	if err != nil {
		return err
	}
	defer m.Close()

	if f.printOnly {
		if _, _, err := m.Prepare(); err != nil {
			return err
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), m.CommandLine())
		return err
	}

	name, args, err := m.Prepare()
	if err != nil {
		return err
	}

	fmt.Fprintln(cmd.ErrOrStderr(), choice)
	q := exec.CommandContext(cmd.Context(), name, onTerminal(args)...)
	q.Stdin, q.Stdout, q.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := q.Run(); err != nil {
		return fmt.Errorf("boot image %s: %w: %s", image, err, m.CommandLine())
	}

	return nil
}

// onTerminal gives the serial line QEMU's keys (Ctrl-A x ends it), which tests, reading
// a pipe, must not have.
func onTerminal(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		out[i] = a
		if strings.HasPrefix(a, "stdio,id=console") {
			out[i] = "stdio,id=console,signal=off,mux=on"
		}
	}
	return out
}
