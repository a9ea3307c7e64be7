package software

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/engine/remote/sshtest"
)

func spec(t testing.TB, text string) v1alpha1.SoftwareSpec {
	var s v1alpha1.SoftwareSpec
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), &s), text)
	return s
}

func TestList(t *testing.T) {
	s := spec(t, "masterSoftware:\n- expect\n- htop\n- jq:\n    version: 1.5+dfsg-1ubuntu0.1\n- bb: {}\n  aa:\n- maven\n")
	got, err := List("masterSoftware", s.MasterSoftware)
	require.NoError(t, err)
	assert.Equal(t, []Package{{"expect", ""}, {"htop", ""}, {"jq", "1.5+dfsg-1ubuntu0.1"}, {"aa", ""}, {"bb", ""}, {"maven", ""}}, got)
	back, err := yaml.Marshal(s)
	require.NoError(t, err)
	assert.Equal(t, s, spec(t, string(back)), "it is written otherwise than read")
}

func TestListRefusals(t *testing.T) {
	for text, says := range map[string]string{
		"- 'htop; reboot'":                `masterSoftware[0]: "htop; reboot" is not the name of a package`,
		"- jq: {version: \"1'; reboot\"}": `"1'; reboot" is not a version of package jq`,
		"- {}":                            "masterSoftware[0]: names no package",
		"- ''":                            `"" is not the name`,
		"- Htop":                          `"Htop" is not the name`,
	} {
		_, err := List("masterSoftware", spec(t, "masterSoftware:\n"+text).MasterSoftware)
		assert.ErrorContains(t, err, says, text)
	}
	var s v1alpha1.SoftwareSpec
	assert.ErrorContains(t, yaml.Unmarshal([]byte("masterSoftware: [[htop]]"), &s), "is neither a name nor NAME: {version: VERSION}")
}

func TestUnion(t *testing.T) {
	got, err := Merge([]Package{{"htop", ""}, {"jq", "1.5"}}, []Package{{"curl", ""}, {"jq", ""}, {"htop", "3"}, {"curl", ""}})
	require.NoError(t, err)
	assert.Equal(t, []Package{{"htop", "3"}, {"jq", "1.5"}, {"curl", ""}}, got)
	_, err = Merge([]Package{{"jq", "1.5"}}, []Package{{"jq", "1.6"}})
	assert.ErrorContains(t, err, "package jq is asked for as 1.5 and as 1.6 for one node")
}

// run runs the script of packages on a node.
func run(n *sshtest.Node, packages ...Package) []v1alpha1.PackageStatus {
	cmd := exec.Command("/bin/sh", "-s")
	cmd.Stdin, cmd.Env = strings.NewReader(Script("alpha", packages)), n.Environment()
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	require.NoError(n.T, cmd.Run(), said.String())
	return Read(packages, out.String(), said.String())
}

func TestScriptInstallsOnce(t *testing.T) {
	n := sshtest.New(t).SimulateDebian()
	want := []v1alpha1.PackageStatus{{Name: "htop", Installed: "3.4"}, {Name: "jq", Installed: "1.6"}}
	assert.Equal(t, want, run(n, Package{"htop", ""}, Package{"jq", "1.6"}))
	assert.Equal(t, 1, n.InstallCount(), "not in one transaction")
	assert.Equal(t, want, run(n, Package{"htop", ""}, Package{"jq", "1.6"}))
	assert.Equal(t, 1, n.InstallCount(), "installed again what was there")
	assert.Equal(t, "1.7", run(n, Package{"jq", "1.7"})[0].Installed, "another version")
	assert.Equal(t, 2, n.InstallCount())
}

// TestANameAloneIsTheNewest: what is there is brought up to what the repositories have, as ICN did; a version that is
// asked for, and what no repository has any more, stay.
func TestANameAloneIsTheNewest(t *testing.T) {
	n := sshtest.New(t).SimulateDebian()
	n.Put("has/jq", "1.6\n")
	n.Put("has/htop", "3.4\n")
	n.Put("has/local", "7\n")
	asked := []Package{{"jq", ""}, {"htop", ""}, {"local", ""}}
	want := []v1alpha1.PackageStatus{{Name: "jq", Installed: "1.7"}, {Name: "htop", Installed: "3.4"}, {Name: "local", Installed: "7"}}
	assert.Equal(t, want, run(n, asked...))
	assert.Equal(t, 1, n.InstallCount())
	assert.Equal(t, want, run(n, asked...))
	assert.Equal(t, 1, n.InstallCount(), "the newest was installed again")
	n.Put("repo/jq", "1.8\n1.7\n1.6\n")
	assert.Equal(t, "1.7", run(n, Package{"jq", "1.7"})[0].Installed)
	assert.Equal(t, "1.8", run(n, Package{"jq", ""})[0].Installed, "a newer one was uploaded")
}

func TestScriptRefusesWhatIsNotToBeHad(t *testing.T) {
	n := sshtest.New(t).SimulateDebian()
	assert.Equal(t, []v1alpha1.PackageStatus{
		{Name: "htop", Error: "not installed, because of the others that are unavailable"},
		{Name: "jq", Missing: "jq=2.0", Error: "version 2.0 is unavailable; there are: 1.6, 1.7"},
		{Name: "nautilus", Missing: "nautilus", Error: "there is no such package in the node's repositories"},
	}, run(n, Package{"htop", ""}, Package{"jq", "2.0"}, Package{"nautilus", ""}))
	assert.Zero(t, n.InstallCount())
}

func TestScriptSaysWhyAptFailed(t *testing.T) {
	n := sshtest.New(t).SimulateDebian()
	n.Put("broken", "")
	assert.Equal(t, "not installed: Unable to correct problems, you have held broken packages.", run(n, Package{"htop", ""})[0].Error)
	require.NoError(t, os.Remove(filepath.Join(n.Dir, "broken")))
	assert.Equal(t, "3.4", run(n, Package{"htop", ""})[0].Installed)
}

func TestAnIndexThatCannotBeReadIsTheReason(t *testing.T) {
	const out = "firstlight: index failed\nfirstlight: lacks jq any\nfirstlight: has jq \n"
	got := Read([]Package{{"jq", ""}}, out, "Get:1 InRelease\nE: The repository is not signed.\n")
	assert.Equal(t, "unavailable; the index of packages could not be renewed: The repository is not signed.", got[0].Error)
}

func TestScriptOfNothing(t *testing.T) {
	n := sshtest.New(t).SimulateDebian()
	assert.Empty(t, run(n))
	assert.Zero(t, n.InstallCount())
}

func FuzzRead(f *testing.F) {
	f.Add("firstlight: has htop 3.4\nfirstlight: lacks jq 2.0 1.6 1.7\nfirstlight: failed 100\n", "E: no\n")
	f.Fuzz(func(t *testing.T, out, said string) {
		asked := []Package{{"htop", ""}, {"jq", "2.0"}}
		all := Read(asked, out, said)
		if len(all) != 2 {
			t.Fatal(all)
		}
		for i, s := range all {
			if s.Error == "" && (s.Installed == "" || asked[i].Version != "" && s.Installed != asked[i].Version) {
				t.Errorf("%q is taken for success: %+v", out, s)
			}
		}
	})
}

// A package that is there in another version, and could not be brought to the newest, is no success.
func TestANewestThatIsNotInstalledIsAnError(t *testing.T) {
	packages := []Package{{Name: "kubelet"}, {Name: "jq"}}
	const out = "firstlight: installs kubelet\nfirstlight: failed 100\nfirstlight: has kubelet 1.36.2\nfirstlight: has jq 1.7\n"
	all := Read(packages, out, "E: Unable to correct problems\nE: The following may help:\n1. a\n")
	assert.Equal(t, "has version 1.36.2, and the newest is not installed: Unable to correct problems", all[0].Error)
	assert.Empty(t, all[1].Error)
}
