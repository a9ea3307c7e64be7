package metrics

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/appliance/ca"
)

// value is one metric of a collector's scrape; false if it is not there.
func value(t *testing.T, c prometheus.Collector, name, label string) (float64, bool) {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == name && (label == "" || m.Label[0].GetValue() == label) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue(), true
			}
		}
	}
	return 0, false
}

func TestTheMachineAsFigures(t *testing.T) {
	proc := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(proc, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(proc, name), []byte(text), 0o644))
	}
	write("meminfo", "MemTotal:        2048 kB\nMemFree:          100 kB\nMemAvailable:     512 kB\n")
	write("stat", "cpu  100 10 50 800 900 1 2 3 0 0\ncpu0 60 0 50 800 0 0 0 0 0 0\ncpu1 40 0 0 0 0 0 0 0 0 0\nbtime 1\n")
	for _, resource := range []string{"cpu", "memory", "io"} {
		write("pressure/"+resource, "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\n")
	}
	m := MachineCollector{Data: t.TempDir(), Proc: proc}
	for _, c := range []struct {
		name, label string
		want        float64
	}{
		{"firstlight_memory_size_bytes", "", 2048 * 1024},
		{"firstlight_memory_available_bytes", "", 512 * 1024},
		{"firstlight_processors", "", 2},
		{"firstlight_processor_busy_seconds_total", "", 1.66}, // neither idle nor waiting for disks
		{"firstlight_pressure_waiting_seconds_total", "cpu", 2.5},
		{"firstlight_pressure_waiting_seconds_total", "io", 2.5},
	} {
		got, ok := value(t, m, c.name, c.label)
		assert.True(t, ok, c.name)
		assert.InDelta(t, c.want, got, 1e-9, c.name)
	}

	clock, _ := value(t, m, "firstlight_time_seconds", "")
	assert.WithinDuration(t, time.Now(), time.UnixMilli(int64(clock*1000)), time.Minute)
	size, _ := value(t, m, "firstlight_data_size_bytes", "")
	free, ok := value(t, m, "firstlight_data_free_bytes", "")
	assert.True(t, ok)
	assert.Greater(t, size, free)
}

// TestWhatCannotBeReadIsLeftOut: a zero would be a full disk, or a certificate that ended in 1970.
func TestWhatCannotBeReadIsLeftOut(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "broken.crt"), []byte("-----BEGIN"), 0o644))
	m := MachineCollector{Data: dir + "/none", Proc: dir + "/none", Certificates: []string{dir + "/*.crt"}}
	assert.Equal(t, 1, testutil.CollectAndCount(m), "the clock alone")
}

func TestWhenACertificateEnds(t *testing.T) {
	dir := t.TempDir()
	authority, err := ca.Open(dir, time.Now)
	require.NoError(t, err)
	_, _, err = authority.Issue("page", ca.Names{Of: "page"})
	require.NoError(t, err)
	m := MachineCollector{Data: dir, Proc: dir, Certificates: []string{dir + "/*.crt"}}
	end, ok := value(t, m, "firstlight_certificate_expiry_timestamp_seconds", dir+"/page.crt")
	require.True(t, ok)
	left := time.Until(time.Unix(int64(end), 0))
	assert.Greater(t, left, 30*24*time.Hour)
	assert.Less(t, left, 400*24*time.Hour)
}
