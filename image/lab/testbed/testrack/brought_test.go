package testrack_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox/nodes"
)

// The site names an image that nobody has brought yet. Its server waits, and says for what; then the
// image is uploaded, the server is installed from it and launched.
func TestServerIsInstalledFromAnUploadedImage(t *testing.T) {
	need(t, "rack-all")
	r := newRoom(t, 60*time.Minute, "legacy")
	box := r.node1("")
	r.nodes[0].extra = "    os: {image: alpha.edge.brought}\n"
	r.power()
	r.until("node1", r.status, func(s string) bool { return strings.Contains(s, "is not on this appliance") })
	_, err := r.appliance.AwaitStage(r.ctx, "artifacts-ready", r.t.Output())
	require.NoError(t, err)

	image := filepath.Join(t.TempDir(), "brought.qcow2")
	r.customized(image)
	operator, err := sandbox.NewUploader(r.ctx, r.appliance, t.TempDir(), "alpha")
	require.NoError(t, err)
	out, err := operator.Artifact(r.ctx, "push", image, "os/brought")
	require.NoError(t, err)
	t.Log("\n" + out)
	began := time.Now()
	r.provisioned()
	t.Logf("installed %s after the upload", time.Since(began).Round(time.Second))
	assert.Equal(t, "brought by an operator\n", r.ssh("cat /etc/brought"))
	r.launched()
	r.agree()
	t.Log("\n" + r.run("kubectl", "-n", "metal3", "get", "bmh", "node1", "-o", "jsonpath={.spec.image}"))
	_, err = operator.Artifact(r.ctx, "rm", "os/brought")
	assert.ErrorContains(t, err, "brought is in use by BareMetalHost metal3/node1; it cannot be removed")
	assert.True(t, box.IsOn())
}

// customized writes the stick's own system with one more file as qcow2.
func (r *room) customized(file string) {
	r.t.Helper()
	raw := filepath.Join(filepath.Dir(file), "system.raw")
	run := func(name string, args ...string) []byte {
		r.t.Helper()
		var said bytes.Buffer
		cmd := exec.CommandContext(r.ctx, name, args...)
		cmd.Stderr = &said
		out, err := cmd.Output()
		require.NoError(r.t, err, "%s %v: %s", name, args, said.String())
		return out
	}
	require.NoError(r.t, r.appliance.Assemble(nodes.System, raw))
	var table struct {
		PartitionTable struct {
			SectorSize int64
			Partitions []struct {
				Start, Size int64
			}
		}
	}
	require.NoError(r.t, json.Unmarshal(run("sfdisk", "--json", raw), &table))
	start, size := int64(0), int64(0)
	for _, p := range table.PartitionTable.Partitions { // the root is the largest
		if p.Size > size {
			start, size = p.Start*table.PartitionTable.SectorSize, p.Size
		}
	}
	note := filepath.Join(filepath.Dir(file), "note")
	require.NoError(r.t, os.WriteFile(note, []byte("brought by an operator\n"), 0o644))
	run("debugfs", "-w", "-R", fmt.Sprintf("write %s /etc/brought", note), fmt.Sprintf("%s?offset=%d", raw, start))
	run("qemu-img", "convert", "-O", "qcow2", raw, file)
}
