package main

import (
	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/signature"
	"firstlight.dev/firstlight/daemon/uploads/client"
)

// pushSignature sends the signature of an artifact as a binary image next to it.
func pushSignature(cmd *cobra.Command, c client.Client, of artifact.Key, path string, replace bool) error {
	if _, err := signature.ReadFile(path); err != nil {
		return err
	}

	of.Collection, of.Name = artifact.Binary, of.Name+signature.Suffix
	if err := of.Check(); err != nil {
		return commandline.NewUsageError(err)
	}
	_, err := c.Push(cmd.Context(), of, path, artifact.Metadata{Type: "signature"}, replace, func(string, int64, int64) {})
	return err
}
