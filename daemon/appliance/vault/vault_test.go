package vault

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPasswordIsHashedTheSameEveryTime(t *testing.T) {
	v := New(func() string { return "salt" })
	one, err := v.PasswordHash("correct horse")
	require.NoError(t, err)
	again, err := v.PasswordHash("correct horse")
	require.NoError(t, err)
	assert.Equal(t, one, again)
	assert.NotContains(t, one, "horse")
}
