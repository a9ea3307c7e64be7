package artifact

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestKeyCheck(t *testing.T) {
	long := strings.Repeat("n", 128)
	for _, c := range []struct {
		key  Key
		says string // "" if nothing is wrong
	}{
		{Key{OS, "alpha", "beta", "qwerty123"}, ""},
		{Key{Binary, "c1", "c-2", "jq_1.5+dfsg~rc1-1_amd64.deb"}, ""},
		{Key{OS, "c1", "c-2", "jq_1.5+dfsg"}, "is not allowed"},
		{Key{Container, "a", "b", long}, ""},
		{Key{Container, "a", "b", long + "n"}, "is not allowed"},
		{Key{"images", "a", "b", "n"}, `collection "images" is unknown`},
		{Key{OS, "Alpha", "b", "n"}, "owner"},
		{Key{OS, "", "b", "n"}, "owner"},
		{Key{OS, "a", "-b", "n"}, "cluster"},
		{Key{OS, "a", "b/c", "n"}, "cluster"},
		{Key{OS, "a", strings.Repeat("b", 64), "n"}, "cluster"},
		{Key{OS, "a", "b", ".."}, "is not allowed"},
		{Key{OS, "a", "b", ".hidden"}, "is not allowed"},
		{Key{OS, "a", "b", "x/../y"}, "is not allowed"},
		{Key{OS, "a", "b", "n\x00"}, "is not allowed"},
		{Key{OS, "a", "b", "n\n"}, "is not allowed"},
		{Key{OS, "a", "b", "größe"}, "is not allowed"},
		{Key{OS, "a", "b", ""}, "is not allowed"},
	} {
		err := c.key.Check()
		if c.says == "" {
			assert.NoError(t, err, "%q", c.key)
			continue
		}
		assert.ErrorContains(t, err, c.says, "%q", c.key)
	}
}

func TestPathsAndBuckets(t *testing.T) {
	k := Key{Container, "alpha", "beta", "qwerty123"}
	assert.Equal(t, "/v1/baremetalcluster/alpha/beta/container_images/qwerty123", k.Path())
	assert.Equal(t, "alpha/beta/qwerty123", k.Object())
	var buckets []string
	for _, c := range Collections() {
		buckets = append(buckets, c.Bucket())
	}
	assert.Equal(t, []string{"binary", "container", "operatingsystem"}, buckets)
}

// What ICN's clients send is read whole, and what they read is there by its name.
func TestRecordHasICNsFields(t *testing.T) {
	const sent = `{"owner":"alpha","cluster_name":"beta","type":"container","image_name":"qwerty123","image_offset":0,"image_length":29718177,
		"upload_complete":false,"description":{"image_records":[{"image_record_name":"iuysdi1234","repo":"icn","tag":"2"}]}}`
	var r Metadata
	require.NoError(t, json.Unmarshal([]byte(sent), &r))
	back, err := json.Marshal(r)
	require.NoError(t, err)
	assert.JSONEq(t, sent, string(back))
}
