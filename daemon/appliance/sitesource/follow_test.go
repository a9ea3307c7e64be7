package sitesource

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/status"
)

// node is a node of a site document.
func node(number int) string {
	return fmt.Sprintf("  - name: node-%d\n    macs: [\"52:54:00:00:00:%02d\"]\n    bmc: {address: redfish://10.0.0.%d/redfish/v1/Systems/1}\n",
		number, number, number)
}

const provisioning = `apiVersion: bpa.akraino.org/v1alpha1
kind: Provisioning
metadata:
  name: edge
  labels: {cluster: edge}
spec:
  masters: [{master-1: {mac-address: "52:54:00:00:00:01"}}]
`

// sops is what SOPS adds to a document that it encrypts.
const sops = `sops:
  age: [{recipient: age1yt3tfqlfrwdwx0z0ynwplcr6qxcxfaqycuprpmy89nr83ltx74tqdpszlw, enc: "-----BEGIN AGE ENCRYPTED FILE-----"}]
  lastmodified: "2026-11-29T17:00:00Z"
  mac: ENC[AES256_GCM,data:tVe4KO==,iv:1Q==,tag:rg==,type:str]
  version: 3.13.3
`

// fleet is two appliances that follow one source, and what they said of it.
type fleet struct {
	*gitServer
	a, b *machine
	said strings.Builder
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{gitServer: newGitServer(t)}
	f.a = newMachine(t, f.document("rack-a", "first token", ""))
	f.b = newMachine(t, f.document("rack-b", "first token", ""))
	return f
}

// writeSites writes both documents with more in them.
func (f *fleet) writeSites(more string) {
	for _, name := range []string{"rack-a", "rack-b"} {
		f.write("sites/"+name+"/site.yaml", f.document(name, "[redacted]", more))
	}
}

// tell has both look at the source, and writes down what each says after what was done.
func (f *fleet) tell(done string) {
	f.t.Helper()
	fmt.Fprintf(&f.said, "# %s\n", done)
	for i, m := range []*machine{f.a, f.b} {
		said := strings.TrimPrefix(f.generalize(m.look()), "source        ")
		fmt.Fprintf(&f.said, "rack-%c: %s\n", 'a'+i, said)
		if changes := m.Status().Changes; len(changes) > 0 {
			fmt.Fprintf(&f.said, "              changed: %s\n", strings.Join(changes, "; "))
		}
	}
	f.said.WriteString("\n")
}

// generalize replaces the address and the hashes of this run by those of a transcript.
func (r *gitServer) generalize(text string) string {
	for i, hash := range r.commits {
		name := fmt.Sprintf("commit%d", i+1)
		text = strings.NewReplacer(hash, name, hash[:12], name).Replace(text)
	}
	return strings.ReplaceAll(text, strings.TrimSuffix(r.url, "/sites.git"), "https://git.example")
}

func TestTwoAppliancesFollowOneSource(t *testing.T) {
	f := newFleet(t)
	f.writeSites("nodes:\n" + node(1))
	f.write("sites/rack-a/edge.yaml", provisioning)
	f.push("a node and a cluster")
	f.tell("A node for both racks, and a Provisioning for rack-a, are pushed.")
	assert.Equal(t, []string{"Provisioning default/edge"}, f.a.objects)
	assert.Empty(t, f.b.objects)

	f.b.linked = false
	f.writeSites("nodes:\n" + node(1) + node(2))
	f.push("another node")
	f.tell("A second node is pushed while rack-b has no link.")
	assert.Len(t, f.a.site().Nodes, 2)
	assert.Len(t, f.b.site().Nodes, 1)
	lost := f.b.Status().Behind
	f.b.look()
	f.b.now = f.a.now
	assert.Equal(t, lost, f.b.Status().Behind, "since when it does not know")

	f.b.linked = true
	f.tell("rack-b has its link again.")
	assert.Len(t, f.b.site().Nodes, 2)

	before := f.a.text()
	f.writeSites("nodes:\n" + strings.ReplaceAll(node(1), "52:54:00:00:00:01", "52:54:00"))
	f.push("a MAC that is none")
	f.tell("A document with a mistake is pushed for both.")
	for _, m := range []*machine{f.a, f.b} {
		assert.Equal(t, status.SourceRefused, m.Status().State)
		assert.Len(t, m.site().Nodes, 2, "the document of before holds")
	}
	assert.Equal(t, before, f.a.text())
	assert.Equal(t, []string{"Provisioning default/edge"}, f.a.objects)

	f.writeSites("nodes:\n" + node(1) + node(2) + node(3))
	require.NoError(t, os.Remove(filepath.Join(f.dir, "sites/rack-a/edge.yaml")))
	good := f.push("three nodes, no cluster")
	f.tell("The mistake is corrected, a third node added, and the Provisioning taken out.")
	assert.Empty(t, f.a.objects)
	assert.Len(t, f.b.site().Nodes, 3)

	f.git("reset", "--quiet", "--hard", f.commits[0])
	f.write("sites/rack-a/site.yaml", f.document("rack-a", "[redacted]", ""))
	f.push("another history")
	f.tell("Somebody pushes another history by force, without the nodes of rack-a.")
	assert.Len(t, f.a.site().Nodes, 3)

	f.git("merge", "--quiet", "--strategy=ours", "--message", "take it up", good)
	f.git("checkout", "--quiet", good, "--", ".")
	f.push("as it was")
	f.tell("A commit that descends from what is applied takes it up again.")
	assert.Len(t, f.a.site().Nodes, 3)
	assert.Equal(t, status.SourceCurrent, f.a.Status().State)

	f.password.Store("second token")
	f.tell("The token of both is revoked.")
	assert.Len(t, f.a.site().Nodes, 3)

	for _, m := range []*machine{f.a, f.b} {
		text := strings.ReplaceAll(m.text(), `"first token"`, `"second token"`)
		problems, err := m.store.Replace([]byte(text), "")
		require.NoError(t, err)
		require.Empty(t, problems)
	}
	f.tell("Both get the new one by firstlightd site replace.")
	goldentest.CheckPart(t, "../../../docs/sites.md", "transcript", "```\n"+strings.TrimSpace(f.said.String())+"\n```\n")
}

// TestWhatASourceMustNotDecide: each is refused with what to do, and changes nothing.
func TestWhatASourceMustNotDecide(t *testing.T) {
	r := newGitServer(t)
	good := r.document("rack-a", "[redacted]", "nodes:\n"+node(1))
	for says, files := range map[string]map[string]string{
		"has a secret in the clear at /appliance/follow/git/password": {
			"site.yaml": r.document("rack-a", "first token", "")},
		"name: this appliance is of site rack-a, and the document of rack-b": {
			"site.yaml": strings.ReplaceAll(r.document("rack-b", "[redacted]", ""), "sites/rack-b", "sites/rack-a")},
		"appliance.follow: it is not as on the appliance": {
			"site.yaml": strings.Replace(good, "path: sites/rack-a", "path: sites/rack-a\n    interval: 1h", 1)},
		"appliance.follow: it is not as on the appliance ": {"site.yaml": "name: rack-a\n"},
		"overwrite of node-1: a person consents on the appliance": {
			"site.yaml": good + "    overwrite: true\n"},
		"nodes[0].bmc.password: \"[redacted]\" stands for a secret": {
			"site.yaml": strings.Replace(good, "/Systems/1}", "/Systems/1, username: u, password: \"[redacted]\"}", 1)},
		"site.yaml is no YAML": {"site.yaml": "name: [rack-a"},
		`pod.yaml: kind "Pod" of "v1" is none that an appliance takes from a source`: {
			"site.yaml": good, "pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"},
		`secret.yaml: kind "Secret" of "v1" is none that an appliance takes from a source`: {
			"site.yaml": good, "secret.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n"},
		"more/b.yml: Provisioning default/edge is in a.yaml already": {
			"site.yaml": good, "a.yaml": provisioning, "more/b.yml": provisioning},
		"a.yaml: a Provisioning has no metadata.name": {
			"site.yaml": good, "a.yaml": strings.Replace(provisioning, "  name: edge\n", "", 1)},
		"site.yaml is encrypted with SOPS": {
			"site.yaml": strings.Replace(good, "\"[redacted]\"", "ENC[AES256_GCM,data:p673w==,iv:YY=,tag:UQ==,type:str]", 1) + sops},
		"edge.yaml is encrypted with SOPS": {
			"site.yaml": good, "edge.yaml": "apiVersion: ENC[AES256_GCM,data:a/b/c==,iv:YY=,tag:UQ==,type:str]\nkind: ENC[]\n" + sops},
		"it has no file *.yaml in folder sites/rack-a": {"README": "nothing"},
		"big.yaml: an appliance reads 500 files of a source, each of 1024 KiB at most": {
			"site.yaml": good, "big.yaml": "# " + strings.Repeat("x", maxFileSize)},
	} {
		t.Run(says, func(t *testing.T) {
			require.NoError(t, os.RemoveAll(filepath.Join(r.dir, "sites")))
			for name, text := range files {
				r.write("sites/rack-a/"+name, text)
			}
			r.push(says)
			m := newMachine(t, r.document("rack-a", "first token", ""))
			before := m.text()

			said := m.look()
			assert.Contains(t, said, strings.TrimSpace(says))
			assert.NotContains(t, said, "first token")
			assert.NotContains(t, said, "bmc secret")
			assert.Equal(t, status.SourceRefused, m.Status().State)
			assert.Equal(t, before, m.text())
			assert.Zero(t, m.applied)
		})
	}
}

// TestSignaturesAreChecked of the last commit, by SSH keys.
func TestSignaturesAreChecked(t *testing.T) {
	r := newGitServer(t)
	keys := t.TempDir()
	for _, name := range []string{"fleet", "mallory"} {
		r.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", filepath.Join(keys, name))
	}
	public, err := os.ReadFile(filepath.Join(keys, "fleet.pub"))
	require.NoError(t, err)
	sign := func(name string) []string {
		if name == "" {
			return nil
		}
		return []string{"--gpg-sign=" + filepath.Join(keys, name)}
	}
	r.git("config", "gpg.format", "ssh")
	with := func(password, more string) string {
		text := r.document("rack-a", password, more)
		return strings.Replace(text, "    path:", "      verify: [\""+strings.TrimSpace(string(public))+"\"]\n    path:", 1)
	}

	m := newMachine(t, with("first token", ""))
	for number, c := range []struct{ by, says string }{
		{"", "no key of appliance.follow.git.verify has signed it: it is not signed"},
		{"fleet", ""},
		{"mallory", "no key of appliance.follow.git.verify has signed it: "},
		{"", "it is not signed"},
	} {
		nodes := len(m.site().Nodes)
		r.write("sites/rack-a/site.yaml", with("[redacted]", "nodes:\n"+node(number+1)))
		r.push("change", sign(c.by)...)
		said := m.look()
		if c.says == "" {
			require.Contains(t, said, ": current")
			assert.Equal(t, fmt.Sprintf("node-%d", number+1), string(m.site().Nodes[0].Name))
			continue
		}
		assert.Contains(t, said, c.says)
		assert.Len(t, m.site().Nodes, nodes)
	}
}

// TestWhatIsNotAppliedYetIsTriedAgain: the site does not wait for the API, and objects are applied when it answers.
func TestWhatIsNotAppliedYetIsTriedAgain(t *testing.T) {
	r := newGitServer(t)
	m := newMachine(t, r.document("rack-a", "first token", ""))
	m.refuses = errNoAPI
	r.write("sites/rack-a/site.yaml", r.document("rack-a", "[redacted]", "nodes:\n"+node(1)))
	r.write("sites/rack-a/edge.yaml", provisioning)
	hash := r.push("both")
	assert.Contains(t, m.look(), ": working")
	assert.Len(t, m.site().Nodes, 1)
	assert.Equal(t, errNoAPI.Error(), m.Status().Error)
	since := m.Status().Behind

	m.refuses = refusal{errors.New("apply Provisioning default/edge: no")}
	assert.Contains(t, m.look(), ": refused")
	assert.Equal(t, since, m.Status().Behind)

	m.refuses = nil
	assert.Contains(t, m.look(), ": current\n              applied: main@sha1:"+hash)
	assert.Equal(t, []string{"Provisioning default/edge"}, m.objects)
	assert.True(t, m.Status().Behind.IsZero())

	require.NoError(t, Forget(m.Path))
	m.held, m.heldFor = Answer{}, Request{}
	assert.Contains(t, m.look(), ": current", "as after a start without the record")
	assert.Equal(t, 2, m.applied)
}

// TestASourceThatIsTooLargeTakesNoMemory of the appliance: the process that reads it ends.
func TestASourceThatIsTooLargeTakesNoMemory(t *testing.T) {
	r := newGitServer(t)
	m := newMachine(t, r.document("rack-a", "first token", ""))
	m.Fetch = Process{Command: []string{"/proc/self/exe", fetchArgument}, Memory: 160 << 20}.Fetch
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, "zeros"), make([]byte, 128<<20), 0o600))
	r.write("sites/rack-a/site.yaml", r.document("rack-a", "[redacted]", ""))
	r.push("zeros")
	said := m.look()
	assert.Contains(t, said, ": lost")
	assert.Contains(t, said, "the process that reads the source ended, which it does if the source is too large")
}
