package mountinfo

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestUnescape(t *testing.T) {
	assert.Equal(t, "/media/a b\tc\nd\\040", Unescape(`/media/a\040b\011c\012d\134040`))
}
