package ca

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAServersFilesAreReadEveryTenMinutes and no more often: whoever signs by then has signed what is served.
func TestAServersFilesAreReadEveryTenMinutes(t *testing.T) {
	dir := t.TempDir()
	authority, err := Open(dir, at(day))
	require.NoError(t, err)
	s := &Server{Authority: func() (*Authority, error) { return authority, nil }, Names: ironic()}
	first, err := s.Certificate(nil)
	require.NoError(t, err)
	now, err := s.Issue()
	require.NoError(t, err)
	assert.Equal(t, first.Certificate, now.Certificate)

	require.NoError(t, os.Remove(filepath.Join(dir, "ironic.crt")))
	again, err := s.Certificate(nil)
	require.NoError(t, err)
	assert.Equal(t, first, again)
	s.issued = time.Now().Add(-servedFor)
	renewed, err := s.Certificate(nil)
	require.NoError(t, err)
	assert.NotEqual(t, first.Certificate, renewed.Certificate)

	s.Authority = func() (*Authority, error) { return nil, os.ErrPermission }
	_, err = s.Certificate(nil)
	require.NoError(t, err, "it is served without its files")
	s.issued = time.Now().Add(-servedFor)
	_, err = s.Certificate(nil)
	assert.ErrorIs(t, err, os.ErrPermission)
}
