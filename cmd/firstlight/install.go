package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/signature"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/image/install"
	"firstlight.dev/firstlight/image/media"
)

// installFlags is what the command line of `firstlight install` says.
type installFlags struct {
	image, site string
	trust       []string
	dryRun      bool
	downgrade   bool
}

func newInstallCommand() *cobra.Command {
	var f installFlags
	cmd := &cobra.Command{
		Use:   "install --site FILE | --image FILE",
		Short: "Install the appliance on this machine, as a unit of its systemd (root)",
		Long: `Install the appliance of an image (.img or .img.zst) on this Linux machine. The stick's root runs here with its
own systemd, in namespaces, as the unit firstlight.service. It gets the interfaces that the site names, whole, and no
other; DATA is a folder. Nothing is downloaded.

What would harm this machine is refused before anything is changed, all reasons at once. --dry-run says what would be
done. An installation that was interrupted is continued by the same command; firstlight uninstall takes it away.

Where an appliance is installed already, another image is an update: --site may be left out, DATA and site.yaml stay. The
appliance restarts with the new version. The one before takes its place again unless it comes to Ready within 30 minutes,
and also if the machine or the appliance restarts until then. An older version is refused without --downgrade.

--trust KEY.pub takes only an image that is signed by that key (firstlight sign): the signature is IMAGE.minisig. The
keys in the site's updates.keys are trusted as well.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	cmd.Flags().StringVar(&f.image, "image", "build/firstlight.img", "the stick's image; it is only read")
	cmd.Flags().StringVar(&f.site, "site", "", "the site.yaml of the appliance; it names its interfaces")
	cmd.Flags().StringArrayVar(&f.trust, "trust", nil, "file with the public half of a key that signs images; may be repeated")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "say what would be done, and change nothing")
	cmd.Flags().BoolVar(&f.downgrade, "downgrade", false, "take an older version as well")
	return cmd
}

func (f installFlags) run(ctx context.Context, out io.Writer) error {
	here := newInstallation(out)
	document, s, err := f.readSite(here)
	if err != nil {
		return err
	}
	keys, err := readTrust(f.trust)
	if err != nil {
		return err
	}
	named, err := siteKeys(here, s)
	if err != nil {
		return err
	}
	keys = append(keys, named...)
	image, err := f.openImage(ctx, keys)
	if err != nil {
		return err
	}
	defer image.Close()

	root, err := install.ReadRoot(image)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}

	unlock, err := here.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	machine, err := here.ReadMachine(program)
	if err != nil {
		return err
	}
	order := install.Order{Root: root, Site: document, Program: program, Downgrade: f.downgrade}
	decision, err := here.Decide(ctx, machine, s, order)
	if err != nil {
		return err
	}
	if len(decision.Refusals) > 0 {
		return fmt.Errorf("refused; nothing is changed:\n  %s", strings.Join(decision.Refusals, "\n  "))
	}
	if f.dryRun {
		return showInstallation(out, decision)
	}
	if err := here.Install(ctx, decision); err != nil {
		return err
	}

	if decision.Update {
		unlock() // whoever watches keeps nobody from anything
		return awaitUpdate(ctx, out, here, order)
	}

	_, err = fmt.Fprintf(out, `The appliance is installed and starts; it has %s.
  firstlight installed status
  firstlight installed kubectl get nodes
  journalctl -u %s
Take it away: firstlight uninstall
`, listNICs(decision.NICs), install.UnitName)
	return err
}

// readSite reads the site that was named, or the one that is installed, which is nil as a document.
func (f installFlags) readSite(here install.Installation) ([]byte, *site.Site, error) {
	if f.site != "" {
		return readSiteFile(f.site)
	}
	if _, err := here.Receipt(); errors.Is(err, install.ErrNone) {
		return nil, nil, commandline.NewUsageError(errors.New("no appliance is installed yet; name its site.yaml with --site"))
	}
	_, s, err := readSiteFile(install.SiteFile)
	return nil, s, err
}

// siteKeys are the keys that must have signed the image: those of the site that was named, and of the one that is
// installed, to which its owner may have added some since.
func siteKeys(here install.Installation, s *site.Site) (signature.Keys, error) {
	keys := signature.NewKeys(s.Updates.Keys)
	if _, err := here.Receipt(); errors.Is(err, install.ErrNone) {
		return keys, nil
	}
	path := filepath.Join(here.Prefix, install.SiteFile)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return keys, nil // it was not copied yet
	}
	_, installed, err := readSiteFile(path)
	if err != nil {
		return nil, err
	}
	return append(keys, signature.NewKeys(installed.Updates.Keys)...), nil
}

// awaitUpdate returns when it is decided whether the new version stays.
func awaitUpdate(ctx context.Context, out io.Writer, here install.Installation, o install.Order) error {
	_, err := fmt.Fprintf(out, "Version %s starts. If it is not ready within %s, the one before takes its place again.\n"+
		"Interrupting this only stops watching.\n", o.Root.Version, install.TrialPatience)
	if err != nil {
		return err
	}
	if err := here.AwaitUpdate(ctx, o); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "The appliance is ready with version %s, which stays.\n", o.Root.Version)
	return err
}

// openImage opens the image, which one of the keys must have signed if there are any.
func (f installFlags) openImage(ctx context.Context, keys signature.Keys) (*media.Image, error) {
	if len(keys) == 0 {
		return media.Open(ctx, f.image)
	}
	image, _, err := openSigned(ctx, keys, f.image, "nothing is changed")
	return image, err
}

// showInstallation says what would be done.
func showInstallation(out io.Writer, d install.Decision) error {
	if len(d.Steps) == 0 {
		_, err := fmt.Fprintln(out, "It is installed and runs; nothing would be done.")
		return err
	}

	_, err := fmt.Fprintf(out, `These would be done, in this order:
  %s
The appliance would have %s. Nothing is changed.
`, strings.Join(d.Steps, "\n  "), listNICs(d.NICs))
	return err
}

func listNICs(nics []install.NIC) string {
	names := make([]string, len(nics))
	for i, n := range nics {
		names[i] = n.Name
	}
	return strings.Join(names, ", ")
}

// newInstallation is that of this machine, whose steps are printed.
func newInstallation(out io.Writer) install.Installation {
	return install.Installation{
		Systemctl: func(args ...string) error {
			if text, err := exec.Command("systemctl", args...).CombinedOutput(); err != nil {
				return fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(text)))
			}
			return nil
		},
		Report: func(text string) { fmt.Fprintln(out, text) },
	}
}

// readSiteFile reads a site document, which must have no mistakes.
func readSiteFile(path string) ([]byte, *site.Site, error) {
	document, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("read site: %w", err)
	}
	s, problems := site.Load(filepath.Base(path), document)
	if len(problems) > 0 {
		return nil, nil, fmt.Errorf("check site %s: %s, nothing is changed:\n%w",
			path, commandline.Amount(len(problems), "problem"), problems.Err())
	}
	return document, s, nil
}

func newUninstallCommand() *cobra.Command {
	var keepData, dryRun bool
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Take the appliance off this machine, which is then as it was before (root)",
		Long: `Stop the appliance that firstlight install installed, give its interfaces back, and remove its unit, its
program and its folder, with DATA: what it knows of its servers, its keys, what was uploaded. The servers stay as they
are. --keep-data leaves DATA and the site, and another firstlight install continues with them. Interrupted, it is run
again.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			here := newInstallation(out)
			does, err := here.Removals(keepData)
			if errors.Is(err, install.ErrNone) {
				_, err = fmt.Fprintln(out, "No appliance is installed on this machine.")
				return err
			}
			if err != nil {
				return err
			}
			if dryRun {
				_, err = fmt.Fprintf(out, "These would be done, in this order:\n  %s\nNothing is changed.\n",
					strings.Join(does, "\n  "))
				return err
			}
			if err := here.Uninstall(keepData); err != nil {
				return err
			}

			_, err = fmt.Fprintln(out, "The appliance is uninstalled.")
			return err
		},
	}
	cmd.Flags().BoolVar(&keepData, "keep-data", false, "leave DATA and the site")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be done, and change nothing")
	return cmd
}
