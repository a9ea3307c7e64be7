package concat

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// closing is a part that can be closed, and that writes itself.
type closing struct {
	*strings.Reader
	closed error
	wrote  int64
}

func (c *closing) Close() error { return c.closed }

func (c *closing) WriteN(w io.Writer, n int64) (int64, error) {
	done, err := io.CopyN(w, c.Reader, n)
	c.wrote += done
	return done, err
}

func TestPartsAreReadAsOneFile(t *testing.T) {
	const whole = "head|a file|tail"
	file := &closing{Reader: strings.NewReader("a file, and what follows"), closed: errors.New("stuck")}
	f := New(Bytes([]byte("head|")), Part{file, 6}, Bytes(nil), Bytes([]byte("|tail")))
	require.NoError(t, iotest.TestReader(f, []byte(whole)))
	assert.EqualValues(t, len(whole), f.Size())

	for from := range int64(len(whole) + 2) {
		for _, n := range []int64{1, 4, 7, 100} {
			_, err := f.Seek(from, io.SeekStart)
			require.NoError(t, err)
			var some bytes.Buffer
			wrote, err := f.WriteN(&some, n)
			require.NoError(t, err)
			rest := whole[min(from, int64(len(whole))):]
			assert.Equal(t, rest[:min(n, int64(len(rest)))], some.String(), "%d bytes from byte %d on", n, from)
			assert.EqualValues(t, some.Len(), wrote)
		}
	}
	assert.Positive(t, file.wrote, "a part that writes itself was copied")
	assert.ErrorContains(t, f.Close(), "stuck")
}

func TestAPartThatIsTooShortIsAnError(t *testing.T) {
	f := New(Part{strings.NewReader("short"), 9}, Bytes([]byte("tail")))
	text, err := io.ReadAll(f)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Equal(t, "short", string(text))

	_, err = f.Seek(2, io.SeekStart)
	require.NoError(t, err)
	n, err := f.WriteN(io.Discard, 9)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.EqualValues(t, 3, n)
}
