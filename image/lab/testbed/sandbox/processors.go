package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Files of a control group: of version 1, below the controller's name, and of version 2.
const (
	cgroupRoot = "/sys/fs/cgroup"
	usageV1    = "cpuacct.usage" // nanoseconds
	usageV2    = "cpu.stat"      // usage_usec and others, a line each
)

// first is the weight by which a control group is served before all else, as cpu.shares and as cpu.weight.
var first = map[string]string{
	filepath.Join("cpu", "NAME", "cpu.shares"): "262144",
	filepath.Join("NAME", "cpu.weight"):        "10000",
}

// ComeFirst has the sandbox get the processors before all that is outside it. A machine shares its own with none of
// those that it serves.
func (b *Sandbox) ComeFirst() error {
	written := 0
	for path, weight := range first {
		path = filepath.Join(cgroupRoot, strings.Replace(path, "NAME", cgroupName(b.Name()), 1))
		err := os.WriteFile(path, []byte(weight), 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("have sandbox %s come first: %w", b.Name(), err)
		}
		written++
	}
	if written == 0 {
		return fmt.Errorf("have sandbox %s come first: its control group has no processors", b.Name())
	}

	return nil
}

// ProcessorTime is what all programs of the sandbox took of the processors since it began.
func (b *Sandbox) ProcessorTime() (time.Duration, error) {
	text, err := os.ReadFile(filepath.Join(cgroupRoot, "cpuacct", cgroupName(b.Name()), usageV1))
	if err == nil {
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		return time.Duration(n), err
	}

	text, err = os.ReadFile(filepath.Join(cgroupRoot, cgroupName(b.Name()), usageV2))
	if err != nil {
		return 0, fmt.Errorf("read processor time of sandbox %s: %w", b.Name(), err)
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, "usage_usec "); found {
			n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return time.Duration(n) * time.Microsecond, err
		}
	}

	return 0, fmt.Errorf("read processor time of sandbox %s: %s has no usage_usec", b.Name(), usageV2)
}

// cgroupName is the name of a sandbox's control group.
func cgroupName(sandbox string) string { return "firstlight-" + sandbox }
