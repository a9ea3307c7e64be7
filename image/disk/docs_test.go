package disk_test

import (
	"cmp"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/image/verify/closure"
)

// TestDocsNamePartitionsAndRules holds docs/disk.md to the code.
func TestDocsNamePartitionsAndRules(t *testing.T) {
	text, err := os.ReadFile("../../docs/disk.md")
	require.NoError(t, err)
	l, err := someStick(t).Layout()
	require.NoError(t, err)
	for i, p := range l.Partitions {
		assert.Contains(t, string(text), fmt.Sprintf("| %d | %s | `%s` |", cmp.Or(p.Number, i+1), p.Name, p.Type))
	}
	assert.Contains(t, string(text), fmt.Sprintf("| 6 | %s | `%s` | not in the image", stick.PartitionData, gpt.TypeLinux))
	for _, f := range closure.Finders() {
		assert.Contains(t, string(text), "\n| "+f.Name+" | ")
	}
}
