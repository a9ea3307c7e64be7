package sitesource

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSignaturesByOpenPGPAreChecked: those of one key, and no others.
func TestSignaturesByOpenPGPAreChecked(t *testing.T) {
	fleet, err := openpgp.NewEntity("fleet", "", "fleet@example", nil)
	require.NoError(t, err)
	mallory, err := openpgp.NewEntity("fleet", "", "fleet@example", nil)
	require.NoError(t, err)
	var public bytes.Buffer
	to, err := armor.Encode(&public, openpgp.PublicKeyType, nil)
	require.NoError(t, err)
	require.NoError(t, fleet.Serialize(to))
	require.NoError(t, to.Close())

	r := newGitServer(t)
	key := "          " + strings.ReplaceAll(strings.TrimSpace(public.String()), "\n", "\n          ")
	with := func(password, more string) string {
		text := r.document("rack-a", password, more)
		return strings.Replace(text, "    path:", "      verify:\n        - |\n"+key+"\n    path:", 1)
	}
	push := func(by *openpgp.Entity, number int) {
		r.write("sites/rack-a/site.yaml", with("[redacted]", "nodes:\n"+node(number)))
		r.git("add", "--all")
		repository, err := gogit.PlainOpen(r.dir)
		require.NoError(t, err)
		tree, err := repository.Worktree()
		require.NoError(t, err)
		who := &object.Signature{Name: "fleet", Email: "fleet@example", When: time.Now()}
		_, err = tree.Commit("change", &gogit.CommitOptions{Author: who, SignKey: by})
		require.NoError(t, err)
		r.git("push", "--quiet", "origin", "HEAD:main")
	}

	m := newMachine(t, with("first token", ""))
	push(fleet, 1)
	require.Contains(t, m.look(), ": current")
	push(mallory, 2)
	assert.Contains(t, m.look(), "no key of appliance.follow.git.verify has signed it: ")
	require.Len(t, m.site().Nodes, 1)
	assert.Equal(t, "node-1", string(m.site().Nodes[0].Name))
}
