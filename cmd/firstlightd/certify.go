package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/appliance/host"
	"firstlight.dev/firstlight/daemon/appliance/kube"
)

// maxRequest bounds a certificate request, in bytes: one has less than a thousand.
const maxRequest = 64 << 10

// errNoCertificates is of an appliance whose API has an authority of someone else's. It would sign for the name and the
// groups that a workstation chooses itself.
var errNoCertificates = errors.New("this appliance signs no certificates for the API: it is a guest, and the cluster's " +
	"owner lets people in; use the kubeconfig by which you reach the cluster")

func newCertifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "certify",
		Short: "Sign a workstation's request for access to the API; firstlight login runs this",
		Long: `Read a certificate request (PEM) from standard input, whose common name is USER@HOST of a workstation. Print, as JSON,
a client certificate for it with all rights, good for twelve hours, where the API is, and the appliance's SSH host keys,
the next one too. The key stays where the request was made. The rights are a ClusterRoleBinding with the label ` + label.Workstation + `: delete it, and they are gone.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if isGuest() {
				return errNoCertificates
			}
			request, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxRequest))
			if err != nil {
				return fmt.Errorf("read certificate request: %w", err)
			}

			config, err := clientcmd.BuildConfigFromFlags("", kube.AdminConfig)
			if errors.Is(err, fs.ErrNotExist) {
				return kube.ErrNoAPI
			}
			if err != nil {
				return fmt.Errorf("reach the API: %w", err)
			}

			config.UserAgent = "firstlightd-certify" // the audit log has it, unlike what the daemon does
			api, err := kubernetes.NewForConfig(config)
			if err != nil {
				return fmt.Errorf("reach the API: %w", err)
			}

			access, err := kube.New(kube.Defaults()).Certify(cmd.Context(), api, request)
			if err != nil {
				return err
			}

			server, err := url.Parse(config.Host)
			if err != nil {
				return fmt.Errorf("read %s: %w", kube.AdminConfig, err)
			}

			access.Server = server.Host
			if access.HostKeys, err = host.HostKeys(""); err != nil {
				return err
			}
			return commandline.WriteJSON(cmd.OutOrStdout(), access)
		},
	}
}
