package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/appliance/workstation"
	"firstlight.dev/firstlight/daemon/engine/remote/sshtest"
)

// newEdited is an appliance whose site.yaml is a file, and which takes no document with the key wrong.
func newEdited(t *testing.T) *sshtest.Node {
	_, key := sshtest.UseNewHome(t)
	n := sshtest.New(t)
	n.AuthorizeKey(key)
	n.Put("site.yaml", "name: rack-7\n")
	n.PutProgram("firstlightd", `case "$1 $2" in
"site show") cat $DIR/site.yaml ;;
"site replace")
	[ "$3 $5" = "--was -" ] || exit 2
	cat >$DIR/new.yaml
	grep -q wrong $DIR/new.yaml && { echo "site.yaml:1: wrong: unknown key" >&2; exit 1; }
	[ "$4" = "$(sha256sum <$DIR/site.yaml | cut -d ' ' -f 1)" ] || { echo "another one meanwhile" >&2; exit 1; }
	mv $DIR/new.yaml $DIR/site.yaml; echo "site.yaml is replaced and in effect" ;;
esac`)
	store, err := workstation.UserStore()
	require.NoError(t, err)
	appliance, err := store.Prepare(fmt.Sprintf("%s:%d", n.Addr, n.Port), "")
	require.NoError(t, err)
	c, err := store.Connect(t.Context(), appliance, func(string) {})
	require.NoError(t, err)
	c.Close()
	require.NoError(t, store.Save(appliance))
	return n
}

// TestASiteIsEditedFromAWorkstation: with the editor that is named there. What is not taken can be edited again, and is
// not lost; no password stays behind otherwise.
func TestASiteIsEditedFromAWorkstation(t *testing.T) {
	// The second time that an editor is opened, it corrects what it wrote at first.
	const twice = `sh -c 'grep -q wrong "$1" && sed -i s/wrong/name/ "$1" || sed -i s/name/wrong/ "$1"
sed -i s/rack-7/rack-8/ "$1"' sh`
	const wrong = "sed -i s/name/wrong/"
	for _, c := range []struct {
		name, editor, answer string
		says                 string // on standard output, in complaints or as the error
		is                   string // the name in the document then
		kept                 string // what of the text is left on the workstation
	}{
		{"changed", "sed -i s/rack-7/rack-8/", "", "replaced and in effect", "name: rack-8", ""},
		{"as it was", "true", "", "site.yaml is as it was", "name: rack-7", ""},
		{"wrong at first", twice, "y\n", "site.yaml:1: wrong: unknown key", "name: rack-8", ""},
		{"wrong, and left so", wrong, "n\n", "with the passwords of the site: remove it", "name: rack-7", "wrong: rack-7"},
		{"wrong, and no one answers", wrong, "", "Edit it again?", "name: rack-7", "wrong: rack-7"},
		{"an editor that fails", "sed --nothing", "", "EDITOR names another one", "name: rack-7", "name: rack-7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newEdited(t)
			private := t.TempDir()
			t.Setenv("XDG_RUNTIME_DIR", private)
			t.Setenv("VISUAL", "")
			t.Setenv("EDITOR", c.editor)
			out, complaints, err := command(t, c.answer, "site", "edit")
			assert.Contains(t, fmt.Sprint(out, complaints, err), c.says)
			assert.Equal(t, c.kept != "", err != nil, err)
			assert.Equal(t, c.is, n.Get("site.yaml"))

			left, err := filepath.Glob(filepath.Join(private, "*", "site.yaml"))
			require.NoError(t, err)
			require.Len(t, left, strings.Count(c.kept, ":"))
			for _, file := range left {
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				assert.Equal(t, c.kept, strings.TrimSpace(string(text)))
				for path, mode := range map[string]os.FileMode{file: 0o600, filepath.Dir(file): 0o700} {
					info, err := os.Stat(path)
					require.NoError(t, err)
					assert.Equal(t, mode, info.Mode().Perm(), "others do not read it")
				}
			}
		})
	}
}

// TestASiteThatWasReplacedMeanwhileIsNotLost: neither what somebody else applied, nor what was typed.
func TestASiteThatWasReplacedMeanwhileIsNotLost(t *testing.T) {
	n := newEdited(t)
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	t.Setenv("VISUAL", "echo name: theirs >"+filepath.Join(n.Dir, "site.yaml")+"; sed -i s/rack-7/mine/")
	_, complaints, err := command(t, "", "site", "edit")
	require.Error(t, err)
	assert.Contains(t, complaints, "another one meanwhile")
	assert.Equal(t, "name: theirs", n.Get("site.yaml"))
	assert.Contains(t, err.Error(), "what you typed is in ")
}
