package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/daemon/uploads/client"
)

// artifactFlags are what all of `firstlight artifact` share.
type artifactFlags struct {
	server, ca, tokenFile, cert, key string
	owner, cluster                   string
	output                           commandline.Format
	timeout                          time.Duration
}

// artifactKinds are the words before the slash of an artifact's name.
var artifactKinds = []string{"os", "container", "binary"}

func newArtifactCommand() *cobra.Command {
	f := &artifactFlags{}
	cmd := &cobra.Command{
		Use:   "artifact",
		Short: "Bring OS images, container images and packages to an appliance, and look after them",
		Long: `Bring OS images, container images and packages to an appliance, and look after them.

An artifact is named KIND/NAME: os/debian-13, container/app-1.2.tar or binary/jq_1.7_amd64.deb.
The server, its authority and the token are also read from FIRSTLIGHT_SERVER, FIRSTLIGHT_CA and
FIRSTLIGHT_TOKEN (the token itself).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := cmd.PersistentFlags()
	flags.StringVar(&f.server, "server", os.Getenv("FIRSTLIGHT_SERVER"), "the appliance: HOST or https://HOST:PORT")
	flags.StringVar(
		&f.ca, "ca", os.Getenv("FIRSTLIGHT_CA"), "file with the appliance's authority, PEM (default the system's)",
	)
	flags.StringVar(&f.tokenFile, "token-file", "", "file with a bearer token (default $FIRSTLIGHT_TOKEN)")
	flags.StringVar(&f.cert, "cert", "", "client certificate, PEM, instead of a token")
	flags.StringVar(&f.key, "key", "", "its key, PEM")
	flags.StringVar(&f.owner, "owner", "", "owner of the artifacts")
	flags.StringVar(&f.cluster, "cluster", "", "cluster they are for")
	f.output = commandline.Text
	flags.VarP(&f.output, "output", "o", "text or json")
	flags.DurationVar(&f.timeout, "patience", 5*time.Minute, "give a transfer up when nothing moved for so long")
	cmd.AddCommand(f.newPush(), f.newList(), f.newShow(), f.newGet(), f.newRemove())
	return cmd
}

func (f *artifactFlags) newPush() *cobra.Command {
	var record artifact.Metadata
	var notes []string
	var replace bool
	var signed string
	cmd := &cobra.Command{
		Use:   "push FILE KIND/NAME",
		Short: "Send a file; the same command again continues after an interruption",
		Long: `Send a file; the same command again continues after an interruption. --signature FILE.minisig sends the file's signature
(firstlight sign) before it, as binary/NAME.minisig: a site with images.require: signed installs no OS image without.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, k, err := f.open(args[1])
			if err != nil {
				return err
			}
			if record.Description, err = describeImage(notes); err != nil {
				return commandline.NewUsageError(err)
			}

			if signed != "" {
				if err := pushSignature(cmd, c, k, signed, replace); err != nil {
					return fmt.Errorf("push signature of %s: %w", args[0], err)
				}
			}
			have, err := c.Push(
				cmd.Context(), k, args[0], record, replace, newMeter(cmd.ErrOrStderr()).show,
			)
			if err != nil {
				return fmt.Errorf("push %s: %w", args[0], err)
			}

			return f.print(cmd.OutOrStdout(), have)
		},
	}
	cmd.Flags().StringVar(&record.Type, "type", "", "free text kept with it")
	cmd.Flags().StringArrayVar(&notes, "note", nil, "KEY=VALUE kept with it; may be repeated")
	cmd.Flags().BoolVar(&replace, "replace", false, "replace other content of the same name")
	cmd.Flags().StringVar(&signed, "signature", "", "file with the signature of FILE, which is sent as well")
	return cmd
}

func (f *artifactFlags) newList() *cobra.Command {
	return &cobra.Command{
		Use:       "list [KIND]",
		Short:     "List the artifacts of an owner's cluster",
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: artifactKinds,
		RunE: func(cmd *cobra.Command, args []string) error {
			kinds := artifactKinds
			if len(args) == 1 {
				kinds = args
			}

			all := map[artifact.Collection][]artifact.Metadata{}
			for _, kind := range kinds {
				collection, have, err := f.list(cmd.Context(), kind)
				if err != nil {
					return err
				}
				all[collection] = have
			}

			if f.output == commandline.JSON {
				return commandline.WriteJSON(cmd.OutOrStdout(), all)
			}

			return printArtifacts(cmd.OutOrStdout(), all)
		},
	}
}

// list returns the artifacts of one kind, and their collection.
func (f *artifactFlags) list(ctx context.Context, kind string) (artifact.Collection, []artifact.Metadata, error) {
	c, k, err := f.open(kind + "/x")
	if err != nil {
		return "", nil, err
	}

	have, err := c.List(ctx, k.Collection, k.Owner, k.Cluster)
	if err != nil {
		return "", nil, fmt.Errorf("list %s: %w", kind, err)
	}

	return k.Collection, have, nil
}

func (f *artifactFlags) newShow() *cobra.Command {
	return &cobra.Command{
		Use:               "show KIND/NAME",
		Short:             "Show one artifact's record",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.completeArtifacts(1, cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, k, err := f.open(args[0])
			if err != nil {
				return err
			}

			have, err := c.Metadata(cmd.Context(), k)
			if err != nil {
				return fmt.Errorf("show %s: %w", args[0], err)
			}

			return f.print(cmd.OutOrStdout(), have)
		},
	}
}

func (f *artifactFlags) newGet() *cobra.Command {
	var replace bool
	cmd := &cobra.Command{
		Use:   "get KIND/NAME [FILE]",
		Short: "Fetch an artifact and check it; the same command again continues after an interruption",
		Args:  cobra.RangeArgs(1, 2),
		// After the artifact comes a file.
		ValidArgsFunction: f.completeArtifacts(1, cobra.ShellCompDirectiveDefault),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, k, err := f.open(args[0])
			if err != nil {
				return err
			}

			path := append(args, k.Name)[1]
			c.Overwrite = replace
			have, err := c.Fetch(cmd.Context(), k, path, newMeter(cmd.ErrOrStderr()).show)
			if err != nil {
				return fmt.Errorf("get %s: %w", args[0], err)
			}

			return f.print(cmd.OutOrStdout(), have)
		},
	}
	cmd.Flags().BoolVar(&replace, "replace", false, "replace a file of that name that holds something else")
	return cmd
}

func (f *artifactFlags) newRemove() *cobra.Command {
	return &cobra.Command{
		Use:               "rm KIND/NAME...",
		Short:             "Remove artifacts that nobody uses",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: f.completeArtifacts(math.MaxInt, cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range args {
				c, k, err := f.open(name)
				if err != nil {
					return err
				}
				if err := c.Remove(cmd.Context(), k); err != nil {
					return fmt.Errorf("remove %s: %w", name, err)
				}
			}
			return nil
		},
	}
}

// open makes a client and the key of an artifact named KIND/NAME.
func (f *artifactFlags) open(name string) (client.Client, artifact.Key, error) {
	var c client.Client
	kind, short, _ := strings.Cut(name, "/")
	k := artifact.Key{
		Collection: artifact.Collection(kind + "_images"),
		Owner:      f.owner,
		Cluster:    f.cluster,
		Name:       short,
	}
	switch {
	case !k.Collection.IsKnown():
		return c, k, commandline.NewUsageError(fmt.Errorf("%q is not KIND/NAME; KIND is os, container or binary", name))
	case f.server == "" || f.owner == "" || f.cluster == "":
		return c, k, commandline.NewUsageError(errors.New("--server, --owner and --cluster are required"))
	}

	if err := k.Check(); err != nil {
		return c, k, commandline.NewUsageError(err)
	}

	server, err := serverURL(f.server)
	if err != nil {
		return c, k, commandline.NewUsageError(err)
	}

	c = client.Client{URL: server, Token: os.Getenv("FIRSTLIGHT_TOKEN"), StallTimeout: f.timeout}
	if f.tokenFile != "" {
		token, err := os.ReadFile(f.tokenFile)
		if err != nil {
			return c, k, fmt.Errorf("read token: %w", err)
		}
		c.Token = strings.TrimSpace(string(token))
	}

	c.HTTP, err = f.httpClient()
	return c, k, err
}

// serverURL is the address of the API: a host alone is served at its port.
func serverURL(server string) (string, error) {
	if !strings.Contains(server, "://") {
		if _, _, err := net.SplitHostPort(server); err != nil {
			server = net.JoinHostPort(strings.Trim(server, "[]"), fmt.Sprint(artifact.Port))
		}
		server = "https://" + server
	}

	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
		return "", fmt.Errorf("server %q is not HOST or https://HOST:PORT", server)
	}

	return "https://" + u.Host, nil
}

func (f *artifactFlags) httpClient() (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.ca != "" {
		text, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fmt.Errorf("read authority: %w", err)
		}

		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("authority %s holds no certificate", f.ca)
		}
	}

	if f.cert != "" || f.key != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, fmt.Errorf("read client certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}

	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:       config,
		ExpectContinueTimeout: 5 * time.Second,
		Proxy:                 http.ProxyFromEnvironment,
		TLSHandshakeTimeout:   30 * time.Second,
		WriteBufferSize:       128 << 10,
		ReadBufferSize:        128 << 10,
		DialContext:           (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
	}}, nil
}

// describeImage makes the record's description of KEY=VALUE.
func describeImage(notes []string) (artifact.Description, error) {
	record := map[string]string{}
	for _, note := range notes {
		key, value, ok := strings.Cut(note, "=")
		if !ok || key == "" {
			return artifact.Description{}, fmt.Errorf("note %q is not KEY=VALUE", note)
		}
		record[key] = value
	}

	if len(record) == 0 {
		return artifact.Description{}, nil
	}

	return artifact.Description{ImageRecords: []map[string]string{record}}, nil
}

func (f *artifactFlags) print(w io.Writer, r artifact.Metadata) error {
	if f.output == commandline.JSON {
		return commandline.WriteJSON(w, r)
	}

	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name string, value any) { fmt.Fprintf(t, "%s\t%v\n", name, value) }
	line("name", r.ImageName)
	line("owner, cluster", r.Owner+", "+r.ClusterName)
	line("bytes", fmt.Sprintf("%d of %d", r.ImageOffset, r.ImageLength))
	line("state", artifactState(r))
	if r.SHA256 != "" {
		line("sha256", r.SHA256)
	}

	if r.Format != "" {
		line("format", fmt.Sprintf("%s, a disk of %s", r.Format, formatSize(r.VirtualSize)))
	}

	if r.Type != "" {
		line("type", r.Type)
	}

	if len(r.ServedAs) > 0 {
		line("served as", strings.Join(r.ServedAs, ", "))
	}

	if r.NotServed != "" {
		line("not served", r.NotServed)
	}

	for _, notes := range r.Description.ImageRecords {
		for _, key := range slices.Sorted(maps.Keys(notes)) {
			line(key, notes[key])
		}
	}

	return t.Flush()
}

func artifactState(r artifact.Metadata) string {
	switch {
	case r.Damaged != "":
		return "damaged: " + r.Damaged
	case r.Complete:
		return "complete"
	}
	return fmt.Sprintf("%d %% sent", 100*r.ImageOffset/max(r.ImageLength, 1))
}

func printArtifacts(w io.Writer, all map[artifact.Collection][]artifact.Metadata) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tSIZE\tSTATE\tSHA256\tUPDATED")
	for _, c := range artifact.Collections() {
		for _, r := range all[c] {
			kind := strings.TrimSuffix(string(c), "_images")
			fmt.Fprintf(
				t, "%s/%s\t%s\t%s\t%.12s\t%s\n", kind, r.ImageName, formatSize(r.ImageLength), artifactState(r),
				r.SHA256, r.Updated.Format(time.DateTime),
			)
		}
	}

	return t.Flush()
}
