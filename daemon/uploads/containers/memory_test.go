package containers

import (
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/artifact"
)

// reading is how often archives are opened by some rounds of Sync.
func (b *fixture) reading(rounds int, records func() []artifact.Metadata) int {
	b.t.Helper()
	before := b.reads
	for range rounds {
		require.NoError(b.t, b.pusher.Sync(b.t.Context(), records()))
		b.now = b.now.Add(30 * time.Second)
	}
	return b.reads - before
}

// What is served or never can be is not read again.
func TestAnArchiveIsNotReadForNothing(t *testing.T) {
	b := newFixture(t)
	b.docker("first", map[string]v1.Image{"registry.example/web:1": image(t)})
	b.docker("second", map[string]v1.Image{"registry.example/web:1": image(t)})
	b.docker("port", map[string]v1.Image{"registry.example:5000/web:1": image(t)})
	b.docker("stick", map[string]v1.Image{"firstlight.internal/pause:1": image(t)})
	names := []string{"first", "second", "port", "stick"}
	records := func() (all []artifact.Metadata) {
		for i, n := range names {
			all = append(all, b.record(n, "1", time.Duration(i)))
		}
		return all
	}
	assert.Equal(t, 6, b.reading(1, records), "each for its names, and two for their layers")
	assert.Zero(t, b.reading(50, records))
	assert.Contains(t, b.told["second"].NotServed, "uploaded before")
	assert.Contains(t, b.told["stick"].NotServed, "the stick's own")

	b.now = b.now.Add(recheckInterval)
	assert.Equal(t, 1, b.reading(1, records), "the registry may have become another")

	names = names[1:]
	assert.Equal(t, 1, b.reading(3, records), "the name is free, and so its image is pushed")
	assert.Equal(t, []string{"registry.example/web:1"}, b.told["second"].ServedAs)
	assert.NotEmpty(t, b.has("registry.example/web:1"))
	assert.NotContains(t, b.pusher.memory, keyOf(b.record("first", "1", 0)), "what was removed is forgotten")

	b.docker("port", map[string]v1.Image{"registry.example/port:1": image(t)})
	records = func() []artifact.Metadata { return []artifact.Metadata{b.record("port", "2", 0)} }
	assert.Equal(t, 2, b.reading(3, records), "other content is another archive")
	assert.Equal(t, []string{"registry.example/port:1"}, b.told["port"].ServedAs)
}

// The same image under the same name is no quarrel, whoever brings it.
func TestOneImageInTwoArchives(t *testing.T) {
	b := newFixture(t)
	shared, more := image(t), image(t)
	b.docker("first", map[string]v1.Image{"registry.example/web:1": shared})
	b.docker("second", map[string]v1.Image{"registry.example/web:1": shared, "registry.example/more:1": more})
	both := func() []artifact.Metadata {
		return []artifact.Metadata{b.record("first", "1", 0), b.record("second", "2", 1)}
	}
	b.reading(1, both)
	assert.Equal(t, []string{"registry.example/web:1"}, b.told["first"].ServedAs)
	assert.Equal(t, []string{"registry.example/more:1", "registry.example/web:1"}, b.told["second"].ServedAs)
	puts := b.puts
	assert.Zero(t, b.reading(10, both))
	assert.Equal(t, puts, b.puts)
	b.reading(2, func() []artifact.Metadata { return both()[1:] })
	assert.NotEmpty(t, b.has("registry.example/web:1"), "the other one still has it")
	assert.NotEmpty(t, b.has("registry.example/more:1"))
	b.reading(1, func() []artifact.Metadata { return nil })
	assert.Empty(t, b.has("registry.example/web:1"))
}

// A registry that does not answer, or has no room, costs no reading of gigabytes every half a minute; and it
// is left alone for long enough to make room.
func TestAPushThatBreaksOffIsTriedLessAndLess(t *testing.T) {
	b := newFixture(t)
	b.docker("web", map[string]v1.Image{"registry.example/web:1": image(t)})
	records := func() []artifact.Metadata { return []artifact.Metadata{b.record("web", "1", 0)} }
	hour := func() int {
		before := b.reads
		for range 120 {
			assert.Error(t, b.pusher.Sync(t.Context(), records()))
			b.now = b.now.Add(30 * time.Second)
		}
		return b.reads - before
	}
	b.broken = true
	assert.Equal(t, 1, hour(), "for its names")
	b.broken, b.full = false, true
	assert.LessOrEqual(t, hour(), 10)
	assert.Empty(t, b.told)
	b.full = false
	b.now = b.now.Add(lastPause)
	assert.Equal(t, 1, b.reading(1, records))
	assert.Equal(t, []string{"registry.example/web:1"}, b.told["web"].ServedAs)
}

// What one owner calls an image is no matter of another's.
func TestTwoOwnersMayHaveOneName(t *testing.T) {
	b := newFixture(t)
	b.docker("first", map[string]v1.Image{"docker.io/library/nginx:1": image(t)})
	b.docker("second", map[string]v1.Image{"docker.io/library/nginx:1": image(t)})
	second := b.record("second", "2", 1)
	second.Owner = "beta"
	require.NoError(t, b.pusher.Sync(t.Context(), []artifact.Metadata{b.record("first", "1", 0), second}))
	for _, name := range []string{"first", "second"} {
		assert.Equal(t, []string{"docker.io/library/nginx:1"}, b.told[name].ServedAs, b.told[name].NotServed)
	}
	alphas := b.has("docker.io/library/nginx:1")
	assert.NotEmpty(t, alphas)

	second.ServedAs = b.told["second"].ServedAs
	require.NoError(t, b.pusher.Sync(t.Context(), []artifact.Metadata{second}))
	assert.Empty(t, b.has("docker.io/library/nginx:1"), "what its owner removed is still there")
}
