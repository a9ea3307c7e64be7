package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	names "firstlight.dev/firstlight/assets/guest"
	"firstlight.dev/firstlight/image/guest"
)

func newGuestCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "guest",
		Short: "Bring the appliance to a Kubernetes that is there",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newGuestManifestsCommand(), newGuestImagesCommand())
	return cmd
}

func newGuestManifestsCommand() *cobra.Command {
	var site string
	p := names.Placement{Folder: names.Folder}
	cmd := &cobra.Command{
		Use:   "manifests --site FILE FOLDER",
		Short: "Write the manifests that kubectl apply -k takes",
		Long: `Write a folder for kubectl apply -k: the daemon's Deployment and its rights, and site.yaml, of which kubectl makes a
Secret. The daemon applies all the rest: Ironic, Metal3, the operators of clusters and components, Cluster API, the REST
API. It runs on the one node with the label ` + names.NodeLabel + `, on that node's network.

Edit site.yaml in the folder and apply it again to change the site. remove.sh in the folder removes all of it from the
cluster.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			document, _, err := readSiteFile(site)
			if err != nil {
				return err
			}
			if err := guest.WriteManifests(args[0], document, p); err != nil {
				return err
			}
			return printNextOfGuest(cmd.OutOrStdout(), args[0])
		},
	}
	cmd.Flags().StringVar(&site, "site", "", "the site.yaml of the appliance")
	cmd.Flags().StringVar(&p.Folder, "folder", p.Folder, "folder of the node for all that the appliance keeps")
	cmd.Flags().StringVar(&p.Registry, "registry", "", "HOST[:PORT][/PATH] that has the images (default the node has them)")
	_ = cmd.MarkFlagRequired("site") // it is a flag of this command
	return cmd
}

func printNextOfGuest(out io.Writer, dir string) error {
	_, err := fmt.Fprintf(out, `%[1]s is written; it has the site's passwords. Next:
  kubectl label node NODE %[2]s=
  kubectl apply -k %[1]s
  kubectl -n %[3]s exec deploy/%[4]s -c firstlightd -- firstlightd status
`, dir, names.NodeLabel, names.Namespace, names.Name)
	return err
}

func newGuestImagesCommand() *cobra.Command {
	var image string
	cmd := &cobra.Command{
		Use:   "images ARCHIVE",
		Short: "Write an archive of the container images of an appliance on a Kubernetes that is there (root)",
		Long: `Write an OCI archive of the container images, from the stick's image or its root. Bring it to the node, or to a
registry that the node reaches:

  ctr --namespace k8s.io images import ARCHIVE        # on the node; k3s ctr with k3s
  kind load image-archive ARCHIVE

The root of the image is mounted to be read, out of sight of others, which needs root.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeGuestImages(image, args[0], cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&image, "image", "build/firstlight.img", "the stick's image, not compressed; it is only read")
	return cmd
}

// writeGuestImages writes the archive, which must not exist yet; what was begun is removed if it cannot be completed.
func writeGuestImages(image, archive string, out io.Writer) (err error) {
	file, err := os.OpenFile(archive, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil {
			err = errors.Join(err, os.Remove(archive))
		}
	}()

	var written []string
	err = guest.WithRoot(image, func(root string) error {
		written, err = guest.WriteArchive(file, root)
		return err
	})
	if err != nil {
		return fmt.Errorf("write archive %s: %w", archive, err)
	}
	for _, name := range written {
		fmt.Fprintln(out, name)
	}
	return nil
}
