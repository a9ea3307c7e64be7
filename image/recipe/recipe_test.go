package recipe_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/image/recipe"
)

const inGit = "../../assets/recipe.yaml"

func TestTheRecipeInGitIsValid(t *testing.T) {
	r, err := recipe.ReadFile(inGit)
	require.NoError(t, err)
	require.NotNil(t, r.Root(r.Stick.Root))
	require.NotNil(t, r.Program(r.Stick.Init))
	for _, root := range r.Roots {
		for _, overlay := range root.Overlays {
			assert.DirExists(t, filepath.Join("../..", overlay.Dir), "root %s", root.Name)
		}
	}
	for _, program := range r.Programs {
		assert.FileExists(t, filepath.Join("../..", program.Module, "go.mod"), "program %s", program.Name)
	}
}

// whole is the least recipe that is valid; each mistake below is one change to it.
const whole = `debian: {suite: trixie, components: [main]}
programs:
  - {name: init, package: ./cmd/init}
roots:
  - {name: box, packages: [systemd]}
  - {name: tools, variant: unpacked, packages: [e2fsprogs]}
images:
  - {name: pause, tags: ["3.8"], programs: {init: /pause}}
artifacts:
  - {name: kernel, kind: extract, to: /usr/share/firstlight/k, root: box, path: /boot/vmlinuz-*}
stick:
  name: stick
  root: box
  boot: tools
  tools: tools
  init: init
  kernel: /boot/vmlinuz-*
  esp: overlays/esp
  site: overlays/site
`

func TestMistakesAreNamed(t *testing.T) {
	_, err := recipe.Parse("recipe.yaml", []byte(whole))
	require.NoError(t, err)
	mistakes := []struct{ find, with string }{
		{"suite: trixie", "suit: trixie"},
		{"suite: trixie, ", ""},
		{"suite: trixie", "suite: Debian 13"},
		{"components: [main]", "components: main"},
		{"components: [main]", "components: [non free]"},
		{"debian: {suite: trixie, components: [main]}", "debian: trixie"},
		{"{name: init, package: ./cmd/init}", "{name: init, package: -o}"},
		{"{name: init, package: ./cmd/init}", "{name: init, package: ./cmd/init, module: ../elsewhere}"},
		{"{name: init, package: ./cmd/init}", "{name: init, package: ./cmd/init, mends: [{module: x.org/y, file: a.go, old: a, new: b}]}"},
		{"{name: init, package: ./cmd/init}", "{name: init, package: ./cmd/init, mends: [{module: y, file: a.go, old: a, new: b, why: c}]}"},
		{"{name: init, package: ./cmd/init}", "{name: init, package: ./cmd/init, mends: [{module: x.org/y, file: ../a.go, old: a, new: b, why: c}]}"},
		{"{name: init, package: ./cmd/init}", "{name: init, package: ./cmd/init, mends: [{module: x.org/y, file: a.go, old: a, new: a, why: c}]}"},
		{"{name: init, package: ./cmd/init}", "{name: init, package: ./cmd/init, mends: [{module: x.org/y, file: a.go, old: a, new: b, why: ''}]}"},
		{"{name: init, package: ./cmd/init}", "{name: Init, package: ./cmd/init}"},
		{"{name: init, package: ./cmd/init}", "{name: init, name: init, package: ./cmd/init}"},
		{"{name: tools, variant: unpacked", "{name: box, variant: unpacked"},
		{"variant: unpacked", "variant: minbase"},
		{"packages: [systemd]", "packages: [systemd=257]"},
		{"packages: [systemd]", "packages: {systemd: 1}"},
		{"packages: [systemd]", "overlays: [{dir: /etc}]"},
		{"packages: [systemd]", "overlays: [{dir: overlays/x, replaces: [etc/issue]}]"},
		{"packages: [systemd]", "programs: {daemon: /usr/bin/d}"},
		{"packages: [systemd]", "links: {bin/sh: dash}"},
		{"site: overlays/site", "site: overlays/site\n  appended: /usr/ours"},
		{"packages: [systemd]", "replace: [{path: /a, find: x, with: x}]"},
		{"packages: [systemd]", "hooks: [../x.sh]"},
		{"packages: [systemd]", "omit: [drivers]"},
		{"roots:", "omissions: [{name: drivers, paths: [lib/x]}]\nroots:"},
		{`tags: ["3.8"]`, "tags: []"},
		{`tags: ["3.8"]`, `tags: ["3 8"]`},
		{"programs: {init: /pause}", "root: none"},
		{"programs: {init: /pause}", "programs: {init: /pause}, root: box"},
		{"programs: {init: /pause}", "layer: later"},
		{"programs: {init: /pause}", "reference: host/name:tag"},
		{"programs: {init: /pause}", "programs: {init: pause}"},
		{"to: /usr/share/firstlight/k", "to: /boot/k"},
		{"kind: extract", "kind: copy"},
		{"kind: extract", "kind: file"},
		{"kind: extract", "kind: disk"},
		{"root: box, path: /boot/vmlinuz-*", "root: box"},
		{"root: box, path: /boot/vmlinuz-*", "root: tools, path: /x"},
		{"  root: box\n", "  root: tools\n"},
		{"  boot: tools", "  boot: box"},
		{"  init: init", "  init: systemd"},
		{"  site: overlays/site", "  site: overlays/site\n  sizes: {ESP: 64}"},
		{"  site: overlays/site", "  site:"},
		{"  site: overlays/site", "\tsite: x"},
		{"  site: overlays/site\n", "  site: overlays/site\n---\n{}\n"},
		{whole, ""},
		{whole, "[]"},
	}
	var got strings.Builder
	for _, m := range mistakes {
		require.Contains(t, whole, m.find)
		_, err := recipe.Parse("recipe.yaml", []byte(strings.Replace(whole, m.find, m.with, 1)))
		require.Error(t, err, m.with)
		shown := m.with
		if len(m.find) == len(whole) {
			shown = fmt.Sprintf("the whole is %q", m.with)
		}
		problems := strings.ReplaceAll(err.Error(), "\n", "\n    ")
		fmt.Fprintf(&got, "%s\n    %s\n", strings.ReplaceAll(strings.TrimSpace(shown), "\n", "\\n"), problems)
	}
	goldentest.Check(t, "testdata/mistakes.txt", got.String())
}

func TestEveryMistakeIsNamedAtOnce(t *testing.T) {
	text := whole
	for _, change := range [][2]string{
		{"suite: trixie", "suit: trixie"},
		{"packages: [systemd]", "packages: [systemd=257], hooks: [../x.sh]"},
		{"kind: extract", "kind: copy"},
		{"  init: init", "  init: systemd"},
	} {
		require.Contains(t, text, change[0])
		text = strings.Replace(text, change[0], change[1], 1)
	}
	_, err := recipe.Parse("recipe.yaml", []byte(text))
	assert.EqualError(t, err, strings.Join([]string{
		`recipe.yaml:1: debian: suite is missing; give a release name such as trixie`,
		`recipe.yaml:1: debian.suit: unknown key; did you mean suite?`,
		`recipe.yaml:5: roots[0]: package "systemd=257" is not a Debian package name; write it without version or architecture`,
		`recipe.yaml:5: roots[0]: hooks "../x.sh" must be a clean path from the top of the repository, such as overlays/site`,
		`recipe.yaml:10: artifacts[0]: kind "copy" is unknown; write file, extract, initramfs, disk, module, kustomize or packages`,
		`recipe.yaml:11: stick: init "systemd" is not among programs; add it there`,
	}, "\n"))
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]int64{"1KiB": 1024, "64MiB": 64 << 20, "2GiB": 2 << 30} {
		got, err := recipe.ParseBytes(text)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for _, text := range []string{"", "64", "64MB", "-1MiB", "0MiB", "1.5GiB", "99999999999999GiB", "MiB"} {
		_, err := recipe.ParseBytes(text)
		assert.Error(t, err, text)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	if text, err := os.ReadFile(inGit); err == nil {
		f.Add(text)
	}
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("!!binary x"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := recipe.Parse("recipe.yaml", text)
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if !strings.HasPrefix(line, "recipe.yaml:") {
					t.Errorf("a problem without a place: %q", line)
				}
			}
			return
		}
		if r.Root(r.Stick.Root) == nil || r.Program(r.Stick.Init) == nil {
			t.Error("a valid recipe names what is not there")
		}
	})
}
