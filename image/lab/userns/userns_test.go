package userns

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSubordinateIDsAreRead(t *testing.T) {
	file := "# by hand\nsomeone:100000:65536\nwalker:165536:1000\n1000:200000:64536\nwalker:x:1\nwalker:1:0\nwalker:5\n\n"
	ranges, err := parseRanges(strings.NewReader(file), []string{"1000", "walker"})
	require.NoError(t, err)
	assert.Equal(t, []Range{{165536, 1000}, {200000, 64536}}, ranges)
	assert.Equal(t, LeastIDs, Amount(ranges))
	assert.Equal(t, "0 1000 1 1 165536 1000 1001 200000 64536", strings.Join(mappingWords(1000, ranges), " "))

	none, err := parseRanges(strings.NewReader(file), []string{"1001", "nobody"})
	require.NoError(t, err)
	assert.Empty(t, none)
}

func TestAUserNamespaceIsKnownByItsIDs(t *testing.T) {
	assert.True(t, isInitialMap("         0          0 4294967295\n"))
	assert.False(t, isInitialMap("         0       1000          1\n         1     100000      65536\n"))
	assert.False(t, isInitialMap(""))

	const users = "         0       1000          1\n         1     100000      65536\n"
	for id, want := range map[int]int{0: 1000, 1: 100000, 65536: 165535, 65537: 65537} {
		assert.Equal(t, want, outsideID(id, users), id)
	}
	assert.Equal(t, 1000, outsideID(1000, "         0          0 4294967295\n"))
}

func TestStagesNeedAProgram(t *testing.T) {
	assert.ErrorContains(t, Main([]string{"firstlight"}, StageMake, nil), "no program is named")
	assert.ErrorContains(t, Main([]string{"firstlight"}, "sleep", []string{"true"}), "no stage sleep")
	assert.Equal(t, []string{"firstlight", "try", "make", "--", "id", "-u"}, Wrap([]string{"firstlight", "try"}, "id", "-u"))
}
