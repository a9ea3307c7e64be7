package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/signature"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/image/flash"
	"firstlight.dev/firstlight/image/media"
)

func newFlashCommand() *cobra.Command {
	var f flasher
	var list, yes bool
	var trust []string
	cmd := &cobra.Command{
		Use:   "flash IMAGE DEVICE",
		Short: "Write an image to a stick and read it back",
		Long: `Write an image (.img or .img.zst) to a stick.

Refused is what is neither removable nor on USB, is mounted or in use, holds the running system,
or is too small. --force-device NAME, which must repeat the device's name, overrides only the
first of these. Every stick gets GUIDs of its own. The partition table is written last: a
stick that was pulled too early does not boot.

On a terminal it asks before it writes; --yes answers.

--site FILE puts a site.yaml onto the stick, in place of the image's. It is checked first.

On a stick that an appliance has run from, DATA stays: what it knows of its servers, its keys,
what was uploaded. SITE stays as well, unless the image has a site.yaml or --site names one.
--forget gives all of it up.

--trust KEY.pub takes only an image that is signed by that key (firstlight sign): the signature is IMAGE.minisig. With
--site, the keys in its updates.keys are trusted as well. Nothing is written if there is no such signature. A signature
next to the image is put onto the stick, so that other appliances can be updated from it.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if list {
				return cobra.NoArgs(cmd, args)
			}
			return cobra.ExactArgs(2)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			f.in, f.out, f.progressOut, f.sysfs = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.OutOrStdout(), flash.HostSysFS()
			if f.output == commandline.JSON {
				f.progressOut = cmd.ErrOrStderr()
			}

			f.ask = !yes && isTerminal(f.in)
			var err error
			if f.trust, err = readTrust(trust); err != nil {
				return err
			}

			if list {
				return f.list()
			}

			return f.run(cmd.Context(), args[0], args[1])
		},
	}
	cmd.Flags().BoolVar(&list, "list", false, "list the disks of this machine and whether they could be written")
	cmd.Flags().StringVar(
		&f.forced, "force-device", "", "the device's name again, to write it although it is neither removable nor on USB",
	)
	cmd.Flags().BoolVar(&f.forget, "forget", false, "give up DATA and SITE of a stick that an appliance has run from")
	cmd.Flags().BoolVar(&yes, "yes", false, "write without a question")
	cmd.Flags().StringVar(&f.site, "site", "", "a site.yaml for the stick")
	cmd.Flags().StringArrayVar(&trust, "trust", nil, "file with the public half of a key that signs images; may be repeated")
	f.output.Bind(cmd)
	return cmd
}

// isTerminal reports whether somebody can answer.
func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

type flasher struct {
	in          io.Reader // answers
	out         io.Writer // what was asked for
	progressOut io.Writer // how it goes on
	sysfs       flash.SysFS
	forced      string
	forget      bool
	ask         bool   // before anything is written
	site        string // file with the site document; "": the image's
	trust       signature.Keys
	output      commandline.Format
}

// flashResult is what became of a stick, for programs.
type flashResult struct {
	Device  flash.Device `json:"device"`
	Image   string       `json:"image"`
	Written int64        `json:"written"` // bytes, read back as well
	GUID    string       `json:"guid"`    // of the disk
	Kept    []string     `json:"kept"`    // partitions that stay as they were

	SignedBy string `json:"signedBy,omitempty"` // ID of the key; "" if no key was given
}

func (f *flasher) run(ctx context.Context, imagePath, devicePath string) error {
	document, err := f.readSite()
	if err != nil {
		return err
	}

	device, err := f.sysfs.Find(devicePath)
	if err != nil {
		return err
	}

	fmt.Fprintln(f.progressOut, describeDevice(device))
	image, signedBy, err := f.openImage(ctx, imagePath)
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

	plan, err := f.plan(ctx, image, document, medium, device)
	if err != nil {
		return err
	}
	if err := f.putSignature(plan, imagePath); err != nil {
		return err
	}
	if err := f.confirm(device, plan); err != nil {
		return err
	}

	for _, name := range plan.Kept {
		fmt.Fprintf(f.progressOut, "%s stays as it is\n", name)
	}

	fmt.Fprintf(
		f.progressOut, "writing %s of %s, disk GUID %s\n", formatSize(plan.Bytes()), formatSize(image.Size),
		plan.Table.GUID,
	)
	if err := plan.Write(ctx, medium, drop, newMeter(f.progressOut).show); err != nil {
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

				SignedBy: signedBy,
			},
		)
	}

	_, err = fmt.Fprintf(f.out, "%s is written and read back; it may be pulled\n", device.Path)
	return err
}

// readSite is the site document for the stick, which is checked here; nil without --site.
func (f *flasher) readSite() ([]byte, error) {
	if f.site == "" {
		return nil, nil
	}

	document, err := os.ReadFile(f.site)
	if err != nil {
		return nil, fmt.Errorf("read site: %w", err)
	}
	s, problems := site.Load(f.site, document)
	if len(problems) > 0 {
		return nil, fmt.Errorf("check site %s: %s, nothing is written:\n%w",
			f.site, commandline.Amount(len(problems), "problem"), problems.Err())
	}

	f.trust = append(f.trust, signature.NewKeys(s.Updates.Keys)...)
	return document, nil
}

// openImage opens the image. With trusted keys it must be signed by one of them, and by is that key; nothing is written
// otherwise.
func (f *flasher) openImage(ctx context.Context, path string) (image *media.Image, by string, err error) {
	if len(f.trust) == 0 {
		image, err = media.Open(ctx, path)
		return image, "", err
	}

	image, key, err := openSigned(ctx, f.trust, path, "nothing is written")
	if err != nil {
		return nil, "", err
	}
	fmt.Fprintf(f.progressOut, "%s is signed by the key %s\n", path, key.ID())
	return image, key.ID(), nil
}

// putSignature has the signature next to the image put onto the stick, where an appliance checks it. Without keys no one
// asked for one: what is none is said, and left out.
func (f *flasher) putSignature(plan *flash.Plan, imagePath string) error {
	s, err := signature.ReadFile(imagePath + signature.Suffix)
	if errors.Is(err, signature.ErrUnsigned) {
		return nil
	}
	if err != nil {
		fmt.Fprintf(f.progressOut, "the stick gets no signature: %v\n", err)
		return nil
	}
	return plan.PutSignature(s)
}

// errNotConfirmed is the answer no.
var errNotConfirmed = errors.New("nothing is written")

// confirm asks whether the device is the one that was meant.
func (f *flasher) confirm(d flash.Device, plan *flash.Plan) error {
	if !f.ask {
		return nil
	}

	lost := "All that is on it will be lost."
	if len(plan.Kept) > 0 {
		lost = strings.Join(plan.Kept, " and ") + " stay; all else on it will be lost."
	}

	fmt.Fprintf(f.progressOut, "%s\nWrite to %s? [y/N] ", lost, d.Path)
	answer, err := bufio.NewReader(f.in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read answer: %w", err)
	}

	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errNotConfirmed
}

// plan keeps what an appliance has on the medium, unless that is given up.
func (f *flasher) plan(
	ctx context.Context,
	image *media.Image,
	document []byte,
	medium *os.File,
	d flash.Device,
) (*flash.Plan, error) {
	var content []byte
	if document != nil {
		var err error
		if content, err = flash.MakeSite(ctx, image, document); err != nil {
			return nil, err
		}
	}

	if !f.forget {
		old, err := flash.ReadStick(medium, d.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%w; to write it all the same, and lose what is on it, add --forget", err)
		}
		if old != nil {
			return flash.NewKeepPlan(ctx, image, content, d.Bytes, old)
		}
	}
	return flash.NewPlan(ctx, image, content, d.Bytes, rand.Reader)
}

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
