package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/site"
)

const siteData = "../../assets/site/"

// command runs one command line and returns what it printed.
func command(t *testing.T, stdin string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, problems bytes.Buffer
	root := newRootCommand()
	root.SetArgs(args)
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&problems)
	err = root.Execute()
	return out.String(), problems.String(), err
}

func TestSiteValidate(t *testing.T) {
	out, _, err := command(t, "", "site", "validate", siteData+"testdata/valid/full.yaml", siteData+"testdata/valid/small.yaml")
	require.NoError(t, err)
	assert.Equal(t, siteData+"testdata/valid/full.yaml: ok: 5 nodes and up to 4 discovered, 3 clusters\n"+
		siteData+"testdata/valid/full.yaml: without a BMC: node-4: a person switches each on, twice in all\n"+siteData+"testdata/valid/small.yaml: ok: 1 node, 1 cluster\n", out)

	wrong := siteData + "testdata/wrong/05-bmc.yaml"
	out, _, err = command(t, "", "site", "validate", wrong)
	require.EqualError(t, err, "7 problems in 1 file")
	assert.Contains(t, out, wrong+`:4: nodes[0].bmc.address: scheme "http" is not a BMC; use redfish:// or ipmi://`+"\n")
	assert.Equal(t, 7, strings.Count(out, "\n"))

	out, _, err = command(t, "nam: x", "site", "validate", "-o", "json", "-")
	require.Error(t, err)
	var problems []map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &problems))
	assert.Equal(t, []map[string]any{{"file": "stdin", "line": 1.0, "path": "nam", "message": "unknown key; did you mean name?"}}, problems)

	out, _, err = command(t, "", "site", "validate", "-o", "json", "-")
	require.NoError(t, err)
	assert.JSONEq(t, "[]", out)
}

// TestTheReadmeShowsAMistake is what README.md says that a wrong file prints.
func TestTheReadmeShowsAMistake(t *testing.T) {
	readme, err := filepath.Abs("../../README.md")
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	const wrong = "name: rack-7\nnodes:\n  - name: node-1\n    bmc: {address: \"http://10.0.0.1\", username: admin, password: secret}\n"
	require.NoError(t, os.WriteFile("site.yaml", []byte(wrong), 0o600))
	out, complaints, err := command(t, "", "site", "validate", "site.yaml")
	require.Error(t, err)
	assert.Empty(t, complaints)
	printed := "$ bin/firstlight site validate site.yaml\n" + out + "firstlight site validate: " + err.Error() + "\n"
	goldentest.CheckBlock(t, readme, "validate", printed)
}

// TestSiteValidateNamesWhoNeedsAPerson: a server without a BMC is accepted, and its owner should know what that means.
func TestSiteValidateNamesWhoNeedsAPerson(t *testing.T) {
	var nodes strings.Builder
	nodes.WriteString("nodes:\n")
	for i := range 5 {
		fmt.Fprintf(&nodes, "- {name: dark-%d, macs: ['52:54:00:00:00:0%d']}\n", i, i)
	}
	nodes.WriteString("- {name: plain, bmc: {address: 'ipmi://10.0.0.1', username: a, password: b}}\n")
	out, _, err := command(t, nodes.String(), "site", "validate", "-")
	require.NoError(t, err)
	assert.Contains(t, out, ": ok: 6 nodes, 0 clusters\n")
	assert.Contains(t, out, ": without a BMC: dark-0, dark-1, dark-2 and 2 more: a person switches each on, twice in all\n")
	assert.Contains(t, out, ": without a MAC: plain: found by the address of its BMC\n")
}

// TestSiteValidateLooksAtEveryFile: one that cannot be read hides no other.
func TestSiteValidateLooksAtEveryFile(t *testing.T) {
	wrong, absent := siteData+"testdata/wrong/05-bmc.yaml", filepath.Join(t.TempDir(), "absent")
	out, _, err := command(t, "", "site", "validate", siteData+"testdata/valid/small.yaml", absent, wrong)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, absent)
	require.ErrorContains(t, err, "7 problems in 3 files")
	assert.Contains(t, out, "small.yaml: ok: 1 node, 1 cluster\n")
	assert.Contains(t, out, wrong+":4: ")

	var many strings.Builder
	many.WriteString("nodes:\n")
	for i := range 300 {
		fmt.Fprintf(&many, "- {name: \"Node %d\", mac_address: x}\n", i)
	}
	out, _, err = command(t, many.String(), "site", "validate", "-")
	require.Error(t, err)
	assert.Contains(t, out, "did you mean macs?")
	assert.Contains(t, out, "and 97 more of this kind, to line 101\n")
	assert.Less(t, strings.Count(out, "\n"), 20)
}

func TestSiteValidateTenMegabytes(t *testing.T) {
	out, _, err := command(t, strings.Repeat("rubbish: {", 1<<20), "site", "validate", "-")
	require.Error(t, err)
	assert.Equal(t, "stdin: the file has 10485760 bytes; a site file has at most 1048576 (1 MiB)\n", out)
}

func TestSiteShowHidesSecrets(t *testing.T) {
	for _, format := range []string{"yaml", "json"} {
		out, _, err := command(t, "", "site", "show", siteData+"testdata/valid/full.yaml", "-o", format)
		require.NoError(t, err)
		assert.NotContains(t, out, "change me")
		assert.NotContains(t, out, "$6$")
		assert.Contains(t, out, "[redacted]")
	}
	out, _, err := command(t, "", "site", "show", "-o", "json")
	require.NoError(t, err)
	var shown struct {
		Networks struct{ Provisioning struct{ Address string } }
	}
	require.NoError(t, json.Unmarshal([]byte(out), &shown))
	assert.Equal(t, "172.22.0.1", shown.Networks.Provisioning.Address)
}

func TestSiteSchemaIsThePublishedOne(t *testing.T) {
	out, _, err := command(t, "", "site", "schema")
	require.NoError(t, err)
	published, err := os.ReadFile("../../docs/site.schema.json")
	require.NoError(t, err)
	assert.Equal(t, string(published), out)
}

func TestSiteImport(t *testing.T) {
	icn := siteData + "icn/testdata/2019."
	out, notes, err := command(t, "", "site", "import", "--user-config", icn+"user_config.sh", "--nodes", icn+"nodes.json")
	require.NoError(t, err)
	assert.Contains(t, notes, icn+"user_config.sh:6: BS_DHCP_INTERFACE: ")
	assert.NotContains(t, notes, "no MAC", "its BMC tells which server it is")
	_, _, err = command(t, out, "site", "validate", "-")
	require.NoError(t, err)

	file := filepath.Join(t.TempDir(), "site.yaml")
	t.Setenv("IRONIC_INTERFACE", "eth7")
	later := siteData + "icn/testdata/2021."
	_, notes, err = command(t, "", "site", "import", "--nodes", later+"nodes.json", "--out", file)
	require.EqualError(t, err, "check imported site: its nodes cannot be installed before bmc is completed")
	assert.Contains(t, notes, "nothing says by which NIC the appliance reaches the BMCs")
	assert.Contains(t, notes, "environment: IRONIC_INTERFACE: taken from the environment")
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "the file holds passwords")
	_, _, err = command(t, "", "site", "import", "--nodes", icn+"nodes.json", "--out", file)
	require.ErrorIs(t, err, os.ErrExist, "no file is overwritten")

	t.Setenv("IRONIC_INTERFACE", "")
	bad := filepath.Join(t.TempDir(), "nodes.json")
	require.NoError(t, os.WriteFile(bad, []byte(`{"nodes":[{"name":"a","ipmi_driver_info":{"address":"10.0.0.300:99999"}}]}`), 0o600))
	out, notes, err = command(t, "", "site", "import", "--nodes", bad)
	require.ErrorContains(t, err, "check imported site: 1 problem, correct")
	assert.Contains(t, out, "ipmi://10.0.0.300:99999")
	assert.Contains(t, notes, "site.yaml:5: nodes[0].bmc.address: ")
}

func TestSiteUsage(t *testing.T) {
	for _, args := range [][]string{{"site", "validate"}, {"site", "import"}, {"site", "show", "a", "b"}, {"site", "show", "-o", "xml"}, {"site", "validate", "-o", "xml", "-"}, {"site", "schema", "x"}} {
		_, _, err := command(t, "", args...)
		var usage commandline.UsageError
		require.ErrorAs(t, err, &usage, "%v", args)
	}
}

func TestSiteInit(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	out, _, err := command(t, "", "site", "init", "--bmcs", "10.10.110.0/24")
	require.NoError(t, err)
	assert.NotContains(t, out, "sshKeys")
	_, problems := site.Load("site.yaml", []byte(out))
	assert.Empty(t, problems)

	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGZpcnN0bGlnaHQgZXhhbXBsZSBrZXksIG5vIHVzZSEh you@example"
	require.NoError(t, os.Mkdir(filepath.Join(home, ".ssh"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(home, ".ssh/id_ed25519.pub"), []byte(key+"\n"), 0o600))
	file := filepath.Join(home, "site.yaml")
	_, _, err = command(t, "", "site", "init", "--name", "rack-7", "--interface", "eno2", "--count", "12", "--bmcs", "10.10.110.0/24", "--out", file)
	require.NoError(t, err)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	s, problems := site.Load("site.yaml", text)
	require.Empty(t, problems)
	assert.Equal(t, "eno2", s.Networks.Provisioning.Interface.String())
	assert.Equal(t, 12, s.Discover.Count)
	assert.Len(t, s.Access.SSHKeys, 1)
	goldentest.CheckBlock(t, "../../docs/first-site.md", "init", "$ firstlight site init --name rack-7 --interface eno2 --count 12 --bmcs 10.10.110.0/24\n"+string(text))

	_, _, err = command(t, "", "site", "init", "--bmcs", "10.10.110.0/24", "--out", file)
	assert.ErrorContains(t, err, "file exists")
	_, _, err = command(t, "", "site", "init", "--bmcs", "10.10.110.0/24", "--ssh-key", file)
	assert.EqualError(t, err, file+" is no public SSH key; name the file that ends in .pub")
	_, _, err = command(t, "", "site", "init", "--bmcs", "10.10.110.0/24", "--name", "no name")
	assert.ErrorContains(t, err, "name")
	_, _, err = command(t, "", "site", "init", "--bmcs", "10.10.110")
	assert.ErrorContains(t, err, "discover.bmcs")
	_, _, err = command(t, "", "site", "init")
	assert.ErrorContains(t, err, "bmcs")
}

func TestSiteImportOfLists(t *testing.T) {
	const lists = siteData + "inventory/testdata/"
	out, notes, err := command(t, "", "site", "import", "--inventory", lists+"rack.csv")
	require.NoError(t, err)
	assert.Equal(t, lists+"rack.csv: not carried over: Notes\n", notes)
	table, err := os.ReadFile(lists + "rack.csv")
	require.NoError(t, err)
	goldentest.CheckBlock(t, "../../docs/first-site.md", "inventory", "$ cat rack.csv\n"+string(table)+"$ firstlight site import --inventory rack.csv\n"+
		strings.ReplaceAll(notes, lists, "")+out)

	_, _, err = command(t, "", "site", "import", "--inventory", lists+"rack.csv", "--nodes", "nodes.json")
	assert.ErrorContains(t, err, "import one kind")
	_, notes, err = command(t, "name,mac\na,17", "site", "import", "--inventory", "-")
	assert.EqualError(t, err, "check imported site: 1 problem, correct what was written")
	assert.Contains(t, notes, "nodes[0].macs[0]")
}
