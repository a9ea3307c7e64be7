// Package mountinfo reads names as the kernel's lists of mounts have them.
package mountinfo

import "strings"

var escapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// Unescape undoes what is done to spaces, tabs, line ends and backslashes in /proc/PID/mountinfo and fstab(5)
// (proc_pid_mountinfo(5), getmntent(3)).
func Unescape(name string) string { return escapes.Replace(name) }
