package scenario_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/uuid"

	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox/nodes"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
	"firstlight.dev/firstlight/image/lab/testbed/simulator"
)

// inSandbox is what a machine wants that is none of its own: there is no systemd, and its cgroups, its kernel and its
// modules are this machine's.
const inSandbox = `#!/bin/sh
set -eu
mkdir -p /etc/containerd/conf.d
sed '/^imports/d; s/SystemdCgroup = true/SystemdCgroup = false/
	/sandbox_image/a restrict_oom_score_adj = true' /usr/lib/firstlight/containerd.toml >/etc/containerd/conf.d/sandbox.toml
systemctl restart containerd
[ ! -e /run/kubeadm/kubeadm.yaml ] || cat >>/run/kubeadm/kubeadm.yaml <<'END'
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
localStorageCapacityIsolation: false
END
`

// cloudConfig has cloud-init read its data from the disk, and do of them what a sandbox can do.
const cloudConfig = `datasource_list: [NoCloud]
network: {config: disabled}
cloud_init_modules: [write_files]
cloud_config_modules: [runcmd]
cloud_final_modules: [scripts_user]
`

// systems are the installed systems of simulated servers: each is a sandbox that its own cloud-init makes a node.
type systems struct {
	t       *testing.T
	ctx     context.Context
	d       *scenario.Scenario
	image   string // the servers' system
	root    string // see sandbox.RootTree
	manager string // the first process of each

	booted map[string]*sandbox.Sandbox
	disks  map[string]disk
	hangs  map[string]int  // by server: its boots so far; its system stands still until the next one
	broken map[string]bool // systems that never come up again
}

// disk is what was installed on a server.
type disk struct {
	dir    string
	drives int // config drives that the server had got by then
}

// newSystems gives the appliance the program for nodes of the sources at hand, before it makes packages of it.
func newSystems(t *testing.T, ctx context.Context, d *scenario.Scenario) *systems {
	s := &systems{
		t:      t,
		ctx:    ctx,
		d:      d,
		image:  filepath.Join(t.TempDir(), "system.raw"),
		root:   sandbox.RequireRoot(t),
		booted: map[string]*sandbox.Sandbox{},
		disks:  map[string]disk{},
		hangs:  map[string]int{},
		broken: map[string]bool{},
	}
	require.NoError(t, d.Sandbox.Assemble(nodes.System, s.image))
	var err error
	s.manager, err = sandbox.Build(ctx, ".", "./image/lab/testbed/sandbox/systemctl", t.TempDir())
	require.NoError(t, err)
	program, err := sandbox.Build(ctx, ".", "./cmd/firstlight-node", t.TempDir())
	require.NoError(t, err)
	text, err := os.ReadFile(program)
	require.NoError(t, err)
	require.NoError(t, d.Sandbox.WriteFile("/usr/local/bin/firstlight-node", text, 0o755))
	run(t, ctx, d, "sh", "-euc", "for f in "+stick.LowerDir+"/usr/share/firstlight/images/layers/*/fs/usr/bin/firstlight-node; do "+
		"mount --bind /usr/local/bin/firstlight-node $f; done")
	t.Cleanup(func() {
		for name, server := range s.booted {
			if t.Failed() {
				for _, file := range []string{"/var/log/cloud-init.log", "/var/log/node.log"} {
					text, _ := os.ReadFile(server.Path(file))
					t.Logf("%s of %s:\n%s", file, name, end(string(text), 8000))
				}
				for _, unit := range []string{"kubelet.service", "containerd.service", "firstlight-float.service"} {
					t.Logf("%s of %s:\n%s", unit, name, end(server.UnitLog(unit), 3000))
				}
			}
			assert.NoError(t, server.Close())
		}
	})
	return s
}

// follow starts the system of each server that boots from its disk, and ends that of each that is switched off.
func (s *systems) follow() {
	for i, h := range s.d.Servers.Hosts() {
		server := s.booted[h.Name]
		boots, hangs := s.hangs[h.Name]
		switch on := h.State() == simulator.OnDisk; {
		case on && server == nil && !s.broken[h.Name] && (!hangs || h.Counters().Boots > boots):
			delete(s.hangs, h.Name)
			s.boot(h, fmt.Sprintf("172.22.0.%d/24", 211+i))
		case !on && server != nil && h.State() == simulator.Off:
			s.stop(h.Name)
		}
	}
}

func (s *systems) stop(name string) {
	require.NoError(s.t, s.booted[name].Close())
	delete(s.booted, name)
}

// hang has a system stand still until its server is switched off and on.
func (s *systems) hang(name string) {
	s.stop(name)
	for _, h := range s.d.Servers.Hosts() {
		if h.Name == name {
			s.hangs[name] = h.Counters().Boots
		}
	}
}

// destroy has a system stand still for good.
func (s *systems) destroy(name string) {
	s.stop(name)
	s.broken[name] = true
}

// boot starts a server's system: a new one with the config drive that it got last, or again the one that is there.
func (s *systems) boot(h *simulator.Server, addr string) {
	drives := h.ReceivedDrives()
	has := s.disks[h.Name]
	isNew := has.drives != len(drives)
	if isNew {
		has = disk{dir: filepath.Join(s.t.TempDir(), h.Name), drives: len(drives)}
		s.disks[h.Name] = has
	}

	server, err := sandbox.Start(s.ctx, sandbox.Config{
		Name:      "objects-" + h.Name,
		Root:      s.root,
		DiskImage: s.image,
		Disk:      true,
		Dir:       has.dir,
		Manager:   s.manager,
		Log:       s.t.Output(),
		Keep:      []string{"/var/lib/containerd", "/var/lib/kubelet", "/var/lib/etcd", "/var/log"},
	})
	require.NoError(s.t, err)
	s.booted[h.Name] = server
	require.NoError(s.t, s.d.Wire().Connect(s.ctx, server.PID(), "port-"+h.Name, "eth0"))
	if isNew {
		s.install(server, drives[len(drives)-1])
	}

	_, err = server.Run(s.ctx, "sh", "-euc", "ip address add "+addr+" dev eth0; systemctl start containerd; systemctl default kubelet firstlight-float")
	require.NoError(s.t, err)
	if !isNew {
		s.t.Logf("%s boots again", h.Name)
		return
	}
	s.t.Logf("%s boots", h.Name)
	init := server.Command(s.ctx, "sh", "-c", "exec >/var/log/node.log 2>&1; cloud-init init --local; cloud-init init; "+
		"cloud-init modules --mode=config; cloud-init modules --mode=final")
	require.NoError(s.t, init.Start())
	go func() { _ = init.Wait() }()
}

// install writes what is on a new server's disk.
func (s *systems) install(server *sandbox.Sandbox, drive []byte) {
	user, meta := readDrive(s.t, drive)
	_ = os.Remove(server.Path("/etc/resolv.conf")) // of a resolver that does not run here
	for path, text := range map[string]string{
		"/etc/resolv.conf":                      "",
		"/etc/machine-id":                       strings.ReplaceAll(string(uuid.NewUUID()), "-", "") + "\n",
		"/etc/in-sandbox":                       inSandbox,
		"/etc/cloud/cloud.cfg.d/99-sandbox.cfg": cloudConfig,
		"/var/lib/cloud/seed/nocloud/user-data": user,
		"/var/lib/cloud/seed/nocloud/meta-data": meta,
	} {
		require.NoError(s.t, server.WriteFile(path, []byte(text), 0o755))
	}
}

// readDrive finds user data and metadata in the image of a config drive, where each file is in one piece.
func readDrive(t *testing.T, drive []byte) (user, meta string) {
	t.Helper()
	begin := bytes.Index(drive, []byte("Content-Type: multipart/mixed; boundary="))
	require.Positive(t, begin, "user data is not that of the bootstrap provider with the appliance's behind it")
	boundary, _, _ := strings.Cut(string(drive[begin:][len(`Content-Type: multipart/mixed; boundary="`):]), `"`)
	last := "--" + boundary + "--\n"
	length := bytes.Index(drive[begin:], []byte(last))
	require.Positive(t, length)
	user = string(drive[begin:][:length+len(last)])

	key := bytes.Index(drive, []byte(`"metal3-name"`))
	for start := bytes.LastIndexByte(drive[:max(key, 0)], '{'); start >= 0; start = bytes.LastIndexByte(drive[:start], '{') {
		values := map[string]any{}
		if json.NewDecoder(bytes.NewReader(drive[start:])).Decode(&values) == nil && values["metal3-name"] != nil {
			values["instance-id"] = values["uuid"]
			text, err := json.Marshal(values)
			require.NoError(t, err)
			return user, string(text)
		}
	}
	require.Fail(t, "the config drive has no metadata of its host")
	return "", ""
}

// until waits for something while servers boot.
func (s *systems) until(what string, holds func() bool) {
	s.t.Helper()
	began := time.Now()
	for ; !holds(); time.Sleep(time.Second) {
		require.NoError(s.t, s.ctx.Err(), what)
		s.follow()
	}
	s.t.Logf("%s after %.0f s", what, time.Since(began).Seconds())
}

// ask is what a command prints, "" if it fails.
func (s *systems) ask(name string, args ...string) string {
	out, err := s.d.Sandbox.Run(s.ctx, name, args...)
	if err != nil {
		return ""
	}
	return out
}

// ignored begins what each of kubeadm's registrations of a node does not check.
const ignored = "ignorePreflightErrors: [NumCPU"

// changeClass has the appliance's class give machines in sandboxes what they want.
func (s *systems) changeClass() {
	const file = "clusterclass-firstlight.yaml"
	text, err := os.ReadFile(filepath.Join(filepath.Dir(template), file))
	require.NoError(s.t, err)
	changed := s.forSandboxes(string(text))
	path := strings.TrimSpace(run(s.t, s.ctx, s.d, "sh", "-euc", "ls /usr/share/firstlight/cluster-api/infrastructure-metal3/*/"+file))
	require.NoError(s.t, s.d.Sandbox.WriteFile(path, []byte(changed), 0o644))
}

// forSandboxes has templates of machines install what a sandbox wants besides, and not refuse it.
func (s *systems) forSandboxes(text string) string {
	const install = "node-setup install"
	require.Contains(s.t, text, install)
	require.Equal(s.t, 3, strings.Count(text, ignored))
	text = strings.ReplaceAll(text, ignored, ignored+", SystemVerification, Swap, FileContent--proc-sys-net-bridge-bridge-nf-call-iptables")
	return strings.ReplaceAll(text, install, install+", /etc/in-sandbox")
}
