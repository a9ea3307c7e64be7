package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// forgetProgram gives back the pages of the program's own file that its start has touched: the
// initialisation of every part of firstlightd, of which a subcommand needs one. What is needed is
// mapped again when it is used (madvise(2), MADV_DONTNEED on a mapping of a file that is only read).
func forgetProgram() error {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("find own program: %w", err)
	}

	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("find own program: %w", err)
	}
	defer maps.Close()

	for s := bufio.NewScanner(maps); s.Scan(); {
		from, to, ours := readOnly(s.Text(), self)
		if !ours {
			continue
		}
		if _, _, failed := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); failed != 0 {
			return fmt.Errorf("give back pages of %s: %w", self, failed)
		}
	}

	return nil
}

// readOnly reads a line of proc_pid_maps(5): FROM-TO MODE OFFSET DEVICE INODE FILE. It is ours if the file
// is the program and nobody can have written there.
func readOnly(line, program string) (from, to uintptr, ours bool) {
	f := strings.Fields(line)
	if len(f) != 6 || f[5] != program || strings.Contains(f[1], "w") {
		return 0, 0, false
	}

	n, err := fmt.Sscanf(f[0], "%x-%x", &from, &to)
	return from, to, n == 2 && err == nil
}
