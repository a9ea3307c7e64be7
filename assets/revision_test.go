package assets_test

import (
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/assets"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

func TestAVersionSaysWhatItWasBuiltFrom(t *testing.T) {
	for want, r := range map[string]assets.Revision{
		assets.Version + "-dev+unknown":            {},
		assets.Version + "-dev+0123456789ab":       {Commit: commit},
		assets.Version + "-dev+0123456789ab-dirty": {Commit: commit, IsReleased: true, IsDirty: true},
		assets.Version: {Commit: commit, IsReleased: true},
	} {
		assert.Equal(t, want, r.Version())
	}
}

func TestAProgramKnowsItsRevision(t *testing.T) {
	info := &debug.BuildInfo{
		Main: debug.Module{Version: assets.ReleaseTag},
		Settings: []debug.BuildSetting{
			{Key: "vcs", Value: "git"},
			{Key: "vcs.revision", Value: commit},
			{Key: "vcs.time", Value: "2026-11-26T05:50:00Z"},
			{Key: "vcs.modified", Value: "false"},
		},
	}
	want := assets.Revision{Commit: commit, Time: time.Date(2026, 11, 26, 5, 50, 0, 0, time.UTC), IsReleased: true}
	assert.Equal(t, want, assets.RevisionOf(info))

	info.Main.Version, info.Settings[3].Value = "v0.0.0-20261126055000-0123456789ab+dirty", "true"
	want.IsReleased, want.IsDirty = false, true
	assert.Equal(t, want, assets.RevisionOf(info))

	assert.Zero(t, assets.RevisionOf(&debug.BuildInfo{}), "built outside git")
}
