package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/api"
	"firstlight.dev/firstlight/daemon/appliance/ca"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/daemon/uploads/grant"
)

// authorityDir has the appliance's authority.
const authorityDir = "/var/lib/firstlight/ca"

func newUploaderCommand() *cobra.Command {
	var socket, kubeconfig, server string
	var validity time.Duration
	cmd := &cobra.Command{
		Use:   "uploader OWNER",
		Short: "Let an owner upload, and print what a workstation needs for that",
		Long: `Make the owner's namespace if it is not there, give it the right to upload, and print shell commands with the
appliance's address, its authority and a token. On a workstation:

  eval "$(ssh root@APPLIANCE firstlightd uploader alpha)"
  firstlight artifact push app.tar container/app-1.2 --owner alpha --cluster beta`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if validity < grant.MinValidity {
				return commandline.NewUsageError(fmt.Errorf("--for %s: a token is good for %s at least", validity, grant.MinValidity))
			}
			authority, err := ca.ReadTrusted(authorityDir)
			if err != nil {
				return err
			}

			if server == "" {
				d, err := api.Client{Socket: socket}.Status(cmd.Context())
				if err != nil {
					return err
				}
				if server, err = uploadsURL(d); err != nil {
					return err
				}
			}

			token, err := newUploadToken(cmd.Context(), kubeconfig, args[0], validity)
			if err != nil {
				return err
			}
			return writeUploader(cmd.OutOrStdout(), server, string(authority), token)
		},
	}
	cmd.Flags().DurationVar(&validity, "for", 24*time.Hour, "how long the token is good for")
	cmd.Flags().StringVar(&server, "server", "", "address that is printed (default that of the owner's network)")
	cmd.Flags().StringVar(&socket, "socket", status.SocketPath, "where the daemon answers")
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", defaultKubeconfig(), "of the appliance's API")
	return cmd
}

func newUploadToken(ctx context.Context, kubeconfig, owner string, validity time.Duration) (string, error) {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return "", fmt.Errorf("reach the API: %w", err)
	}
	config.UserAgent = "firstlightd-uploader" // the audit log has it, unlike what the daemon does
	scheme, err := metal3.Scheme()
	if err != nil {
		return "", err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return "", fmt.Errorf("reach the API: %w", err)
	}
	return grant.Token(ctx, c, owner, validity)
}

// uploadsURL is where a workstation reaches the API: the owner's network is the last one, and BMCs' networks do not
// reach it.
func uploadsURL(d status.Document) (string, error) {
	for _, a := range slices.Backward(d.Addresses) {
		if a.Role == "bmc" {
			continue
		}
		for _, text := range a.Addresses {
			if prefix, err := netip.ParsePrefix(text); err == nil {
				return fmt.Sprintf("https://%s", netip.AddrPortFrom(prefix.Addr(), artifact.Port)), nil
			}
		}
	}
	return "", fmt.Errorf("the appliance has no address yet; name one with --server https://ADDRESS:%d", artifact.Port)
}

// writeUploader writes commands of the shell, which are all that a workstation needs.
func writeUploader(w io.Writer, server, authority, token string) error {
	_, err := fmt.Fprintf(w, `cat >firstlight-ca.crt <<'EOF'
%s
EOF
export FIRSTLIGHT_SERVER=%s FIRSTLIGHT_CA="$PWD/firstlight-ca.crt" FIRSTLIGHT_TOKEN=%s
`, strings.TrimSpace(authority), server, token)
	return err
}
