package daemon

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/daemon/appliance/away"
	"firstlight.dev/firstlight/daemon/appliance/vault"
)

// TestTheListSaysWhatAnAwayCopyHas holds the two lists to each other.
func TestTheListSaysWhatAnAwayCopyHas(t *testing.T) {
	for _, s := range vault.Secrets() {
		has := s.Name == "site" // it is an entry of its own
		for _, file := range s.Files {
			for _, part := range away.Parts() {
				has = has || file == part.Path || strings.HasPrefix(file, part.Path+"/")
			}
		}
		assert.Equal(t, s.Away, has, s.Name)
	}
}
