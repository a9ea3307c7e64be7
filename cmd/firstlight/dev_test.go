package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/devpush"
	"firstlight.dev/firstlight/daemon/engine/remote"
	"firstlight.dev/firstlight/image/recipe"
)

// TestEveryProgramOfTheImageCanBePushedOrSaysWhyNot, and the appliance has it where the list says.
func TestEveryProgramOfTheImageCanBePushedOrSaysWhyNot(t *testing.T) {
	r, err := recipe.ReadFile("../../assets/recipe.yaml")
	require.NoError(t, err)
	pushed := map[string]bool{}
	for _, p := range devpush.Programs() {
		pushed[p.Build] = true
		if p.Image == "" {
			root, target := r.Root("appliance"), p.Path
			if link, isLink := root.Links[p.Path]; isLink {
				target = filepath.Join(filepath.Dir(p.Path), link)
			}
			assert.Equal(t, root.Programs[p.Build], target, p.Name)
			continue
		}
		for _, i := range r.Images {
			if i.Name == p.Image {
				assert.Equal(t, i.Programs[p.Build], p.Path, p.Name)
			}
		}
	}
	for _, p := range r.Programs {
		_, isElsewhere := devpush.Elsewhere()[p.Name]
		assert.NotEqual(t, pushed[p.Name], isElsewhere, "%s: it is pushed, or there is a reason why not", p.Name)
	}
	for name := range devpush.Elsewhere() {
		assert.NotNil(t, r.Program(name), name)
	}
}

func TestProgramsWithOneFileAreSentOnce(t *testing.T) {
	groups, err := groupPrograms([]string{"bpa", "baremetal-operator", "kpa"})
	require.NoError(t, err)
	var names [][]string
	for _, g := range groups {
		var of []string
		for _, p := range g {
			of = append(of, p.Name)
		}
		names = append(names, of)
	}
	assert.Equal(t, [][]string{{"bpa", "kpa"}, {"baremetal-operator"}}, names)

	for name, says := range map[string]string{
		"bap": "there is no program bap to push; there are firstlightd, registry, bpa, ", "etcd": "etcd cannot be pushed: ",
	} {
		_, err := groupPrograms([]string{name})
		assert.ErrorContains(t, err, says)
	}
}

func TestRevisionsOfPushesSayWhatDiffers(t *testing.T) {
	const commit = "0123456789abcdef0123456789abcdef01234567"
	assert.Equal(t, "0123456789ab", pushRevision(commit, false))
	assert.Equal(t, "0123456789ab+dirty", pushRevision(commit, true))
	assert.Equal(t, "unknown", pushRevision("", true))
}

// TestAProgramArrivesAsItIs, and whoever does not read it does not hang the one who sends.
func TestAProgramArrivesAsItIs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "program")
	content := bytes.Repeat([]byte("program"), 1<<20)
	require.NoError(t, os.WriteFile(file, content, 0o600))
	var got []byte
	to := target{run: func(_ context.Context, s remote.Streams, words ...string) error {
		z, err := zstd.NewReader(s.In)
		require.NoError(t, err)
		defer z.Close()
		got, err = io.ReadAll(z)
		assert.Equal(t, []string{"push"}, words)
		return err
	}}
	require.NoError(t, sendProgram(t.Context(), &cobra.Command{}, to, file, []string{"push"}))
	assert.True(t, bytes.Equal(content, got))

	refuse := target{run: func(context.Context, remote.Streams, ...string) error { return io.ErrClosedPipe }}
	assert.ErrorIs(t, sendProgram(t.Context(), &cobra.Command{}, refuse, file, nil), io.ErrClosedPipe)
}
