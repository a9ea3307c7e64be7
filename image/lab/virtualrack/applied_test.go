package virtualrack

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
)

// The document's names, and what it says of its BMC's password.
const (
	documentHost     = "compute-1"
	documentPassword = "secret-of-bmc"
	documentAddress  = "ipmi://172.31.1.17"
	documentCluster  = "cluster-abc"
)

// documentObjects are the Secret and the BareMetalHost of the document, unchanged but for the address of the BMC and the digest
// of the image, whose URL is the stick's already.
func documentObjects(t *testing.T, bmc, digest string) string {
	t.Helper()
	text, err := os.ReadFile("../../../daemon/metal/metal3/testdata/document.yaml")
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), documentAddress))
	require.Contains(t, string(text), "password: "+documentPassword+"\n")
	sum := regexp.MustCompile(`(?m)^    checksum: \S+$`)
	require.Len(t, sum.FindAllString(string(text), -1), 1)
	return sum.ReplaceAllString(strings.Replace(string(text), documentAddress, bmc, 1), "    checksum: "+digest)
}

// provisioningOfICN is ICN's resource for one server.
const provisioningOfICN = `apiVersion: bpa.akraino.org/v1alpha1
kind: Provisioning
metadata:
  name: provisioning-sample
  labels:
    cluster: ` + documentCluster + `
    owner: c1
spec:
  masters:
    - master-1:
        mac-address: %s
`

// newEmptyRack is a rack of so many nodes, BIOS and UEFI in turn, whose site names networks only, and whose BMCs have the
// document's password. It is not on.
func newEmptyRack(t *testing.T, c command, nodes int) Rack {
	t.Helper()
	o := DefaultOrder()
	o.Image, o.Nodes, o.Firmware, o.EmptySite = c.image(), nodes, Mixed, true
	require.NoError(t, writeRack(c.dir, c.path, o))
	var doc rackDoc
	require.NoError(t, readJSON(filepath.Join(c.dir, rackFile), &doc))
	doc.Password = documentPassword
	require.NoError(t, writeJSON(filepath.Join(c.dir, rackFile), doc))
	if os.Getuid() == 0 {
		require.NoError(t, filepath.WalkDir(c.dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Base(path) == stickImage {
				return err
			}
			return os.Chown(path, nobody, nobody)
		}))
	}
	return Plan(o)
}

// put writes a file on the appliance.
func (c command) put(name, text string) {
	c.t.Helper()
	cmd := c.exec(c.t.Context(), "ssh", Appliance, "cat >"+name)
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.CombinedOutput()
	require.NoError(c.t, err, string(out))
}

// transcript is what is typed on the appliance, and what it answers.
type transcript struct {
	command
	text strings.Builder
}

func (s *transcript) record(typed string) string {
	s.t.Helper()
	out := s.run("ssh", Appliance, typed)
	s.text.WriteString("$ " + typed + "\n" + out)
	return out
}

// TestTwoObjectsAndAMACBecomeACluster has a site of networks alone. The document's two objects are applied as they are,
// and a Provisioning of ICN's that names the server's MAC; nothing else is typed, and the cluster is verified.
func TestTwoObjectsAndAMACBecomeACluster(t *testing.T) {
	c := newCommand(t, "qemu-all")
	rack := newEmptyRack(t, c, 1)
	c.run("up")
	c.until(Appliance, PhaseReady)
	names, err := os.ReadFile(filepath.Join(c.dir, siteFile))
	require.NoError(t, err)
	require.NotContains(t, string(names), "nodes:")

	node := rack.Nodes[0]
	sum, _, _ := strings.Cut(c.run("ssh", Appliance, "cat /usr/share/firstlight/images/os/debian-13.raw.sha256"), " ")
	c.put("host.yaml", documentObjects(t, "ipmi://"+node.BMC.String(), strings.TrimSpace(sum)))
	c.put("provisioning.yaml", fmt.Sprintf(provisioningOfICN, node.Cards[0].MAC))
	s := transcript{command: c}
	began := time.Now()
	assert.Contains(t, s.record("kubectl -n metal3 apply -f host.yaml"), "baremetalhost.metal3.io/compute-1 created")
	assert.Contains(t, s.record("kubectl apply -f provisioning.yaml"), "provisioning-sample created")

	// Nothing is typed until it is there; what is asked meanwhile is for the test's log.
	s.text.WriteString(c.clusterReady(began))
	assert.Contains(t, s.record("kubectl get bpa"), "Ready")
	assert.Contains(t, s.record("kubectl -n metal3 get bmh"), "provisioned")
	assert.Contains(t, s.record("kubectl --kubeconfig /opt/kud/multi-cluster/"+documentCluster+
		"/artifacts/admin.conf get nodes"), " Ready ")
	verified := `kubectl get bpa provisioning-sample -o jsonpath='{.status.conditions[?(@.type=="Verified")].status}{"\n"}'`
	assert.Equal(t, "True\n", s.record(verified))

	// A generator of systemd's found no vsock, and said so on the console as an error.
	assert.NotContains(t, c.run("console", node.Name), "AF_VSOCK")

	t.Log("\n" + s.text.String())
	goldentest.WriteBlock(t, "../../../docs/metal.md", "two objects", s.text.String())
	all := c.processes()
	c.remove(all)
}

// clusterReady waits for the one cluster, and returns each of its messages with the time at which it came. What may
// come right of itself is waited for; the deadline only ends a hung run.
func (c command) clusterReady(began time.Time) string {
	c.t.Helper()
	var all strings.Builder
	last, ctx := "", c.t.Context()
	for {
		phase, message, _ := strings.Cut(c.clusterPhase(ctx), ": ")
		if line := phase + ": " + message; line != last && phase != "" {
			last = line
			fmt.Fprintf(&all, "%6s  %s\n", time.Since(began).Round(time.Second), line)
			c.t.Logf("%s  %s", time.Since(began).Round(time.Second), line)
		}

		require.NotContains(c.t, []string{"Refused", "Failed"}, phase, message)
		if phase == "Ready" {
			return all.String()
		}
		require.Less(c.t, time.Since(began), 3*time.Hour, "%s\n%s", last, c.try("why"))
		time.Sleep(5 * time.Second)
	}
}

func (c command) clusterPhase(ctx context.Context) string {
	out, _ := c.exec(ctx, "ssh", Appliance,
		`kubectl get bpa -o jsonpath='{.items[0].status.phase}: {.items[0].status.message}'`).Output()
	return strings.TrimSpace(string(out))
}
