package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/daemon/appliance/audit"
	"firstlight.dev/firstlight/daemon/uploads/api"
	"firstlight.dev/firstlight/daemon/uploads/api/access"
	"firstlight.dev/firstlight/daemon/uploads/blobs"
	"firstlight.dev/firstlight/daemon/uploads/blobs/s3"
	"firstlight.dev/firstlight/daemon/uploads/containers"
	"firstlight.dev/firstlight/daemon/uploads/publish"
	"firstlight.dev/firstlight/daemon/uploads/use"
)

// artifactMemory is where the garbage collector begins to work harder, in octets: with the pages of the
// program that serving needs it stays below 64 MB.
const artifactMemory = 36 << 20

// artifactFlags are the command line of `firstlightd artifacts`.
type artifactFlags struct {
	listen         string
	tls            api.Files
	store          s3.Config
	local          bool
	scratch        string
	publish        string
	withdraw       string
	stick          string
	registry       string
	registryWriter containers.Writer
	kubeconfig     string
	quota          string
	quotas         []string
	expiry         time.Duration
	s3Listen       string
	s3Keys         string
}

func newArtifactsCommand() *cobra.Command {
	f := artifactFlags{}
	cmd := &cobra.Command{
		Use:   "artifacts",
		Short: "Serve the REST API for uploads (OS images, container images, packages)",
		Long: `Serve the REST API for uploads. They are kept in a folder of the appliance (--publish), or in an S3 store.

The keys of an S3 store are read from STORE_ACCESS_KEY and STORE_SECRET_KEY. Whose a token is and what its
owner may do is asked of the API server, for which this needs the ClusterRole system:auth-delegator.
docs/artifacts.md walks through all of it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.config()
			if err != nil {
				return err
			}

			if os.Getenv("GOMEMLIMIT") == "" {
				debug.SetMemoryLimit(artifactMemory)
			}

			if err := forgetProgram(); err != nil {
				c.Log.Warn("memory is larger than need be", "error", err)
			}

			return f.serve(cmd.Context(), c)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", fmt.Sprintf(":%d", artifact.Port), "address to serve, by TLS")
	flags.StringVar(&f.tls.Cert, "cert", "", "certificate, PEM; it and the key may be replaced at any time")
	flags.StringVar(&f.tls.Key, "key", "", "its key, PEM")
	flags.StringVar(
		&f.tls.ClientCA, "client-ca", "", "authority of client certificates, PEM; without it none is asked for",
	)
	flags.StringVar(&f.store.Endpoint, "store", "http://127.0.0.1:9000", "S3 endpoint, without --publish")
	flags.StringVar(&f.store.CAFile, "store-ca", "", "authority of the store's certificate, PEM (default the system's)")
	flags.StringVar(&f.store.Region, "store-region", "", "region of the store (default us-east-1)")
	flags.BoolVar(&f.local, "store-is-local", false, "the store keeps its objects on the file system of --scratch: ask it for room before an upload is announced")
	flags.StringVar(
		&f.scratch, "scratch", os.TempDir(),
		"folder for scratch files: two parts for each upload at work, gone with the process",
	)
	flags.StringVar(
		&f.publish, "publish", "",
		"folder of the appliance that keeps uploads, images for the boot server and catalog.json",
	)
	flags.StringVar(&f.withdraw, "withdraw", "", "folder of the appliance, with a store that is not on it: it gets catalog.json and the scratch, and nodes are offered nothing")
	flags.StringVar(
		&f.registry, "registry", "", "HOST:PORT of the registry that gets container images; needs --publish",
	)
	flags.StringVar(&f.stick, "stick", "", "folder with more archives of container images, OWNER/FILE; needs --registry")
	flags.StringVar(&f.registryWriter.Cert, "registry-cert", "", "certificate that may push there, PEM")
	flags.StringVar(&f.registryWriter.Key, "registry-key", "", "its key, PEM")
	flags.StringVar(&f.registryWriter.CA, "registry-ca", "", "authority of the registry's certificate, PEM")
	flags.StringVar(
		&f.kubeconfig, "kubeconfig", "", "API server to ask who may (default that of the cluster this runs in)",
	)
	flags.StringVar(&f.quota, "quota", "", "what an owner may announce in all, such as 200Gi (default any)")
	flags.StringArrayVar(&f.quotas, "quota-of", nil, "another quota for one owner: OWNER=500Gi; may be repeated")
	flags.StringVar(&f.s3Listen, "s3-listen", "", "address to serve S3, by TLS (default it is not served); needs --publish")
	flags.StringVar(&f.s3Keys, "s3-keys", "", "NAMESPACE/NAME of the Secret with the keys to it")
	flags.DurationVar(&f.expiry, "expiry", blobs.Expiry, "after which an upload that nobody continued is removed")
	return cmd
}

// check says what is wrong with the flags.
func (f artifactFlags) check() error {
	switch {
	case f.tls.Cert == "" || f.tls.Key == "":
		return errors.New("--cert and --key are required")
	case f.publish != "" && f.withdraw != "":
		return errors.New("--publish and --withdraw exclude each other")
	case f.publish == "" && f.registry != "":
		return errors.New("--registry needs --publish")
	case f.s3Listen != "" && (f.publish == "" || !strings.Contains(f.s3Keys, "/")):
		return errors.New("--s3-listen needs --publish and --s3-keys NAMESPACE/NAME")
	}
	return nil
}

// config makes the agent's configuration of the command line.
func (f artifactFlags) config() (api.Config, error) {
	quota, err := parseQuotas(f.quota, f.quotas)
	if err == nil {
		err = f.check()
	}

	if err != nil {
		return api.Config{}, commandline.NewUsageError(err)
	}

	if dir := cmp.Or(f.publish, f.withdraw); dir != "" {
		f.scratch = filepath.Join(dir, artifact.ScratchDir)
	}

	backend, err := f.backend()
	if err != nil {
		return api.Config{}, err
	}

	cluster, err := restConfig(f.kubeconfig)
	if err != nil {
		return api.Config{}, err
	}

	kubernetes, err := access.NewKubernetes(cluster)
	if err != nil {
		return api.Config{}, err
	}

	folder := publish.Folder(f.publish)
	var packageName func(artifact.Key) (string, string, error)
	if f.publish != "" {
		packageName = folder.PackageName
	}

	users, err := use.New(cluster, packageName)
	if err != nil {
		return api.Config{}, err
	}

	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	c := api.Config{
		Listen:        f.listen,
		TLS:           f.tls,
		Authenticator: access.Chain{access.People{}, access.Certificates{}, kubernetes},
		Authorizer:    kubernetes,
		Log:           log,
		Blobs: blobs.Config{
			Backend: backend,
			Scratch: f.scratch,
			Local:   f.local || f.publish != "",
			Quota:   quota,
			Expiry:  f.expiry,
			InUse:   users.Users,
			Log:     log,
		},
	}
	switch {
	case f.publish != "":
		c.Publish = folder.Sync
	case f.withdraw != "":
		c.Publish, c.Push = publish.Folder(f.withdraw).Withdraw, containers.Decline
	}

	if dir := cmp.Or(f.publish, f.withdraw); dir != "" {
		c.Audit = audit.NewLog(filepath.Join(dir, artifact.AuditFile), log)
	}

	if f.registry != "" {
		p := containers.Pusher{
			Registry: f.registry,
			State:    filepath.Join(f.publish, artifact.PushedFile),
			File:     folder.ObjectPath,
			Stick:    f.stick,
			Log:      log,
			Bundles:  filepath.Join(f.publish, artifact.BundlesDir),
		}
		c.Push = func(ctx context.Context, d *blobs.Store) error { return p.PushComplete(ctx, f.registryWriter, d) }
		c.Blobs.Pushed = true
	}

	return c, nil
}

// backend is the folder of the appliance, or the S3 server that the site brings.
func (f artifactFlags) backend() (blobs.Backend, error) {
	if f.publish != "" {
		return &blobs.Folder{Dir: filepath.Join(f.publish, artifact.StoreDir)}, nil
	}

	f.store.AccessKey, f.store.SecretKey = os.Getenv("STORE_ACCESS_KEY"), os.Getenv("STORE_SECRET_KEY")
	f.store.Scratch = f.scratch
	return s3.New(f.store)
}

// parseQuotas reads quotas as Kubernetes writes sizes.
func parseQuotas(all string, each []string) (func(owner string) int64, error) {
	size := func(text string) (int64, error) {
		if text == "" {
			return 0, nil
		}

		q, err := resource.ParseQuantity(text)
		if err != nil || q.Value() <= 0 {
			return 0, fmt.Errorf("quota %q is no size; write 200Gi", text)
		}

		return q.Value(), nil
	}
	general, err := size(all)
	if err != nil {
		return nil, err
	}

	owners := map[string]int64{}
	for _, text := range each {
		owner, amount, ok := strings.Cut(text, "=")
		if !ok || owner == "" || amount == "" {
			return nil, fmt.Errorf("quota %q is not OWNER=SIZE", text)
		}
		if owners[owner], err = size(amount); err != nil {
			return nil, err
		}
	}

	return func(owner string) int64 {
		if q, set := owners[owner]; set {
			return q
		}
		return general
	}, nil
}
