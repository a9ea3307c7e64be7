package gobuild

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCounter reads what go build -v prints, whole and in single bytes.
func TestCounter(t *testing.T) {
	cases := []struct {
		name, text string
		stale      []string // asked for after the text; nil for never
		want       State
		complaints string
	}{
		{name: "nothing"},
		{name: "modules", text: "go: downloading example.org/x v1.0.0\ngo: downloading example.org/y v1.0.0\n",
			want: State{Fetched: 2}, complaints: "go: downloading example.org/x v1.0.0\ngo: downloading example.org/y v1.0.0\n"},
		{name: "nobody knows of how many", text: "internal/goarch\nvendor/golang.org/x/net/idna\n", want: State{Done: 2}},
		{name: "a package compiled meanwhile", text: "errors\nio\n", stale: []string{"io", "os", "example.org/x"}, want: State{Done: 2, All: 4}},
		{name: "the last one", text: "errors\nio\nexample.org/x\n", stale: []string{"example.org/x"}, want: State{Done: 3, All: 3, Linking: true}},
		{name: "one was as before after all", text: "errors\nexample.org/x\n", stale: []string{"io", "example.org/x"}, want: State{Done: 3, All: 3, Linking: true}},
		{name: "a mistake", text: "example.org/x\n# example.org/x\n./main.go:3:1: syntax error: x\nnote: module requires Go 1.99",
			want: State{Done: 1}, complaints: "# example.org/x\n./main.go:3:1: syntax error: x\nnote: module requires Go 1.99"},
	}
	for _, c := range cases {
		for _, size := range []int{len(c.text), 1} {
			var complaints strings.Builder
			counted := counter{complaints: &complaints}
			for text := c.text; text != ""; text = text[size:] {
				_, err := io.WriteString(&counted, text[:size])
				require.NoError(t, err)
			}
			require.NoError(t, counted.Close())
			if c.stale != nil {
				counted.expect(c.stale)
			}
			assert.Equal(t, c.want, counted.state(), c.name)
			assert.Equal(t, c.complaints, complaints.String(), c.name)
		}
	}
}

func TestCounterKnowsFromTheBeginning(t *testing.T) {
	counted := counter{complaints: io.Discard}
	counted.expect([]string{"errors", "example.org/x"})
	assert.Equal(t, State{All: 2}, counted.state())
	_, err := io.WriteString(&counted, "errors\nio\n")
	require.NoError(t, err)
	assert.Equal(t, State{Done: 2, All: 3}, counted.state(), "io was not expected")
	_, err = io.WriteString(&counted, "example.org/x\n")
	require.NoError(t, err)
	assert.Equal(t, State{Done: 3, All: 3, Linking: true}, counted.state())
}
