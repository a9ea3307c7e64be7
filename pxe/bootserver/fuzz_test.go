package bootserver_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// FuzzPath: no path reaches a file that was not put there, panics, or redirects.
func FuzzPath(f *testing.F) {
	for _, seed := range []string{"/", "//f", "/f", "/../f", "/./f", "/boot/", "/ipxe/", "/ipxe/52-54-00-00-00-01", "/\x00", "/f/", "/a\\..\\b", "/" + strings.Repeat("../", 50), "/dir/..;/f"} {
		f.Add(seed)
	}
	b := newFixture(f)
	b.Log = discard()
	b.write(f, "f", []byte("the file"))
	f.Fuzz(func(t *testing.T, path string) {
		answer := b.get(path)
		assert.Contains(t, []int{200, 400, 403, 404}, answer.Code)
		assert.Empty(t, answer.Header().Get("Location"))
		if answer.Code == 200 && !strings.HasPrefix(answer.Body.String(), "#!ipxe") {
			assert.Equal(t, "the file", answer.Body.String())
		}
		assert.NotContains(t, answer.Body.String(), b.web)
	})
}
