package site

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestArtifactsThatDoNotHold(t *testing.T) {
	full := string(readFile(t, "testdata/valid/full.yaml"))
	_, ca, _ := strings.Cut(full, "\nartifacts:\n")
	_, ca, _ = strings.Cut(ca, "    ca: |\n")
	ca, _, _ = strings.Cut(ca, "verification:")
	for _, c := range []struct{ data, says string }{
		{"artifacts: {quota: lots}", `artifacts.quota: "lots" is not an amount; write a number with a unit such as 50Gi`},
		{"artifacts: {quota: 0Gi}", "artifacts.quota: \"0Gi\" is out of bounds"},
		{"artifacts: {owners: [{name: alpha}]}", "artifacts.owners[0]: quota is missing"},
		{"artifacts: {owners: [{name: a, quota: 1Gi}, {name: a, quota: 2Gi}]}", `owner "a" is already that of artifacts.owners[0].name`},
		{"artifacts: {expiry: 5m}", "artifacts.expiry: an upload that pauses would be removed at once; use 1h or more"},
		{"artifacts: {s3: true, store: {endpoint: 'http://s3', accessKey: a, secretKey: b}}", "artifacts.s3: uploads are in a store elsewhere, which serves S3 itself; remove store, or this line"},
		{"artifacts: {store: {endpoint: 'http://s3'}}", "accessKey is missing"},
		{"artifacts: {store: {endpoint: 'http://s3/x', accessKey: a, secretKey: b}}", `"http://s3/x" has a path`},
		{"artifacts: {store: {endpoint: 'https://s3', accessKey: a, secretKey: b}}", "nothing tells whose certificate to trust; add ca"},
		{"artifacts: {store: {endpoint: 'https://s3', accessKey: a, secretKey: b, ca: x}}", "artifacts.store.ca: this is not PEM"},
		{"artifacts:\n  store:\n    endpoint: http://s3\n    accessKey: a\n    secretKey: b\n    ca: |\n" + ca, "there is no certificate with http"},
	} {
		s, problems := Load("site.yaml", []byte(c.data))
		assert.Nil(t, s, c.data)
		assert.Contains(t, problems.String(), c.says, c.data)
	}
}

func TestArtifactsOfTheSampleAndTheirDefaults(t *testing.T) {
	s, problems := Load("full.yaml", readFile(t, "testdata/valid/full.yaml"))
	require.Empty(t, problems.String())
	assert.Equal(t, Amount(500<<30), s.Artifacts.Owners[0].Quota)
	assert.Equal(t, "change me too", s.Artifacts.Store.SecretKey.Reveal())
	shown, err := s.YAML()
	require.NoError(t, err)
	assert.NotContains(t, string(shown), "change me too")

	s, problems = Load("site.yaml", []byte("artifacts: {store: {endpoint: 'http://s3:9000', accessKey: a, secretKey: b}}"))
	require.Empty(t, problems.String())
	d := s.WithDefaults()
	assert.Equal(t, Duration(72*time.Hour), d.Artifacts.Expiry)
	assert.Equal(t, "us-east-1", d.Artifacts.Store.Region)
	assert.Empty(t, s.Artifacts.Store.Region, "the site itself is as it was")
}
