package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// FindTop is the directory of the repository that the working directory is in.
func FindTop() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find repository: %w", err)
	}

	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "assets", "recipe.yaml")); err == nil {
			return dir, nil
		}
	}

	return "", errors.New("find repository: assets/recipe.yaml is in no directory above the working directory")
}

// TempDir is a directory below build/bench, on the repository's disk where /tmp may be memory. It goes with the
// benchmark.
func TempDir(b *testing.B) string {
	b.Helper()
	top, err := FindTop()
	if err != nil {
		b.Fatal(err)
	}

	if err := os.MkdirAll(filepath.Join(top, Dir), 0o755); err != nil {
		b.Fatal(err)
	}

	dir, err := os.MkdirTemp(filepath.Join(top, Dir), "files-")
	if err != nil {
		b.Fatal(err)
	}

	b.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			b.Error(err)
		}
	})
	return dir
}

// Counts reads the environment variable that says how many to measure, such as NODES=1,2,3; without it, or.
func Counts(b *testing.B, variable string, or ...int) []int {
	b.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return or
	}

	var all []int
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			b.Fatalf("%s=%s: %q is not a number from 1 on; write them with commas between", variable, text, word)
		}
		all = append(all, n)
	}

	return all
}

// Runs reads from RUNS how often each measurement is repeated; without it, or.
func Runs(b *testing.B, or int) int { return Counts(b, "RUNS", or)[0] }

// ProcessorTime is what this process has had of the processor: a busy machine does not count.
func ProcessorTime() time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// LoadAverage is that of the machine over the last minute, for notes: other work makes every measurement worse.
func LoadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}

	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// What Memory reads of a process (proc(5)).
const (
	Resident     = "VmRSS" // now
	PeakResident = "VmHWM" // the most that ever was
)

// Memory is what a process has resident, in bytes.
func Memory(pid int, line string) (float64, error) {
	path := fmt.Sprintf("/proc/%d/status", pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read memory of process: %w", err)
	}

	_, after, found := strings.Cut(string(text), line+":")
	value := strings.Fields(after)
	if !found || len(value) == 0 {
		return 0, fmt.Errorf("read memory of process: %s has no %s", path, line)
	}

	kib, err := strconv.ParseFloat(value[0], 64)
	if err != nil {
		return 0, fmt.Errorf("read memory of process: %s: %w", path, err)
	}

	return kib * 1024, nil
}

// MeasureSeconds runs do and returns how many seconds it took.
func MeasureSeconds(do func() error) (float64, error) {
	began := time.Now()
	err := do()
	return time.Since(began).Seconds(), err
}
