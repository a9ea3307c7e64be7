package stick

import (
	"fmt"

	"golang.org/x/mod/semver"
)

// CheckUpgrade refuses a version that is older than the one that runs, or may be. Versions are ordered as semver.org has
// it: two builds of one version are neither before the other. --downgrade is the flag of whoever asks.
func CheckUpgrade(running, version string) error {
	switch {
	case !semver.IsValid("v"+version) || !semver.IsValid("v"+running):
		return fmt.Errorf("which of %s (running) and %s is newer cannot be told; --downgrade takes it all the same",
			running, version)
	case semver.Compare("v"+version, "v"+running) < 0:
		return fmt.Errorf("%s is older than the running %s, which may have changed what is on DATA; "+
			"--downgrade takes it all the same", version, running)
	}
	return nil
}
