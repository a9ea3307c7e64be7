package testrack_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab"
)

// TestDisksOfARealServerAreErased: the ramdisk erases a SCSI drive, an NVMe drive and one of two namespaces of another
// NVMe drive, each with the tools for it. The disk that nobody named and the namespace that no system sees stay as they
// were, byte for byte.
func TestDisksOfARealServerAreErased(t *testing.T) {
	need(t, "rack-all")
	r := newRoom(t, 100*time.Minute, "legacy")
	dir := t.TempDir()
	disk := func(name string, size int) string {
		path := filepath.Join(dir, name)
		writeSomebodysDisk(t, path, size)
		return path
	}
	const size = 96 << 20
	scsi, nvme, split, hidden := disk("scsi", size), disk("nvme", size), disk("split", size), disk("hidden", size)

	s := r.nodes[0].server("")
	s.Disk = size
	s.Disks = []lab.Disk{
		{Image: scsi, Bus: lab.SCSI, Direct: true, Serial: "node1-scsi", Quick: true},
		{Image: nvme, Bus: lab.NVMe, Direct: true, Serial: "node1-nvme", Quick: true},
	}
	s.Extra = []string{
		"-drive", "if=none,id=split1,format=raw,cache=unsafe,file=" + split,
		"-drive", "if=none,id=split2,format=raw,cache=unsafe,file=" + hidden,
		"-device", "nvme-subsys,id=split,nqn=split",
		"-device", "nvme,id=split0,serial=node1-split,subsys=split",
		"-device", "nvme-ns,bus=split0,nsid=1,drive=split1,uuid=6f1f5d0e-94a1-4c54-9c6a-3b1f52a0c101",
		"-device", "nvme-ns,bus=split0,nsid=2,drive=split2,uuid=6f1f5d0e-94a1-4c54-9c6a-3b1f52a0c102,detached=on",
	}
	box := r.plug(s)
	writeSomebodysDisk(t, box.DiskFile(), size)
	kept := map[string]string{box.DiskFile(): sum(t, box.DiskFile()), hidden: sum(t, hidden)}
	r.nodes[0].extra = "    rootDevice: {serialNumber: node1}\n"
	r.power()

	// What would be erased is shown, with the numbers of the disks; nothing is done without the word of just that.
	r.until("node1", r.status, func(s string) bool { return strings.Contains(s, "is not empty, it holds: gpt") })
	names := []string{"--disk", "node1-scsi", "--disk", "node1-nvme", "--disk", "node1-split"}
	plan := r.run("firstlightd", append([]string{"erase", "node1"}, names...)...)
	t.Log("\n" + plan)
	assert.Equal(t, 3, strings.Count(plan, "would be erased"))
	assert.Equal(t, 1, strings.Count(plan, "is left alone"))

	words := strings.Fields(plan)
	t.Log("\n" + r.run("firstlightd", append([]string{"erase", "node1", "--confirm", words[len(words)-1]}, names...)...))
	why := r.until("why of node1", func() string { return r.run("firstlightd", "why", "node1") }, func(s string) bool {
		return strings.Contains(s, "was erased: ") || strings.Contains(s, "was not erased")
	})
	require.Contains(t, why, "was erased: ")
	assert.Regexp(t, `serialNumber node1-scsi on \S+ \S+ UTC by overwriting it \(none of \d+ blocks with data reads as before\);`, why)
	assert.Regexp(t, `serialNumber node1-nvme on \S+ \S+ UTC by the drive's own format with secure erase \(NVMe\) \(none of`, why)
	assert.Regexp(t, `serialNumber node1-split on \S+ \S+ UTC by overwriting it \(none of \d+ blocks with data reads as `+
		`before\), and 1 namespaces of its drive that are not attached were not erased`, why)

	// The operator has it back, and has it inspected.
	r.until("pause of node1", func() string {
		return r.run("kubectl", "-n", "metal3", "get", "bmh", "node1", "-o",
			`jsonpath={.metadata.annotations.baremetalhost\.metal3\.io/paused} {.status.provisioning.state}`)
	}, func(s string) bool { return strings.TrimSpace(s) == "available" })
	for _, path := range []string{scsi, nvme, split} {
		assert.True(t, isZero(t, path), "something is left on %s", path)
	}
	for path, before := range kept {
		assert.Equal(t, before, sum(t, path), "%s was written to, and nobody named it", path)
	}
	ledger, err := os.ReadFile(r.appliance.DataPath("/var/lib/firstlight/hosts/erased/node1.json"))
	require.NoError(t, err)
	t.Logf("%s", ledger)
}

// writeSomebodysDisk makes a disk with a table, a partition, and data all over it.
func writeSomebodysDisk(t *testing.T, path string, size int) {
	t.Helper()
	const line = "somebody's data "
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat(line, size/len(line))), 0o644))
	out, err := exec.Command("sh", "-c", `printf 'label: gpt\nsize=32MiB\n' | sfdisk -q --wipe always "$0"`, path).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// isZero reports whether a file is nothing but zeros.
func isZero(t *testing.T, path string) bool {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return len(bytes.Trim(text, "\x00")) == 0
}
