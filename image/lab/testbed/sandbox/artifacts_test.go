package sandbox_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// uploads is an appliance in a sandbox that takes uploads, and a workstation beside it: programs of
// this machine in the sandbox's network.
type uploads struct {
	*box
	dir string   // the workstation's
	env []string // what the page has its reader set
}

const (
	uploadsReady  = "artifacts-ready"
	artifactsKept = "/var/lib/firstlight/artifacts"
	sampleLength  = 29718177 // of ICN's sample
)

func newUploads(t *testing.T, name string) *uploads {
	root := sandbox.RequireRoot(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	t.Cleanup(cancel)
	programs, err := sandbox.BuildPrograms(ctx, t.TempDir())
	require.NoError(t, err)
	u := &uploads{box: &box{t: t, ctx: ctx, root: root, name: name, dir: t.TempDir(), programs: programs}, dir: t.TempDir()}
	_, err = sandbox.Build(ctx, ".", "./cmd/firstlight", u.dir)
	require.NoError(t, err)
	sample := make([]byte, sampleLength)
	_, _ = rand.NewChaCha8([32]byte{9}).Read(sample) // never fails
	require.NoError(t, os.WriteFile(filepath.Join(u.dir, "app.tar"), sample, 0o644))
	u.begin("[]")
	return u
}

// begin starts an appliance on the DATA that there is, with these nodes in its site, and waits
// until uploads are taken.
func (u *uploads) begin(nodes string) {
	u.t.Helper()
	u.appliance = sandbox.StartAppliance(u.t, u.root, u.programs, u.name, u.box.dir)
	for _, args := range []string{"link add eth0 type veth peer name far0", "link set far0 up", "link set eth0 up"} {
		u.run("ip", strings.Fields(args)...)
	}
	u.site(nodes)
	u.run("systemctl", "start", "firstlightd")
	u.await()
	authority, err := os.ReadFile(u.appliance.DataPath("/var/lib/firstlight/ca/ca.crt"))
	require.NoError(u.t, err)
	require.NoError(u.t, os.WriteFile(filepath.Join(u.dir, "ca.crt"), authority, 0o644))
}

func (u *uploads) site(nodes string) {
	u.t.Helper()
	require.NoError(u.t, u.appliance.WriteSite("name: sandbox\nartifacts: {s3: true}\nnetworks: {provisioning: {interface: eth0}}\nnodes: "+nodes+"\n"))
}

func (u *uploads) await() {
	u.t.Helper()
	_, err := u.appliance.AwaitStage(u.ctx, uploadsReady, u.t.Output())
	require.NoError(u.t, err)
}

// sh runs a script on the workstation and returns all that it printed.
func (u *uploads) sh(script string) (string, error) {
	cmd := exec.CommandContext(u.ctx, "nsenter", "--target", strconv.Itoa(u.appliance.PID()), "--net", "sh", "-c", script)
	cmd.Dir = u.dir
	cmd.Env = append(os.Environ(), "H=https://172.22.0.1:9015", "CA=ca.crt", "PATH="+u.dir+":"+os.Getenv("PATH"))
	cmd.Env = append(cmd.Env, u.env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (u *uploads) must(script string) string {
	u.t.Helper()
	out, err := u.sh(script)
	require.NoError(u.t, err, "%s\n%s", script, out)
	return out
}

// setCLI is what the page has its reader set for `firstlight artifact`.
const setCLI = "export FIRSTLIGHT_SERVER=$H FIRSTLIGHT_CA=$CA FIRSTLIGHT_TOKEN=$TOKEN\n"

// page returns the blocks of a section of docs/artifacts.md: commands and what they print.
func page(t *testing.T, section string) (commands, prints []string) {
	return pageOf(t, "artifacts.md", section)
}

func pageOf(t *testing.T, name, section string) (commands, prints []string) {
	top, err := bench.FindTop()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(top, "docs", name))
	require.NoError(t, err)
	_, part, found := strings.Cut(string(text), "\n## "+section+"\n")
	require.True(t, found, section)
	part, _, _ = strings.Cut(part, "\n## ")
	for _, m := range regexp.MustCompile("(?ms)^```(sh|text)\n(.*?)^```$").FindAllStringSubmatch(part, -1) {
		if m[1] == "sh" {
			commands = append(commands, m[2])
		} else {
			prints = append(prints, m[2])
		}
	}
	return commands, prints
}

// inOrder holds that lines stand in a text one after the other.
func inOrder(t *testing.T, lines, text string) {
	t.Helper()
	for line := range strings.Lines(lines) {
		line = strings.TrimSpace(line)
		_, rest, found := strings.Cut(text, line)
		require.True(t, found, "%q does not follow in:\n%s", line, text)
		text = rest
	}
}

// login runs the page's first block on the appliance and takes the token that it makes.
func (u *uploads) login(commands string) {
	u.t.Helper()
	lines := strings.Split(strings.TrimSpace(u.run("sh", "-ec", commands+`echo "$TOKEN"`)), "\n")
	u.env = []string{"TOKEN=" + lines[len(lines)-1]}
}

// object is the file in which the store keeps an artifact.
func (u *uploads) object(bucket, name string) string {
	return u.appliance.DataPath(artifactsKept + "/" + artifact.StoreDir + "/" + bucket + "/" + name)
}

// TestUploadsToTheAppliance does what docs/artifacts.md tells its readers to do, as it stands
// there, with a token of the appliance's own, and uses what was brought.
func TestUploadsToTheAppliance(t *testing.T) {
	u := newUploads(t, "uploads")
	commands, prints := page(t, "By curl")
	require.Len(t, commands, 3)
	require.Len(t, prints, 2)
	u.login(commands[0])
	helper, _, _ := strings.Cut(commands[1], "\n\n")
	for i, script := range commands[1:] {
		if i > 0 {
			script = helper + "\n" + script
		}
		out := u.must(script)
		t.Logf("\n%s", out)
		inOrder(t, prints[i], out)
	}
	info, err := os.Stat(u.object("container", "alpha/beta/qwerty123"))
	require.NoError(t, err)
	assert.Equal(t, int64(sampleLength), info.Size(), "the object in the store")

	u.s3(helper)
	u.scriptOfICN()
	commands, prints = page(t, "By `firstlight artifact`")
	require.Len(t, commands, 1)
	out := u.must(commands[0])
	t.Logf("\n%s", out)
	inOrder(t, prints[0], out)

	granted := u.run("firstlightd", "uploader", "delta")
	pushed := u.must(granted + "firstlight artifact push app.tar container/app-2 --owner delta --cluster beta")
	t.Logf("\n%s", pushed)
	assert.Contains(t, pushed, "complete")

	u.strangers()
	u.deploy()
	u.bundle()
	status := u.run("firstlightd", "status")
	t.Logf("\n%s", status)
	assert.Contains(t, status, "artifacts              https://172.22.0.1:9015: ")
	metrics := u.must(u.metrics())
	for _, name := range []string{`firstlight_artifacts{collection="os_images"}`, "firstlight_artifact_disk_free_bytes"} {
		assert.Contains(t, metrics, name)
	}
	t.Log("\n" + u.run("kubectl", "-n", "artifacts", "get", "pods", "-o", "wide"))
}

// s3 runs the page's commands by S3: a key is minted, used, and revoked.
func (u *uploads) s3(helper string) {
	u.t.Helper()
	commands, prints := page(u.t, "By S3")
	require.Len(u.t, commands, 3)
	require.Len(u.t, prints, 2)
	key := u.run("sh", "-c", commands[0]+"\nprintf %s \"$S3KEY\"")
	key = strings.TrimSpace(key[strings.LastIndex(strings.TrimSpace(key), "\n")+1:])
	require.Regexp(u.t, "^FL[A-Z2-7]{18}:.{43}$", key)
	u.env = append(u.env, "S3KEY="+key)
	out := u.must(helper + "\n" + commands[1])
	u.t.Logf("\n%s", out)
	inOrder(u.t, prints[0], out)

	u.t.Log("\n" + u.run("kubectl", "get", "service", "minio-service", "-o", "wide"))
	revoke, rest, _ := strings.Cut(commands[2], "\nsleep 15\n")
	u.run("sh", "-c", revoke)
	time.Sleep(15 * time.Second) // as the page has its reader wait
	define, _, _ := strings.Cut(commands[1], "\ns3 ")
	out = u.must(define + "\n" + rest)
	u.t.Logf("\n%s", out)
	inOrder(u.t, prints[1], out)

	_, secret, _ := strings.Cut(key, ":")
	assert.NotContains(u.t, u.run("kubectl", "-n", "artifacts", "logs", "deployment/artifacts"), secret)
}

// scriptOfICN runs the page's script by the names of ICN's Services, as a pod would reach them: by the address that the
// resolver of the cluster gives for the name.
func (u *uploads) scriptOfICN() {
	u.t.Helper()
	commands, prints := page(u.t, "A script of ICN")
	require.Len(u.t, commands, 1)
	addr := u.run("kubectl", "get", "service", "bpa-api-service", "-o", "jsonpath={.spec.clusterIP}")
	require.Equal(u.t, "10.96.0.15", strings.TrimSpace(addr))
	resolve := "resolve = \"bpa-api-service:9015:" + strings.TrimSpace(addr) + "\"\n"
	require.NoError(u.t, os.WriteFile(filepath.Join(u.dir, ".curlrc"), []byte(resolve), 0o600))
	env := u.env
	u.env = append(env, "CURL_HOME="+u.dir)
	defer func() { u.env = env }()
	out := u.must(commands[0])
	u.t.Logf("\n%s", out)
	inOrder(u.t, prints[0], out)
	store := u.run("kubectl", "get", "service", "minio-service", "-o", "jsonpath={.spec.clusterIP}:{.spec.ports[0].port}")
	assert.Equal(u.t, "10.96.0.16:9000", strings.TrimSpace(store), "the site serves S3")
}

// metrics gives the token the right to read metrics, and reads them.
func (u *uploads) metrics() string {
	u.run("kubectl", "create", "clusterrole", "metrics", "--verb=get", "--non-resource-url=/metrics")
	u.run("kubectl", "create", "clusterrolebinding", "metrics", "--clusterrole=metrics", "--serviceaccount=alpha:uploader")
	return `curl --silent --fail --cacert $CA --header "Authorization: Bearer $TOKEN" $H/metrics`
}

// strangers are refused: without credentials and with others'.
func (u *uploads) strangers() {
	const ask = `curl --silent --output answer --write-out '%{http_code}' --cacert $CA `
	for _, route := range []string{"/openapi.json", "/metrics", "/v1/baremetalcluster/alpha/beta/os_images", "/v1/baremetalcluster/alpha/beta/os_images/x/content", "/nowhere"} {
		assert.Equal(u.t, "401", u.must(ask+"$H"+route), route)
		assert.Equal(u.t, "401", u.must(ask+"--header 'Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.e30.x' $H"+route), route)
	}
	const others = `--header "Authorization: Bearer $TOKEN" $H/v1/baremetalcluster/gamma/beta/os_images; cat answer`
	answer := u.must(ask + others)
	u.t.Log(answer)
	assert.Contains(u.t, answer, "403")
	assert.Contains(u.t, answer, "system:serviceaccount:alpha:uploader may not list os_images in gamma")
}

// deploy brings an OS image, finds it where nodes are installed from, and is refused to take it
// away from a host.
func (u *uploads) deploy() {
	t := u.t
	disk := make([]byte, 3<<20)
	_, _ = rand.NewChaCha8([32]byte{10}).Read(disk) // never fails
	disk[510], disk[511] = 0x55, 0xaa
	sum := sha256.Sum256(disk)
	digest := hex.EncodeToString(sum[:])
	require.NoError(t, os.WriteFile(filepath.Join(u.dir, "tiny.raw"), disk, 0o644))
	t.Log("\n" + u.must(setCLI+"firstlight artifact push tiny.raw os/tiny --owner alpha --cluster beta"))
	const url = "http://172.22.0.1:6180/artifacts/alpha/beta/tiny"
	got := ""
	for u.ctx.Err() == nil && !strings.Contains(got, "206") {
		time.Sleep(200 * time.Millisecond)
		got = u.must("curl --silent --include --range 510-511 --output part " + url + "; head -c 400 part | strings | head -1; curl --silent --head " + url)
	}
	t.Logf("\n%s", got)
	assert.Contains(t, got, digest, "the server says the sha256")
	u.must("curl --silent --fail --output whole " + url + " && cmp whole tiny.raw")

	// The site may name it. That this node's BMC does not answer is another matter.
	has := "is not on this appliance; it has alpha.beta.tiny, debian-13 (uploads by their full names, or by name and os.sha256)"
	for _, c := range []struct{ image, complaint string }{
		{"tinier", `os.image "tinier" ` + has},
		{"alpha.beta.tiny", ""},
		{"tiny", `os.image "tiny" ` + has},
		{"tiny, sha256: " + digest, ""},
	} {
		name, complaint := c.image, c.complaint
		u.site("[{name: node-1, bootMAC: '52:54:00:00:00:01', rootDevice: {deviceName: /dev/vda}, bmc: {address: 'ipmi://192.0.2.1', username: a, password: b}, os: {image: " + name + "}}]")
		u.run("firstlightd", "reload")
		assert.Eventually(t, func() bool {
			d, err := u.appliance.Status(u.ctx)
			if err != nil || len(d.Nodes) != 1 {
				return false
			}
			text, _ := json.Marshal(d.Nodes[0])
			said := strings.ReplaceAll(string(text), `\"`, `"`)
			if complaint == "" {
				return !strings.Contains(said, "is not on this appliance")
			}
			return strings.Contains(said, complaint)
		}, 5*time.Minute, time.Second, name)
		t.Logf("os.image %s:\n%s", name, u.run("firstlightd", "status"))
	}
	u.site("[]")
	u.run("firstlightd", "reload")

	u.apply(fmt.Sprintf("{apiVersion: metal3.io/v1alpha1, kind: BareMetalHost, metadata: {name: user, namespace: metal3, annotations: {baremetalhost.metal3.io/paused: test}}, "+
		"spec: {online: true, bootMACAddress: '52:54:00:00:00:09', image: {url: %q, checksum: %q, checksumType: sha256, format: raw}}}", url, digest))
	refused, err := u.sh(setCLI + "firstlight artifact rm os/tiny --owner alpha --cluster beta")
	t.Log("\n" + refused)
	assert.Error(t, err)
	assert.Contains(t, refused, "tiny is in use by BareMetalHost metal3/user; it cannot be removed")
	u.run("kubectl", "-n", "metal3", "patch", "bmh", "user", "--type=merge", "-p", `{"spec":{"image":null}}`)
	u.must(setCLI + "firstlight artifact rm os/tiny --owner alpha --cluster beta")
	assert.Eventually(t, func() bool {
		return u.must("curl --silent --output answer --write-out '%{http_code}' "+url) == "404"
	}, 5*time.Minute, 200*time.Millisecond, "it is not offered any more")
}

func (u *uploads) apply(text string) {
	u.t.Helper()
	require.NoError(u.t, u.appliance.Apply(u.ctx, text))
}

// slowUpload sends the rest of the sample from an offset on, 10 MiB a second, until it is cut, and
// returns what curl printed.
func (u *uploads) slowUpload(offset int64) (wait func() string) {
	file, err := os.Open(filepath.Join(u.dir, "app.tar"))
	require.NoError(u.t, err)
	u.t.Cleanup(func() { file.Close() })
	_, err = file.Seek(offset, io.SeekStart)
	require.NoError(u.t, err)
	cmd := exec.CommandContext(u.ctx, "nsenter", "--target", strconv.Itoa(u.appliance.PID()), "--net", "curl", "--silent", "--show-error", "--include", "--cacert", "ca.crt",
		"--limit-rate", "10M", "--header", "Authorization: Bearer "+strings.TrimPrefix(u.env[0], "TOKEN="), "--header", fmt.Sprintf("Upload-Offset: %d", offset),
		"--request", "PATCH", "--upload-file", "-", "https://172.22.0.1:9015/v1/baremetalcluster/alpha/beta/binary_images/sample")
	var out bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = u.dir, file, &out, &out
	require.NoError(u.t, cmd.Start())
	return func() string {
		_ = cmd.Wait() // it is cut
		return out.String()
	}
}

func (u *uploads) offset() int64 {
	u.t.Helper()
	var r artifact.Metadata
	for u.ctx.Err() == nil {
		out, err := u.sh(`curl --silent --fail --cacert $CA --header "Authorization: Bearer $TOKEN" $H/v1/baremetalcluster/alpha/beta/binary_images/sample`)
		if err == nil && json.Unmarshal([]byte(out), &r) == nil {
			return r.ImageOffset
		}
		time.Sleep(200 * time.Millisecond) // the agent or the API server is not there yet
	}
	require.NoError(u.t, u.ctx.Err())
	return 0
}
