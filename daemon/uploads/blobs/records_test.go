package blobs_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/uploads/blobs"
	"firstlight.dev/firstlight/daemon/uploads/blobs/s3test"
)

func TestRecordsOfAnOwnerAreNotWithoutEnd(t *testing.T) {
	backends(t, func(t *testing.T, s blobs.Backend) {
		b := newFixture(t, s, nil)
		note := func(name string, n int) artifact.Metadata {
			r := record(key(name), 10)
			r.Description = artifact.Description{ImageRecords: []map[string]string{{"note": strings.Repeat("x", n)}}}
			return r
		}
		const n = 100_000
		var err error
		made := 0
		for ; err == nil && made < 1000; made++ {
			name := fmt.Sprintf("tool-%03d", made)
			_, err = b.Create(context.Background(), key(name), note(name, n))
		}
		assert.Equal(t, blobs.TooLarge, kind(t, err))
		assert.ErrorContains(t, err, "the types and descriptions of owner alpha have")
		made--
		assert.Equal(t, artifact.MaxRecordBytes/n, made)
		_, err = b.Replace(t.Context(), key("tool-000"), note("tool-000", 3*n))
		assert.Equal(t, blobs.TooLarge, kind(t, err), "nor does one grow")
		_, err = b.Replace(t.Context(), key("tool-000"), note("tool-000", 1))
		require.NoError(t, err)
		other := artifact.Key{Collection: artifact.Binary, Owner: "gamma", Cluster: "beta", Name: "tool"}
		_, err = b.Create(t.Context(), other, record(other, 10))
		require.NoError(t, err)

		// A page of them is no longer than a client wants to read, and all are on some page.
		var names []string
		for after, more := "", true; more; {
			var page []artifact.Metadata
			page, more = b.List(artifact.Binary, "alpha", "beta", after, artifact.MaxPage)
			require.NotEmpty(t, page)
			assert.LessOrEqual(t, len(page), artifact.MaxPageBytes/n+1)
			for _, r := range page {
				names = append(names, r.ImageName)
			}
			after = names[len(names)-1]
		}
		assert.Len(t, names, made)
	})
}

func TestNumberOfArtifactsOfAnOwner(t *testing.T) {
	if testing.Short() {
		t.Skip("makes ten thousand artifacts, which takes a busy machine minutes: leave out -short")
	}
	b := newFixture(t, server(t, s3test.StartInMemory(t, nil)), nil)
	for i := range artifact.MaxRecords {
		k := key(fmt.Sprint("tool-", i))
		_, err := b.Create(t.Context(), k, artifact.Metadata{Owner: k.Owner, ClusterName: k.Cluster, ImageName: k.Name, ImageLength: 1})
		require.NoError(t, err)
	}
	_, err := b.Create(t.Context(), key("more"), record(key("more"), 1))
	assert.Equal(t, blobs.TooLarge, kind(t, err))
	assert.ErrorContains(t, err, "owner alpha has 10000 artifacts")
	require.NoError(t, b.Remove(t.Context(), key("tool-7")))
	_, err = b.Create(t.Context(), key("more"), record(key("more"), 1))
	require.NoError(t, err)
}
