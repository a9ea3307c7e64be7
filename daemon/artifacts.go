package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/ca"
	"firstlight.dev/firstlight/daemon/engine/bringup"
	"firstlight.dev/firstlight/daemon/engine/rerun"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/daemon/metal/mirror"
	"firstlight.dev/firstlight/daemon/metal/provisioning"
	"firstlight.dev/firstlight/daemon/metal/registry"
	"firstlight.dev/firstlight/daemon/uploads/publish"
	"firstlight.dev/firstlight/daemon/uploads/serving"
	"firstlight.dev/firstlight/pxe/server"
)

// catalogFile lists what is complete.
const catalogFile = artifact.Dir + "/" + artifact.CatalogFile

// artifacts is the part of the plan that takes uploads.
type artifacts struct {
	metal     *provisioning.Provisioner
	mirror    *mirror.Mirror
	hostname  func() string
	addresses func() []status.Address
}

func (a *artifacts) stages() []bringup.Stage {
	return []bringup.Stage{serving.Stage(a.pod, a.metal.Client)}
}

// pod is what the agent's pod is made from. The certificate is for every
// address that the appliance has now.
func (a *artifacts) pod() (serving.Pod, error) {
	authority, err := a.metal.Vault.Authority()
	if err != nil {
		return serving.Pod{}, err
	}

	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	addr, network := a.metal.Site().InnerAddress(), a.metal.Site().Appliance.ServiceCIDR
	service, s3 := site.NthAddress(network, serving.ServiceHost), site.NthAddress(network, serving.S3Host)
	names := ca.Names{
		Of:    "artifacts",
		DNS:   append([]string{"localhost"}, serving.ServiceNames()...),
		Addrs: append(hostAddrs(a.addresses()), addr, service, s3, loopback),
	}
	if name := a.hostname(); name != "" && authority.Permits(name) {
		names.DNS = append(names.DNS, name)
	}

	pair, _, err := authority.Issue("artifacts", names)
	if err != nil {
		return serving.Pod{}, err
	}

	writer, _, err := authority.Issue(registry.Writer, ca.Names{Of: registry.Writer, Client: true})
	if err != nil {
		return serving.Pod{}, err
	}

	digest, err := programID()
	if err != nil {
		return serving.Pod{}, err
	}

	limits, store := artifactConfig(a.metal.Site().Artifacts)
	return serving.Pod{
		Limits:      limits,
		Store:       store,
		Dir:         artifact.Dir,
		Cert:        pair.Cert,
		Key:         pair.Key,
		CA:          authority.PEM(),
		Digest:      digest,
		Registry:    a.mirror.RegistryAddr().String(),
		WriteCert:   writer.Cert,
		WriteKey:    writer.Key,
		Addr:        addr,
		ServiceAddr: service,
		S3:          a.metal.Site().Artifacts.S3,
		S3Addr:      s3,
	}, nil
}

// mintInterval is how often it is looked which keys to uploads by S3 are asked for, if the site has S3 served.
const mintInterval = 5 * time.Second

// mintKeys mints keys until ctx ends.
func (a *artifacts) mintKeys(ctx context.Context, up func() bool) error {
	if !rerun.Await(ctx, up) {
		return nil
	}
	for {
		if a.metal.Site().Artifacts.S3 {
			if err := a.mintOnce(ctx); err != nil {
				return err
			}
		}

		select {
		case <-ctx.Done():
			return nil
		case <-time.After(mintInterval):
		}
	}
}

func (a *artifacts) mintOnce(ctx context.Context) error {
	api, err := a.metal.Client()
	if err != nil {
		return err
	}

	authority, err := a.metal.Vault.Authority()
	if err != nil {
		return err
	}

	host := net.JoinHostPort(a.metal.Site().InnerAddress().String(), fmt.Sprint(artifact.PortS3))
	return serving.Minter{API: api, Endpoint: "https://" + host, CA: authority.PEM()}.Mint(ctx)
}

// artifactConfig is what the site says of uploads, for the pod.
func artifactConfig(s site.Artifacts) (serving.Limits, *serving.Store) {
	l := serving.Limits{Expiry: time.Duration(s.Expiry)}
	if s.Quota != 0 {
		l.Quota = s.Quota.String()
	}

	for _, o := range s.Owners {
		l.Owners = append(l.Owners, serving.Quota{Owner: string(o.Name), Amount: o.Quota.String()})
	}

	if s.Store == nil {
		return l, nil
	}

	return l, &serving.Store{Endpoint: string(s.Store.Endpoint), Region: s.Store.Region, CA: []byte(s.Store.CA),
		Keys: serving.Keys{Access: s.Store.AccessKey, Secret: s.Store.SecretKey.Reveal()}}
}

// hostAddrs are the addresses of all networks.
func hostAddrs(networks []status.Address) (all []netip.Addr) {
	for _, n := range networks {
		for _, text := range n.Addresses {
			if p, err := netip.ParsePrefix(text); err == nil {
				all = append(all, p.Addr())
			}
		}
	}
	return all
}

// status is how the artifacts stand; nil before there ever were any.
func (a *artifacts) status(stages []status.Stage) *status.Artifacts {
	i := slices.IndexFunc(stages, func(s status.Stage) bool { return s.Name == serving.StageName })
	if i < 0 {
		return nil
	}

	catalog, err := publish.Read(catalogFile)
	if errors.Is(err, fs.ErrNotExist) && stages[i].State != status.StateReady {
		return nil
	}

	var s unix.Statfs_t
	free, least := int64(-1), int64(0)
	if unix.Statfs(artifact.Dir, &s) == nil {
		free, least = int64(s.Bavail)*s.Bsize, artifact.ReservedSpace(int64(s.Blocks)*s.Bsize)
	}

	url := "https://" + net.JoinHostPort(
		a.metal.Site().Networks.Provisioning.Address.String(), fmt.Sprint(artifact.Port),
	)
	return artifactsStatus(stages[i], catalog, err, url, free, least)
}

// artifactsStatus makes the document's part of what is known. free is in octets, -1 if it is
// not known; below least none is for more artifacts.
func artifactsStatus(
	stage status.Stage,
	c artifact.Catalog,
	unread error,
	url string,
	free, least int64,
) *status.Artifacts {
	s := &status.Artifacts{URL: url, Free: max(free, 0), Collections: []status.Collection{}}
	for _, name := range artifact.Collections() {
		u := c.Collections[name]
		s.Collections = append(s.Collections, status.Collection{
			Name:      string(name),
			Artifacts: u.Artifacts,
			Complete:  u.Complete,
			Stored:    u.Octets,
			Announced: u.Announced,
		})
		s.Artifacts, s.Stored = s.Artifacts+u.Artifacts, s.Stored+u.Octets
	}

	serves := status.Check{Name: "serving", State: status.CheckOK, Text: "uploads are taken at " + url}
	if stage.State != status.StateReady {
		serves.State, serves.Text = status.CheckWaiting, cmp.Or(stage.Waiting, stage.Error, "not looked at yet")
	}

	read := status.Check{
		Name:  "store-read",
		State: status.CheckOK,
		Text:  fmt.Sprintf("the store holds %d artifacts", s.Artifacts),
	}
	if unread != nil {
		read.State, read.Text = status.CheckWaiting, unread.Error()
	}

	room := status.Check{Name: "room", State: status.CheckOK, Text: fmt.Sprintf("%d MiB of DATA are free", free>>20)}
	switch {
	case free < 0:
		room.State, room.Text = status.CheckWaiting, "how much of DATA is free is not known"
	case free < least:
		room.State, room.Fix = status.CheckFailed, "Remove artifacts (firstlight artifact rm), or use a larger stick."
	}

	s.Conditions = []status.Check{serves, read, room}
	return s
}

// uploadedImages are the OS images among the artifacts, by the names that site.yaml may use, never
// nil, and the signatures among them. files is the address of the boot server.
func uploadedImages(files string) (map[string]metal3.Image, []string, error) {
	c, err := publish.Read(catalogFile)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return nodeImagesOf(c, files), c.Signatures, err
}

func nodeImagesOf(c artifact.Catalog, files string) map[string]metal3.Image {
	images := map[string]metal3.Image{}
	for name, i := range c.ByName() {
		images[name] = metal3.Image{
			URL:    files + strings.TrimSuffix(artifact.ImagesPath, "/") + "/" + i.Key().Object(),
			SHA256: i.SHA256,
			Format: i.Format,
			Size:   i.VirtualSize,
		}
	}
	return images
}

// uploadMount is where the boot server has uploaded OS images.
func uploadMount() server.Mount {
	return server.Mount{Path: artifact.ImagesPath, Dir: artifact.Dir + "/" + artifact.ImagesDir, Digest: imageDigest}
}

// imageDigest knows the sha256 of what the boot server shows below artifact.ImagesPath.
func imageDigest(name string) string {
	c, err := publish.Read(catalogFile)
	if err != nil {
		return ""
	}

	for _, i := range c.Images {
		if i.Key().Object() == name {
			return i.SHA256
		}
	}

	return ""
}
