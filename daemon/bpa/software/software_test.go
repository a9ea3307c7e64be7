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

	"firstlight.dev/firstlight/daemon/bpa/v1alpha1"
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
	got, err := Union([]Package{{"htop", ""}, {"jq", "1.5"}}, []Package{{"curl", ""}, {"jq", ""}, {"htop", "3"}, {"curl", ""}})
	require.NoError(t, err)
	assert.Equal(t, []Package{{"htop", "3"}, {"jq", "1.5"}, {"curl", ""}}, got)
	_, err = Union([]Package{{"jq", "1.5"}}, []Package{{"jq", "1.6"}})
	assert.ErrorContains(t, err, "package jq is asked for as 1.5 and as 1.6 for one node")
}

// node is a machine whose dpkg-query, apt-cache and apt-get are scripts over two
// directories: versions that can be had, and versions that are installed.
type node struct {
	t   *testing.T
	dir string
}

func newNode(t *testing.T) node {
	n := node{t, t.TempDir()}
	for _, d := range []string{"bin", "has", "repo"} {
		require.NoError(t, os.Mkdir(filepath.Join(n.dir, d), 0o755))
	}
	for name, text := range map[string]string{
		"dpkg-query": `for p; do :; done; [ -f $DIR/has/$p ] && echo "ii  $(cat $DIR/has/$p)"`,
		"apt-cache":  `[ -f $DIR/repo/$2 ] && while read v; do echo " $2 | $v | http://x stable/main amd64 Packages"; done <$DIR/repo/$2`,
		"apt-get": `echo "$*" >>$DIR/log; case " $* " in *" update "*) exit 0;; esac
[ -f $DIR/broken ] && { echo "E: Unable to correct problems, you have held broken packages." >&2; exit 100; }
seen=; for a; do if [ -n "$seen" ]; then p=${a%%=*} v=${a#"$p"}; v=${v#=}; echo ${v:-$(head -n 1 $DIR/repo/$p)} >$DIR/has/$p; fi; [ "$a" = install ] && seen=1; done; exit 0`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(n.dir, "bin", name), []byte("#!/bin/sh\n"+text+"\n"), 0o755))
	}
	n.put("repo/htop", "3.4\n")
	n.put("repo/jq", "1.7\n1.6\n")
	return n
}

func (n node) put(name, text string) {
	require.NoError(n.t, os.WriteFile(filepath.Join(n.dir, name), []byte(text), 0o644))
}

// installs counts the calls that install.
func (n node) installs() int {
	log, _ := os.ReadFile(filepath.Join(n.dir, "log"))
	return strings.Count(string(log), " install ")
}

func (n node) run(packages ...Package) []v1alpha1.PackageStatus {
	cmd := exec.Command("/bin/sh", "-s")
	cmd.Stdin = strings.NewReader(Script(packages))
	cmd.Env = []string{"DIR=" + n.dir, "PATH=" + n.dir + "/bin:/usr/bin:/bin"}
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	require.NoError(n.t, cmd.Run(), said.String())
	return Read(packages, out.String(), said.String())
}

func TestScriptInstallsOnce(t *testing.T) {
	n := newNode(t)
	want := []v1alpha1.PackageStatus{{Name: "htop", Installed: "3.4"}, {Name: "jq", Installed: "1.6"}}
	assert.Equal(t, want, n.run(Package{"htop", ""}, Package{"jq", "1.6"}))
	assert.Equal(t, 1, n.installs(), "not in one transaction")
	assert.Equal(t, want, n.run(Package{"htop", ""}, Package{"jq", "1.6"}))
	assert.Equal(t, 1, n.installs(), "installed again what was there")
	assert.Equal(t, "1.7", n.run(Package{"jq", "1.7"})[0].Installed, "another version")
	assert.Equal(t, 2, n.installs())
}

func TestScriptRefusesWhatIsNotToBeHad(t *testing.T) {
	n := newNode(t)
	assert.Equal(t, []v1alpha1.PackageStatus{
		{Name: "htop", Error: "not installed, because of the others that are not to be had"},
		{Name: "jq", Error: "version 2.0 is not to be had; there are: 1.6, 1.7"},
		{Name: "nautilus", Error: "there is no such package in the node's repositories"},
	}, n.run(Package{"htop", ""}, Package{"jq", "2.0"}, Package{"nautilus", ""}))
	assert.Zero(t, n.installs())
}

func TestScriptSaysWhyAptFailed(t *testing.T) {
	n := newNode(t)
	n.put("broken", "")
	assert.Equal(t, "not installed: Unable to correct problems, you have held broken packages.", n.run(Package{"htop", ""})[0].Error)
	require.NoError(t, os.Remove(filepath.Join(n.dir, "broken")))
	assert.Equal(t, "3.4", n.run(Package{"htop", ""})[0].Installed)
}

func TestScriptOfNothing(t *testing.T) {
	n := newNode(t)
	assert.Empty(t, n.run())
	assert.Zero(t, n.installs())
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
