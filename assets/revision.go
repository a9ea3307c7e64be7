package assets

import (
	"runtime/debug"
	"time"
)

// Revision is the state of the sources that something was built from. The zero value is sources of which git
// knows nothing.
type Revision struct {
	Commit     string    `json:"commit,omitempty"` // 40 hexadecimal digits
	Time       time.Time `json:"time,omitzero"`    // of the commit
	IsReleased bool      `json:"released"`         // the commit has the tag v and Version
	IsDirty    bool      `json:"dirty"`            // files differ from the commit
}

// ReleaseTag is the tag of the commit that Version is released from.
const ReleaseTag = "v" + Version

// commitDigits is how much of a commit a version has.
const commitDigits = 12

// Version names what was built from this revision: Version alone for what is released, else
// Version-dev+COMMIT, with -dirty behind it where files differed, or Version-dev+unknown outside git.
func (r Revision) Version() string {
	switch {
	case r.Commit == "":
		return Version + "-dev+unknown"
	case r.IsDirty:
		return Version + "-dev+" + r.shortCommit() + "-dirty"
	case r.IsReleased:
		return Version
	}
	return Version + "-dev+" + r.shortCommit()
}

func (r Revision) shortCommit() string { return r.Commit[:min(commitDigits, len(r.Commit))] }

// RevisionOf is what the go command wrote into a program that it built inside a git repository.
func RevisionOf(info *debug.BuildInfo) Revision {
	var r Revision
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			r.Commit = setting.Value
		case "vcs.time":
			r.Time, _ = time.Parse(time.RFC3339, setting.Value) // zero if it has none
		case "vcs.modified":
			r.IsDirty = setting.Value == "true"
		}
	}

	r.IsReleased = info.Main.Version == ReleaseTag
	return r
}
