package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestABundleOverwritesNothing(t *testing.T) {
	name := filepath.Join(t.TempDir(), "bundle.tar.gz")
	write := func(text string) error {
		_, err := writeAtomically(name, func(w io.Writer) error { _, err := io.WriteString(w, text); return err })
		return err
	}
	require.NoError(t, write("first"))
	assert.ErrorContains(t, write("second"), name+" exists; name another file, or remove it")
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	assert.Equal(t, "first", string(text))
	left, err := filepath.Glob(filepath.Join(filepath.Dir(name), ".bundle-*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestABundleIsNotForAScreen(t *testing.T) {
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo terminal: ", err)
	}
	defer screen.Close()
	cmd := newBundleCommand()
	cmd.SetArgs([]string{"-"})
	cmd.SetOut(screen)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	assert.ErrorContains(t, cmd.Execute(), "an archive is not for a screen; redirect it")

	file, err := os.Create(filepath.Join(t.TempDir(), "x"))
	require.NoError(t, err)
	defer file.Close()
	assert.False(t, isTerminal(file))
}
