package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/clusters/installer"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// What a Provisioning that says nothing gets: KUD's own defaults.
const (
	defaultPods     = "10.244.64.0/18"
	defaultServices = "10.244.0.0/18"
)

// newInstallerCommand keeps to docs/kud.md: `installer --cluster NAME [--network CIDR]`. What KUD calls plugins are
// Components here.
func newInstallerCommand() *cobra.Command {
	var name, network, dir, key, rotation string
	var remove, rotate bool
	var stall, settle time.Duration
	cmd := &cobra.Command{
		Use:   "installer --cluster NAME [--network CIDR] | --remove LABEL …",
		Short: "Make a cluster of the machines in its inventory (docs/kud.md)",
		RunE: func(cmd *cobra.Command, words []string) error {
			services := os.Getenv(contract.EnvServiceSubnet)
			if services == "" {
				services = defaultServices
			}

			settings, err := settingsOf(name, network, services)
			switch {
			case err != nil:
				return commandline.NewUsageError(err)
			case len(words) > 0 && !remove:
				return commandline.NewUsageError(fmt.Errorf("%q is not expected", words[0]))
			case len(words) == 0 && remove:
				return commandline.NewUsageError(errors.New("name the nodes to remove"))
			}

			settings.Owner = os.Getenv(contract.EnvOwner)
			signer, err := readSigner(key)
			if err != nil {
				return err
			}

			c := installer.Config{
				Settings: settings,
				Dir:      filepath.Join(dir, name),
				Key:      signer,
				Stall:    stall,
				Out:      cmd.OutOrStdout(),
				Clear:    contract.ParseClear(os.Getenv(contract.EnvClear)),
			}

			if rotate {
				if err := os.Remove(filepath.Join(
					c.Dir, contract.FileKubeconfig,
				)); err != nil && !errors.Is(err, os.ErrNotExist) {
					return fmt.Errorf("forget the kubeconfig: %w", err)
				}
			}

			if rotation != "" {
				return markPermanent(rotateCluster(cmd.Context(), c, rotation, settle))
			}

			var leaving []string
			if remove {
				leaving = words
			}

			return markPermanent(runInstaller(cmd.Context(), c, leaving, cmd.OutOrStdout()))
		},
	}
	cmd.Flags().StringVar(&name, "cluster", "", "the cluster's name, and that of its directory")
	cmd.Flags().StringVar(&network, "network", defaultPods, "addresses of the pods")
	cmd.Flags().BoolVar(&remove, "remove", false, "what follows are nodes to take out of the cluster")
	cmd.Flags().BoolVar(&rotate, "rotate", false, "make a new kubeconfig; the one before is worth nothing then")
	cmd.Flags().StringVar(
		&rotation, "rotate-authorities", "", "replace what signs in the cluster, as far as it may by now; a token names the rotation",
	)
	cmd.Flags().DurationVar(
		&settle, "settle", contract.RotationSettle, "how long former authorities are trusted after the next ones sign everywhere",
	)
	cmd.Flags().StringVar(&dir, "dir", contract.Dir, "where clusters have their directories")
	cmd.Flags().StringVar(
		&key, "key", "/root/.ssh/"+contract.FilePrivateKey, "the private key by which nodes are logged in to",
	)
	cmd.Flags().DurationVar(&stall, "stall", 30*time.Minute, "end when nothing came true for so long")
	return cmd
}

func runInstaller(ctx context.Context, c installer.Config, leaving []string, out io.Writer) error {
	i, err := installer.New(c)
	if err != nil {
		return err
	}
	defer i.Close()

	if len(leaving) > 0 {
		err = i.Remove(ctx, leaving)
	} else {
		err = i.Install(ctx)
	}

	if err == nil {
		fmt.Fprintf(out, "cluster %s is as asked\n", c.Cluster)
	}

	return err
}

func rotateCluster(ctx context.Context, c installer.Config, token string, settle time.Duration) error {
	i, err := installer.New(c)
	if err != nil {
		return err
	}
	defer i.Close()
	return i.Rotate(ctx, token, settle)
}

func settingsOf(name, pods, services string) (s installer.Settings, err error) {
	if name == "" || name != filepath.Base(name) || name[0] == '.' {
		return s, errors.New("--cluster must name a cluster")
	}

	s.Cluster = name
	if s.Pods, err = netip.ParsePrefix(pods); err != nil {
		return s, fmt.Errorf("--network: %w", err)
	}
	if s.Services, err = netip.ParsePrefix(services); err != nil {
		return s, fmt.Errorf("%s: %w", contract.EnvServiceSubnet, err)
	}

	s.Pods, s.Services = s.Pods.Masked(), s.Services.Masked()
	return s, nil
}

func readSigner(path string) (ssh.Signer, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the appliance's log-in: %w", err)
	}

	signer, err := ssh.ParsePrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("read the appliance's log-in %s: %w", path, err)
	}

	return signer, nil
}

// markPermanent gives what only a person can mend the exit code that says so.
func markPermanent(err error) error {
	if bringup.IsPermanent(err) {
		return commandline.NewUsageError(err)
	}
	return err
}
