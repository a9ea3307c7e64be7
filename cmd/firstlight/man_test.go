package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestManPages(t *testing.T) {
	at := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	files, err := manPages(newRootCommand(), "1.2.3", at)
	require.NoError(t, err)
	pages := map[string]string{}
	for _, f := range files {
		r, err := gzip.NewReader(bytes.NewReader(f.Content))
		require.NoError(t, err)
		text, err := io.ReadAll(r)
		require.NoError(t, err)
		pages[f.Debian] = string(text)
	}
	flash := pages["usr/share/man/man1/firstlight-flash.1.gz"]
	assert.Contains(t, flash, `.TH "FIRSTLIGHT-FLASH" "1" "Nov 2026" "firstlight 1.2.3" "Firstlight"`)
	assert.Contains(t, flash, "--force-device")
	assert.Contains(t, pages, "usr/share/man/man1/firstlight.1.gz")
	assert.Contains(t, pages, "usr/share/man/man1/firstlight-lab-up.1.gz")
	assert.NotContains(t, pages, "usr/share/man/man1/firstlight-lab-supervise.1.gz", "nobody calls it")

	again, err := manPages(newRootCommand(), "1.2.3", at)
	require.NoError(t, err)
	assert.Equal(t, files, again, "the same pages are the same bytes")
}
