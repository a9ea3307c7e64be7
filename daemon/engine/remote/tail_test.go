package remote

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTailIsBounded(t *testing.T) {
	var b tail
	for range 3 {
		b.Write(bytes.Repeat([]byte("x"), maxOutput-1))
	}
	b.Write(append(bytes.Repeat([]byte("y"), 2*maxOutput), 'z'))
	assert.Len(t, b.Bytes(), maxOutput)
	assert.True(t, bytes.HasSuffix(b.Bytes(), []byte("yz")))
}
