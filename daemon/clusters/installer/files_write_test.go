package installer

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAFileOfANodeIsOnItsDiskBeforeItHasItsName runs the script with a sync and an mv that note when they are called.
func TestAFileOfANodeIsOnItsDiskBeforeItHasItsName(t *testing.T) {
	dir := t.TempDir()
	bin, log, path := filepath.Join(dir, "bin"), filepath.Join(dir, "log"), filepath.Join(dir, "deep", "file")
	require.NoError(t, os.Mkdir(bin, 0o755))
	for _, name := range []string{"sync", "mv"} {
		real, err := exec.LookPath(name)
		require.NoError(t, err)
		script := "#!/bin/sh\necho " + name + " \"$1\" >>" + log + "\nexec " + real + " \"$@\"\n"
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte(script), 0o755))
	}

	cmd := exec.Command("sh", "-euc", write, "sh", path, "640")
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	cmd.Stdin = strings.NewReader("content")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "content", string(text))
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.EqualValues(t, 0o640, info.Mode().Perm())
	order, err := os.ReadFile(log)
	require.NoError(t, err)
	assert.Equal(t, "sync "+path+".new\nmv "+path+".new\nsync "+filepath.Dir(path)+"\n", string(order))
}
