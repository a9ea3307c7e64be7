package daemon

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/daemon/uploads/serving"
)

func TestUploadedImagesHaveNamesForTheSite(t *testing.T) {
	c := artifact.Catalog{Images: []artifact.OSImage{
		{Owner: "alpha", Cluster: "beta", Name: "debian-12", SHA256: "aa", Format: "qcow2", Length: 5, VirtualSize: 10 << 30},
		{Owner: "alpha", Cluster: "beta", Name: "shared", SHA256: "bb", Format: "raw", Length: 512, VirtualSize: 512},
		{Owner: "gamma", Cluster: "beta", Name: "shared", SHA256: "cc", Format: "raw", Length: 1024, VirtualSize: 1024},
	}}
	const at = "http://172.22.0.1:6180/artifacts/"
	assert.Equal(t, map[string]metal3.Image{
		"alpha.beta.debian-12": {URL: at + "alpha/beta/debian-12", SHA256: "aa", Format: "qcow2", Size: 10 << 30},
		"alpha.beta.shared":    {URL: at + "alpha/beta/shared", SHA256: "bb", Format: "raw", Size: 512},
		"gamma.beta.shared":    {URL: at + "gamma/beta/shared", SHA256: "cc", Format: "raw", Size: 1024},
	}, nodeImagesOf(c, "http://172.22.0.1:6180"), "a name alone is taken by whoever uploads first")
	assert.NotNil(t, nodeImagesOf(artifact.Catalog{}, ""))
}

func TestStatusOfArtifacts(t *testing.T) {
	ready := status.Stage{Name: "artifacts-ready", State: status.StateReady}
	c := artifact.Catalog{Collections: map[artifact.Collection]artifact.Usage{
		artifact.OS: {Artifacts: 2, Complete: 1, Octets: 700, Announced: 1000}, artifact.Binary: {Artifacts: 1, Complete: 1, Octets: 30, Announced: 30}}}
	s := artifactsStatus(ready, c, nil, "https://172.22.0.1:9015", 5<<30, 1<<30)
	assert.Equal(t, 3, s.Artifacts)
	assert.Equal(t, int64(730), s.Stored)
	assert.Equal(t, int64(5<<30), s.Free)
	require.Len(t, s.Collections, 3)
	assert.Equal(t, status.Collection{Name: "os_images", Artifacts: 2, Complete: 1, Stored: 700, Announced: 1000}, s.Collections[2])
	for _, check := range s.Conditions {
		assert.Equal(t, status.CheckOK, check.State, check.Name)
	}
	s = artifactsStatus(status.Stage{State: status.StateDegraded, Waiting: "the agent to answer"}, artifact.Catalog{}, errors.New("not there"), "u", artifact.ReservedSpace(64<<30)-1, artifact.ReservedSpace(64<<30))
	require.Len(t, s.Conditions, 3)
	assert.Equal(t, status.Check{Name: "serving", State: status.CheckWaiting, Text: "the agent to answer"}, s.Conditions[0])
	assert.Equal(t, status.Check{Name: "store-read", State: status.CheckWaiting, Text: "not there"}, s.Conditions[1])
	assert.Equal(t, status.CheckFailed, s.Conditions[2].State)
	assert.NotEmpty(t, s.Conditions[2].Fix)
}

func TestCertificateIsForEveryAddress(t *testing.T) {
	got := hostAddrs([]status.Address{{Addresses: []string{"172.22.0.1/24"}}, {}, {Addresses: []string{"10.0.0.7/16", "10.0.0.8/16", "nonsense"}}})
	assert.Equal(t, []netip.Addr{netip.MustParseAddr("172.22.0.1"), netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("10.0.0.8")}, got)
}

func TestTheSiteConfiguresArtifacts(t *testing.T) {
	s, problems := site.Load("site.yaml", []byte("artifacts: {quota: 50Gi, owners: [{name: alpha, quota: 1500M}], store: {endpoint: 'http://s3:9000', accessKey: a, secretKey: b}}"))
	require.Empty(t, problems.String())
	limits, store := artifactConfig(s.WithDefaults().Artifacts)
	assert.Equal(t, serving.Limits{Quota: "50Gi", Owners: []serving.Quota{{Owner: "alpha", Amount: "1500M"}}, Expiry: 72 * time.Hour}, limits)
	assert.Equal(t, &serving.Store{Endpoint: "http://s3:9000", Region: "us-east-1", Keys: serving.Keys{Access: "a", Secret: "b"}, CA: []byte{}}, store)
	limits, store = artifactConfig((&site.Site{}).WithDefaults().Artifacts)
	assert.Equal(t, serving.Limits{Expiry: 72 * time.Hour}, limits)
	assert.Nil(t, store)
}
