package contract

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestWhenARotationIsDue(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	signed := func(ago time.Duration) Rotation { return Rotation{"a", RotationSigned, now.Add(-ago)} }
	for _, c := range []struct {
		what  string
		r     Rotation
		token string
		want  bool
	}{
		{"nobody asks", Rotation{}, "", false},
		{"asked for", Rotation{}, "a", true},
		{"begun", Rotation{Token: "a", Stage: RotationTrust}, "a", true},
		{"begun, and asked for no more", Rotation{Token: "a", Stage: RotationSign}, "", true},
		{"begun, and another asked for", Rotation{Token: "a", Stage: RotationSign}, "b", true},
		{"signed an hour ago", signed(time.Hour), "a", false},
		{"signed an hour ago, another asked for", signed(time.Hour), "b", false},
		{"signed a day and an hour ago", signed(RotationSettle), "a", true},
		{"in its last stage", Rotation{"a", RotationDrop, now}, "a", true},
		{"done", Rotation{"a", RotationDone, now}, "a", false},
		{"done, and nobody asks", Rotation{"a", RotationDone, now}, "", false},
		{"done, and another asked for", Rotation{"a", RotationDone, now}, "b", true},
	} {
		assert.Equal(t, c.want, c.r.IsDue(c.token, now, RotationSettle), c.what)
	}
	assert.Equal(t, Rotation{"a", RotationSigned, now}, ReadRotation([]byte(`{"token":"a","stage":"signed","signed":"2026-11-30T12:00:00Z"}`)))
	assert.Equal(t, Rotation{}, ReadRotation([]byte(`{"token":"a","st`)))
}
