package installer

import (
	"context"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fakeShell writes down what it is asked to run, and answers what a test wants.
type fakeShell struct {
	ran    []string // words, one blank between
	answer func(line string) (string, error)
}

func (s *fakeShell) Run(_ context.Context, _ io.Reader, name string, args ...string) (string, error) {
	line := strings.Join(append([]string{name}, args...), " ")
	s.ran = append(s.ran, line)
	if s.answer == nil {
		return "", nil
	}
	return s.answer(line)
}

func (s *fakeShell) Script(ctx context.Context, text string, args ...string) (string, error) {
	return s.Run(ctx, nil, "sh", append([]string{"-euc", text, "sh"}, args...)...)
}

func (s *fakeShell) Secret(ctx context.Context, name string, args ...string) (string, error) {
	return s.Run(ctx, nil, name, args...)
}

func (s *fakeShell) Local() netip.Addr { return netip.MustParseAddr("172.22.0.1") }

// running are the lines that have a word in them.
func (s *fakeShell) running(word string) (lines []string) {
	for _, l := range s.ran {
		if strings.Contains(l, word) {
			lines = append(lines, l)
		}
	}
	return lines
}

func TestKubeadmKeepsItsTokenToItself(t *testing.T) {
	s := &fakeShell{}
	n := &node{Node: made("m-1", "172.22.0.11", true, true), cluster: &cluster{Settings: edge, dir: t.TempDir(), record: &record{}}, shell: s, known: usual}
	n.cluster.nodes = []*node{n}
	require.NoError(t, n.initDo(t.Context(), func(string) {}))
	lines := s.running("kubeadm init")
	require.Len(t, lines, 1)
	assert.Contains(t, lines[0], "--skip-token-print", "what kubeadm prints is in the node's log")
}

func TestLogsAreForRootAndBounded(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log", "w-1.log")
	i := &Installer{config: Config{Dir: dir}}
	say := func(text string) {
		w, err := i.logTo("w-1")
		require.NoError(t, err)
		_, err = io.WriteString(w, text)
		require.NoError(t, err)
		i.Close()
		i.close = nil
	}
	say("first\n")
	require.NoError(t, os.Chmod(path, 0o644)) // as an earlier release left it
	say("second\n")
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "first\nsecond\n", string(text), "a run that goes on begins a new log")

	for range 2 {
		require.NoError(t, os.Truncate(path, maxLog+1))
		say("third\n")
	}
	text, err = os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "third\n", string(text))
	all, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	assert.Len(t, all, 2, "the log and its former life")
}
