package offline

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func touch(t *testing.T, path string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(path)
}

func TestTheRepositoryIsTheOneThatCameWithTheProgram(t *testing.T) {
	top := t.TempDir()
	beside := touch(t, filepath.Join(top, "share/firstlight/cluster-api", Config))
	unpacked := touch(t, filepath.Join(top, "unpacked", "cluster-api", Config))
	if got := Repository("", filepath.Join(top, "unpacked/clusterctl")); got != unpacked {
		t.Errorf("unpacked with the program: %q", got)
	}
	named := touch(t, filepath.Join(top, "named", Config))
	program := filepath.Join(top, "bin/clusterctl")
	if got := Repository("", program); got != beside {
		t.Errorf("beside the program: %q", got)
	}
	if got := Repository(named, program); got != named {
		t.Errorf("named: %q", got)
	}
	if got := Repository(filepath.Join(top, "gone"), program); got != beside {
		t.Errorf("named and not there: %q", got)
	}
}

func TestArguments(t *testing.T) {
	for _, c := range []struct {
		name       string
		args       []string
		repository string
		own        bool
		want       []string
	}{
		{"the repository's configuration", []string{"init", "list-images"}, "/r", false,
			[]string{"--config=/r/clusterctl.yaml", "init", "list-images"}},
		{"no argument", nil, "/r", false, []string{"--config=/r/clusterctl.yaml"}},
		{"another is named", []string{"init", "--config", "/x"}, "/r", false, []string{"init", "--config", "/x"}},
		{"another is named in one word", []string{"init", "--config=/x"}, "/r", false, []string{"init", "--config=/x"}},
		{"the user has one", []string{"init"}, "/r", true, []string{"init"}},
		{"no repository", []string{"init"}, "", false, []string{"init"}},
	} {
		if got := Arguments(c.args, c.repository, c.own); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

func TestAUserHasAConfigurationInEitherPlace(t *testing.T) {
	config, home := t.TempDir(), t.TempDir()
	if HasOwnConfig(config, home) {
		t.Error("there is none yet")
	}
	touch(t, filepath.Join(home, ".cluster-api/clusterctl.yaml"))
	if !HasOwnConfig(config, home) || HasOwnConfig(config, t.TempDir()) {
		t.Error("below the user's directory")
	}
	touch(t, filepath.Join(config, "cluster-api/clusterctl.yml"))
	if !HasOwnConfig(config, t.TempDir()) {
		t.Error("below the directory of configurations")
	}
}
