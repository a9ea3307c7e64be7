package vault

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestRotationsAreWhatSecretsAreReplacedBy: what the list of secrets names is there, and nothing else.
func TestRotationsAreWhatSecretsAreReplacedBy(t *testing.T) {
	var named, there []string
	for _, s := range Secrets() {
		for _, m := range regexp.MustCompile(`firstlightd rotate ([a-z-]+)`).FindAllStringSubmatch(s.Rotated, -1) {
			named = append(named, m[1])
		}
	}
	for _, r := range Rotations() {
		there = append(there, r.Name)
		assert.NotEmpty(t, r.What, r.Name)
		for line := range strings.Lines(r.About) {
			assert.LessOrEqual(t, len(strings.TrimSuffix(line, "\n")), 120, "%s: the command's help", r.Name)
		}
	}
	slices.Sort(named)
	assert.ElementsMatch(t, slices.Compact(named), there)
}
