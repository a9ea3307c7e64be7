package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/appliance/sitedocument"
)

// TestAWrongSiteReplacesNothing: every mistake is named, and nothing is written.
func TestAWrongSiteReplacesNothing(t *testing.T) {
	var complaints bytes.Buffer
	written := ""
	write := sitedocument.Store{Write: func(text []byte, check func() error) error {
		written = string(text)
		return check()
	}}
	require.ErrorContains(t, replaceSite(&complaints, []byte("nmae: x\nclusterz: 3\n"), "", write), "as it was")
	assert.Empty(t, written)
	assert.Contains(t, complaints.String(), "site.yaml:1: nmae: unknown key")
	assert.Contains(t, complaints.String(), "site.yaml:2: clusterz")

	require.NoError(t, replaceSite(&complaints, []byte("name: rack-7\n"), "", write))
	assert.Equal(t, "name: rack-7\n", written)

	elsewhere := sitedocument.Digest([]byte("name: rack-8\n"))
	err := replaceSite(&complaints, []byte("name: rack-9\n"), elsewhere, write)
	assert.ErrorIs(t, err, sitedocument.ErrChanged, "the one that was edited is not there any more")
}

func TestASiteIsReadFromAFileOrFromStdin(t *testing.T) {
	path := filepath.Join(t.TempDir(), "site.yaml")
	require.NoError(t, os.WriteFile(path, []byte("name: file\n"), 0o600))
	text, err := readDocument(strings.NewReader("name: stdin\n"), path)
	require.NoError(t, err)
	assert.Equal(t, "name: file\n", string(text))
	text, err = readDocument(strings.NewReader("name: stdin\n"), "-")
	require.NoError(t, err)
	assert.Equal(t, "name: stdin\n", string(text))
	_, err = readDocument(strings.NewReader(""), "-")
	require.ErrorContains(t, err, "it is empty", "a pipe that broke would empty the site")
}
