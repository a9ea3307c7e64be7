// Package offline lets clusterctl find its providers without a network: in a repository of files that came with it.
package offline

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// Variable names the directory of the repository; the configuration there uses it in its paths.
	Variable = "FIRSTLIGHT_CLUSTER_API"
	// NoVersionCheck keeps clusterctl from asking the internet for a newer version after every command.
	NoVersionCheck = "CLUSTERCTL_DISABLE_VERSIONCHECK"
	// Config is the configuration, in the repository.
	Config = "clusterctl.yaml"
)

// Repository is the directory of the repository: the one that the environment names, or the one that was unpacked or
// installed with the program, or the appliance's. It is "" if there is none.
func Repository(named, program string) string {
	for _, dir := range []string{
		named,
		filepath.Join(filepath.Dir(program), "cluster-api"),
		filepath.Join(filepath.Dir(program), "..", "share", "firstlight", "cluster-api"),
		"/usr/share/firstlight/cluster-api",
	} {
		if dir == "" {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, Config)); err != nil {
			continue
		}
		if absolute, err := filepath.Abs(dir); err == nil {
			return absolute
		}
	}
	return ""
}

// HasOwnConfig reports whether a user has a configuration of clusterctl in one of its places below the directories of
// configuration and of the user.
func HasOwnConfig(config, home string) bool {
	for _, dir := range []string{filepath.Join(config, "cluster-api"), filepath.Join(home, ".cluster-api")} {
		if found, _ := filepath.Glob(filepath.Join(dir, "clusterctl.*")); len(found) > 0 {
			return true
		}
	}
	return false
}

// Arguments are those of clusterctl, without its name: with the configuration of the repository, unless the caller names
// another or has one of their own.
func Arguments(args []string, repository string, ownConfig bool) []string {
	named := slices.ContainsFunc(args, func(arg string) bool {
		return arg == "--config" || strings.HasPrefix(arg, "--config=")
	})
	if repository == "" || ownConfig || named {
		return args
	}
	return append([]string{"--config=" + filepath.Join(repository, Config)}, args...)
}
