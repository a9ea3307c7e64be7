package main

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOwnPagesThatAreOnlyRead(t *testing.T) {
	const program = "/usr/bin/firstlightd"
	for line, want := range map[string]bool{
		"00400000-02e1c000 r-xp 00000000 fe:00 1234                               " + program:                true,
		"02e1c000-05a1c000 r--p 02a1c000 fe:00 1234                               " + program:                true,
		"05a1c000-05b80000 rw-p 0561c000 fe:00 1234                               " + program:                false,
		"7f0000000000-7f0000021000 rw-p 00000000 00:00 0 ":                                                   false,
		"7f0000000000-7f0000021000 r--p 00000000 fe:00 99                         /usr/share/zoneinfo/UTC":   false,
		"00400000-02e1c000 r-xp 00000000 fe:00 1234                               " + program + " (deleted)": false,
		"x-y r-xp 00000000 fe:00 1234 " + program:                                                            false,
	} {
		from, to, ours := readOnly(line, program)
		assert.Equal(t, want, ours, line)
		if ours {
			assert.Less(t, from, to, line)
		}
	}
}

func TestAProgramRunsOnWithoutItsPages(t *testing.T) {
	resident := func() int {
		text, err := os.ReadFile("/proc/self/status")
		require.NoError(t, err)
		_, after, _ := strings.Cut(string(text), "RssFile:")
		kib, err := strconv.Atoi(strings.Fields(after)[0])
		require.NoError(t, err)
		return kib
	}
	before := resident()
	require.NoError(t, forgetProgram())
	after := resident()
	t.Logf("%d KiB of files were resident before, %d after", before, after)
	assert.Less(t, after, before/2)
}
