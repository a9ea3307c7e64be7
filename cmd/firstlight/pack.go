package main

import (
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/bundle"
	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/image/pack"
)

func newPackCommand() *cobra.Command {
	var o pack.Options
	output := commandline.Text
	cmd := &cobra.Command{
		Use:   "pack SOURCE ARCHIVE",
		Short: "Make one archive of a chart or manifests and all images that they name",
		Long: `Make one archive of a chart or manifests and all images that they name.

SOURCE is a Helm chart (its folder or .tgz), the folder of a kustomization, or a folder or file of manifests. Images
come from the files of --from and else from their registries, with the log-ins of docker; each is named by its digest
afterwards. Bring the archive to an appliance with: firstlight artifact push ARCHIVE container/NAME`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Source = args[0]
			b, err := packInto(cmd, o, args[1])
			if err != nil {
				return fmt.Errorf("pack %s: %w", args[0], err)
			}
			if output == commandline.JSON {
				return commandline.WriteJSON(cmd.OutOrStdout(), b)
			}
			return printBundle(cmd.OutOrStdout(), b, args[1])
		},
	}

	f := cmd.Flags()
	f.StringVar(&o.Name, "name", "", "name of the bundle, and of the release (default the chart's)")
	f.StringVar(&o.Version, "version", "", "its version (default the chart's)")
	f.StringVar(&o.Namespace, "namespace", "", "where objects go that name no namespace (default the name)")
	f.StringArrayVarP(&o.ValueFiles, "values", "f", nil, "file with values of the chart; may be repeated")
	f.StringArrayVar(&o.Values, "set", nil, "one value of the chart, KEY=VALUE; may be repeated")
	f.StringArrayVar(&o.APIVersions, "api-versions", nil, "an API that the cluster has, GROUP/VERSION; may be repeated")
	f.StringArrayVar(&o.Archives, "from", nil, "images: docker save's archive, an OCI archive or layout; may be repeated")
	f.StringArrayVar(&o.Images, "image", nil, "an image that only an argument or a variable names; may be repeated")
	f.StringArrayVar(&o.Absent, "absent", nil, "an image that another archive brings; may be repeated")
	output.Bind(cmd)
	return cmd
}

// packInto writes the archive; a file of that name is replaced when all is there.
func packInto(cmd *cobra.Command, o pack.Options, archive string) (bundle.Bundle, error) {
	var b bundle.Bundle
	var failed error
	r, w := io.Pipe()
	go func() {
		b, failed = pack.Pack(cmd.Context(), o, w)
		_ = w.CloseWithError(failed)
	}()

	err := atomicfile.Copy(archive, r, 0o644)
	_ = r.CloseWithError(err)
	if failed != nil {
		return b, failed
	}
	return b, err
}

func printBundle(w io.Writer, b bundle.Bundle, archive string) error {
	info, err := os.Stat(archive)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, i := range b.Images {
		digest := i.Digest
		if i.Absent {
			digest = "in another archive"
		}
		fmt.Fprintf(t, "%s\t%s\n", i.Asked, digest)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s: %s, %.1f MiB in %s\n", b.Title(), commandline.Amount(len(b.Images), "image"), float64(info.Size())/(1<<20), archive)
	return err
}
