package plan

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Each step asks for a revision; one with a '!' is not completed. What is wanted is the operation, "" for none.
func TestOperations(t *testing.T) {
	for name, c := range map[string]struct{ asked, want string }{
		"upgrade and rollback":          {"1 1 2 2 1 1 2", "install  upgrade  rollback  upgrade"},
		"two back":                      {"1 2 3 1 3", "install upgrade upgrade rollback upgrade"},
		"interrupted":                   {"1! 1! 1 1", "install install install "},
		"never installed":               {"1! 2! 2", "install install install"},
		"an upgrade that failed":        {"1 2! 1 2", "install upgrade rollback upgrade"},
		"an upgrade after one that did": {"1 2! 3", "install upgrade upgrade"},
		"removed in between":            {"1 - 1", "install uninstall install"},
	} {
		var r Release
		var got []string
		for _, step := range strings.Fields(c.asked) {
			revision, stays := strings.CutSuffix(step, "!")
			if revision == "-" {
				r, stays = r.BeginUninstall(), true
			} else {
				r = r.Begin(revision)
			}
			if r.Operation == nil {
				got = append(got, "")
				continue
			}
			got = append(got, r.Operation.Name)
			if !stays {
				r = r.Complete()
			}
		}
		assert.Equal(t, c.want, strings.Join(got, " "), name)
	}
}

func TestAnOperationKnowsWhatRanInIt(t *testing.T) {
	r := Release{}.Begin("1").MarkDone("a")
	assert.True(t, r.IsDone("a"))
	assert.False(t, r.IsDone("b"))
	assert.Equal(t, r, r.Begin("1"), "it continues")
	next := r.Complete().Begin("2")
	assert.False(t, next.IsDone("a"))
	assert.Equal(t, r.Serial+1, next.Serial)

	for i := range 30 {
		next = next.Begin(strings.Repeat("x", i+1)).Complete()
	}
	assert.Len(t, next.Installed, maxInstalled)
}
