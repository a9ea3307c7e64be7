// Package mountinfo reads names as the kernel's lists of mounts have them.
package mountinfo

import (
	"fmt"
	"os"
	"strings"
)

// IsMounted reports whether something is mounted on dir, an absolute path, as list has it: a file such as
// /proc/self/mountinfo. It does not touch dir, so a medium that hangs does not matter.
func IsMounted(list, dir string) (bool, error) {
	text, err := os.ReadFile(list)
	if err != nil {
		return false, fmt.Errorf("read list of mounts: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 && Unescape(fields[4]) == dir {
			return true, nil
		}
	}
	return false, nil
}

var escapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// Unescape undoes what is done to spaces, tabs, line ends and backslashes in /proc/PID/mountinfo and fstab(5)
// (proc_pid_mountinfo(5), getmntent(3)).
func Unescape(name string) string { return escapes.Replace(name) }
