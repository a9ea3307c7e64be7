package metrics

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// MachineCollector is the collector of what the machine has left. What it cannot read it leaves out: a value that is
// not there is no alarm's all-clear.
type MachineCollector struct {
	Data         string   // folder on the file system of DATA
	Proc         string   // where proc is mounted
	Certificates []string // patterns of files, each with a PEM certificate first
}

var (
	now      = newDesc("time_seconds", "Clock of the appliance, in seconds since 1970.")
	dataSize = newDesc("data_size_bytes", "Size of the file system of DATA.")
	dataFree = newDesc("data_free_bytes", "Bytes that are free on DATA.")

	memorySize      = newDesc("memory_size_bytes", "Memory of the appliance.")
	memoryAvailable = newDesc("memory_available_bytes", "Memory that programs can get without swapping.")

	processors = newDesc("processors", "Processors of the appliance.")
	busy       = newDesc("processor_busy_seconds_total", "Time in which processors were not idle, of all of them.")

	pressure = newDesc(
		"pressure_waiting_seconds_total", "Time in which at least one task waited for the resource.", "resource",
	)
	expiry = newDesc(
		"certificate_expiry_timestamp_seconds", "When the certificate in the file ends, in seconds since 1970.", "file",
	)
)

// Describe implements prometheus.Collector.
func (MachineCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{now, dataSize, dataFree, memorySize, memoryAvailable, processors, busy, pressure, expiry} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m MachineCollector) Collect(to chan<- prometheus.Metric) {
	put := func(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, kind, value, labels...)
	}
	put(now, prometheus.GaugeValue, float64(time.Now().UnixMilli())/1000)

	var s unix.Statfs_t
	if unix.Statfs(m.Data, &s) == nil {
		put(dataSize, prometheus.GaugeValue, float64(s.Blocks)*float64(s.Bsize))
		put(dataFree, prometheus.GaugeValue, float64(s.Bavail)*float64(s.Bsize))
	}

	for _, file := range m.certificateFiles() {
		if end, ok := readExpiry(file); ok {
			put(expiry, prometheus.GaugeValue, float64(end.Unix()), file)
		}
	}

	proc, err := procfs.NewFS(m.Proc)
	if err != nil {
		return
	}
	if memory, err := proc.Meminfo(); err == nil && memory.MemTotalBytes != nil && memory.MemAvailableBytes != nil {
		put(memorySize, prometheus.GaugeValue, float64(*memory.MemTotalBytes))
		put(memoryAvailable, prometheus.GaugeValue, float64(*memory.MemAvailableBytes))
	}
	if s, err := proc.Stat(); err == nil {
		c := s.CPUTotal
		put(processors, prometheus.GaugeValue, float64(len(s.CPU)))
		put(busy, prometheus.CounterValue, c.User+c.Nice+c.System+c.IRQ+c.SoftIRQ+c.Steal)
	}
	for _, resource := range []string{"cpu", "memory", "io"} {
		if stats, err := proc.PSIStatsForResource(resource); err == nil && stats.Some != nil {
			waited := time.Duration(stats.Some.Total) * time.Microsecond
			put(pressure, prometheus.CounterValue, waited.Seconds(), resource)
		}
	}
}

// certificateFiles are the files that the patterns find.
func (m MachineCollector) certificateFiles() (files []string) {
	for _, pattern := range m.Certificates {
		found, _ := filepath.Glob(pattern) // the patterns are right
		files = append(files, found...)
	}
	return files
}

// readExpiry is when the first certificate of a PEM file ends; false if it has none.
func readExpiry(file string) (time.Time, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return time.Time{}, false
	}

	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if !strings.EqualFold(block.Type, "certificate") {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return time.Time{}, false
		}
		return c.NotAfter, true
	}
	return time.Time{}, false
}
