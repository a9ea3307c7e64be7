package contract

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestProgress(t *testing.T) {
	text := []byte(`{"percent":40,"doing":"joining","nodes":{"w":"joining"},"more":1}`)
	assert.Equal(t, Progress{40, "joining", map[string]string{"w": "joining"}, nil}, ReadProgress(text))
	assert.Equal(t, Progress{Percent: 100}, ReadProgress([]byte(`{"percent":4000}`)))
	assert.Equal(t, Progress{}, ReadProgress([]byte(`{"percent":4`)))
}

// TestWhatOneSideWritesTheOtherReads holds the names in the files as docs/kud.md tells them to other installers.
func TestWhatOneSideWritesTheOtherReads(t *testing.T) {
	for text, v := range map[string]any{
		`{"percent":40,"doing":"a","nodes":{"w":"b"},"ready":["m"]}`: ReadProgress([]byte(`{"percent":40,"doing":"a","nodes":{"w":"b"},"ready":["m"]}`)),
		`{"uncleared":{"w":"it did not answer"}}`:                    ReadRemoved([]byte(`{"uncleared":{"w":"it did not answer"}}`)),
		`{"time":"2026-11-20T12:00:00Z","nodes":["m"],"passed":true,"checks":[{"name":"DNS","passed":true}]}`: ReadVerification(
			[]byte(`{"time":"2026-11-20T12:00:00Z","nodes":["m"],"passed":true,"checks":[{"name":"DNS","passed":true}]}`)),
	} {
		written, err := json.Marshal(v)
		require.NoError(t, err)
		assert.Equal(t, text, string(written))
	}
	assert.Nil(t, ReadVerification([]byte(`{"time":"2026-11-20T12:00:00Z"}`)), "it names no check")
	assert.Empty(t, ReadRemoved([]byte(`{"uncleared":`)).Dirty)
}

func TestClear(t *testing.T) {
	clusters := map[string]string{"worker-2": "old", "worker-1": "edge"}
	assert.Equal(t, "worker-1=edge worker-2=old", FormatClear(clusters))
	assert.Equal(t, clusters, ParseClear(FormatClear(clusters)))
	assert.Equal(t, map[string]string{"a": "b"}, ParseClear(" word  a=b "))
	assert.Empty(t, ParseClear(""))
}

func FuzzReports(f *testing.F) {
	f.Add([]byte(`{"percent":40,"nodes":{"w":"x"}}`))
	f.Add([]byte(`{"time":"2026-11-20T12:00:00Z","nodes":["m"],"checks":[{"name":"DNS","passed":true}]}`))
	f.Add([]byte(`{"uncleared":{"w":"x"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if p := ReadProgress(text); p.Percent < 0 || p.Percent > 100 {
			t.Error(p)
		}
		ReadVerification(text)
		ReadRemoved(text)
		ParseClear(string(text))
	})
}
