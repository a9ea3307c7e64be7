package nodesetup

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/manifest"
)

var appliance = Appliance{
	Addresses:   []netip.Addr{netip.MustParseAddr("172.22.0.1"), netip.MustParseAddr("10.10.110.1")},
	Authority:   []byte("-----CERTIFICATE-----\n"),
	PackagesKey: []byte("-----KEY-----"),
}

// pull is a call that gets an image.
const pull = "\nctr --namespace k8s.io images pull --hosts-dir /etc/containerd/certs.d "

// machine is a directory that passes for a machine's root, with programs that note how they are called.
type machine struct {
	t    *testing.T
	root string
}

// newMachine has the programs, each with what it prints by its arguments.
func newMachine(t *testing.T, programs map[string]string) *machine {
	m := &machine{t, t.TempDir()}
	for name, text := range programs {
		m.write("bin/"+name, "#!/bin/sh\necho "+name+` "$@" >>`+m.root+"/calls\n"+text)
	}
	return m
}

func (m *machine) write(name, text string) {
	path := filepath.Join(m.root, name)
	require.NoError(m.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(m.t, os.WriteFile(path, []byte(text), 0o755))
}

func (m *machine) read(name string) string {
	text, err := os.ReadFile(filepath.Join(m.root, name))
	require.NoError(m.t, err)
	return strings.ReplaceAll(string(text), m.root, "")
}

// run runs the script with its paths in the machine's root.
func (m *machine) run(args ...string) (string, error) {
	text, err := Render(appliance)
	require.NoError(m.t, err)
	moved := string(text)
	for _, top := range []string{"/etc/", "/run/"} {
		moved = strings.ReplaceAll(moved, top, m.root+top)
	}
	m.write("node-setup", moved)
	cmd := exec.Command("sh", append([]string{filepath.Join(m.root, "node-setup")}, args...)...)
	cmd.Env = []string{"PATH=" + filepath.Join(m.root, "bin") + ":" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// What the bootstrap provider writes for the machine that makes the control plane, as far as it is read.
const initFile = `---
apiServer: {}
apiVersion: kubeadm.k8s.io/v1beta4
controlPlaneEndpoint: 172.22.0.100:6443
kind: ClusterConfiguration
networking:
  dnsDomain: cluster.local
  podSubnet: 10.245.0.0/16
  serviceSubnet: 10.97.0.0/16
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {}
`

const joinFile = `apiVersion: kubeadm.k8s.io/v1beta4
controlPlane:
  localAPIEndpoint: {}
discovery:
  bootstrapToken:
    apiServerEndpoint: "172.22.0.100:6443"
kind: JoinConfiguration
`

// The second of the appliance's addresses answers, and the machine has no default route.
func TestInstallPointsAMachineAtTheAppliance(t *testing.T) {
	m := newMachine(t, map[string]string{
		"timeout":   `case "$*" in *"ctr "*) shift; exec "$@" ;; *10.10.110.1/6180) ;; *) exit 1 ;; esac`,
		"systemctl": "",
		"apt-get":   `[ -e ` + "$0.tried" + ` ] || { touch $0.tried; exit 100; }`,
		"sleep":     "",
		"ctr":       `[ -e ` + "$0.tried" + ` ] || { touch $0.tried; exit 1; }`,
		"nproc":     "echo 2",
		"ip":        `case "$*" in *"get 10.10.110.1") echo "10.10.110.1 dev eth0 src 10.10.110.17 uid 0" ;; esac`,
	})
	m.write("run/kubeadm/kubeadm.yaml", initFile)
	out, err := m.run("install")
	require.NoError(t, err, out)

	assert.Contains(t, m.read("etc/apt/sources.list.d/firstlight.sources"), "URIs: http://10.10.110.1:6180/debian\n")
	assert.Contains(t, m.read("etc/containerd/certs.d/_default/hosts.toml"), `[host."https://10.10.110.1:5000"]`)
	assert.Contains(t, m.read("etc/systemd/timesyncd.conf.d/60-firstlight.conf"), "NTP=10.10.110.1\n")
	assert.Equal(t, string(appliance.Authority), m.read("etc/firstlight/ca.crt"))
	assert.Equal(t, "-----KEY-----\n", m.read("etc/firstlight/packages.asc"))
	assert.Equal(t, "KUBELET_EXTRA_ARGS=--node-ip=10.10.110.17\n", m.read("etc/default/kubelet"))
	made := m.read("run/kubeadm/kubeadm.yaml")
	assert.Contains(t, made, "localAPIEndpoint: {advertiseAddress: 10.10.110.17}\n")
	assert.Equal(t, 1, strings.Count(made, "kind: KubeProxyConfiguration\nmode: nftables\n"))

	const only = " -o Dir::Etc::sourcelist=/etc/apt/sources.list.d/firstlight.sources -o Dir::Etc::sourceparts=- "
	calls := m.read("calls")
	assert.Equal(t, 2, strings.Count(calls, only+"-o DPkg::Lock::Timeout=600 update\n"), "it gave up, or asked elsewhere: %s", calls)
	assert.Contains(t, calls, " install kubelet kubeadm kubectl firstlight-node\n", "one run of apt has all that a control plane needs")
	assert.Equal(t, 2, strings.Count(calls, pull+manifest.NodeImage+"\n"), "it gave up when containerd was started again: %s", calls)
	for _, image := range manifest.ControlPlaneImages()[1:] {
		assert.Equal(t, 1, strings.Count(calls, pull+image+"\n"), image)
	}
	assert.Contains(t, calls, "systemctl set-property system.slice CPUWeight=20\n")
	assert.Equal(t, manifest.PatientKubelet, m.read("etc/firstlight/patches/kubeletconfiguration+merge.yaml"))
	for _, part := range manifest.StaticPods() {
		assert.Contains(t, m.read("etc/firstlight/patches/"+part+"+strategic.yaml"), "livenessProbe: {periodSeconds: 60,")
	}

	_, err = m.run("install")
	require.NoError(t, err)
	assert.Equal(t, made, m.read("run/kubeadm/kubeadm.yaml"), "a second run changes nothing")
}

// With a default route kubeadm and the kubelet find their address as everywhere.
func TestInstallLeavesAddressesToADefaultRoute(t *testing.T) {
	m := newMachine(t, map[string]string{
		"timeout": "", "systemctl": "", "apt-get": "", "nproc": "echo 8", "ip": `echo default via 172.22.0.1 dev eth0`,
		"ctr": "",
	})
	m.write("run/kubeadm/kubeadm-join-config.yaml", joinFile)
	out, err := m.run("install")
	require.NoError(t, err, out)
	assert.Equal(t, joinFile, m.read("run/kubeadm/kubeadm-join-config.yaml"))
	assert.NoFileExists(t, filepath.Join(m.root, "etc/default/kubelet"))
	assert.NotContains(t, m.read("calls"), "CPUWeight", "it has processors for all")
}

// A worker gets what a worker runs, and one that has no images yet is a node all the same.
func TestAWorkerGetsItsImages(t *testing.T) {
	m := newMachine(t, map[string]string{
		"timeout": `case "$*" in *"ctr "*) shift; exec "$@" ;; esac`, "systemctl": "", "apt-get": "", "sleep": "", "nproc": "echo 8",
		"ip": `echo default via 172.22.0.1 dev eth0`, "ctr": `case "$*" in *pause*) exit 1 ;; esac`,
	})
	m.write("run/kubeadm/kubeadm-join-config.yaml", strings.ReplaceAll(joinFile, "controlPlane:\n  localAPIEndpoint: {}\n", ""))
	out, err := m.run("install")
	require.NoError(t, err, out)

	calls := m.read("calls")
	assert.Contains(t, calls, " install kubelet kubeadm kubectl\n")
	assert.Equal(t, 5, strings.Count(calls, pull+manifest.NodeImage+"\n"))
	assert.NotContains(t, calls, "/etcd:")
	assert.NotContains(t, out, "images are there")
}

func TestFloatTakesTheEndpointThatKubeadmHas(t *testing.T) {
	for name, text := range map[string]string{"kubeadm.yaml": initFile, "kubeadm-join-config.yaml": joinFile} {
		m := newMachine(t, map[string]string{"systemctl": "", "apt-get": ""})
		m.write("run/kubeadm/"+name, text)
		out, err := m.run("float")
		require.NoError(t, err, out)
		assert.Equal(t, "ENDPOINT=172.22.0.100:6443\n", m.read("etc/firstlight/float"), name)
		assert.Contains(t, m.read("calls"), " install firstlight-node\n")
		assert.Contains(t, m.read("calls"), "systemctl enable --now firstlight-float.service\n")
	}
}

func TestTheFirstControlPlaneMakesTheNetwork(t *testing.T) {
	kubectl := `case "$*" in
*"get configmap"*) printf 'data:\n  Corefile: |\n    .:53 {\n        ready\n        forward . /etc/resolv.conf {\n           max_concurrent 1000\n        }\n        cache 30\n    }\n' ;;
*) cat >>$0.stdin ;;
esac`
	m := newMachine(t, map[string]string{"kubectl": kubectl})
	m.write("etc/resolv.conf", "search lab\n")
	out, err := m.run("network")
	require.NoError(t, err, out)
	assert.NoFileExists(t, filepath.Join(m.root, "calls"), "one that joins finds the network there")

	m.write("run/kubeadm/kubeadm.yaml", initFile)
	out, err = m.run("network")
	require.NoError(t, err, out)
	said := m.read("bin/kubectl.stdin")
	assert.NotContains(t, said, "forward")
	assert.Contains(t, said, "        ready\n        cache 30\n", "only what needs a name server is taken away")
	assert.Contains(t, said, `network, --node=$(NODE), "--pods=10.245.0.0/16", "--services=10.97.0.0/16"]`)
	assert.Contains(t, said, `{name: KUBERNETES_SERVICE_HOST, value: "172.22.0.100"}`)
	assert.Contains(t, said, `{name: KUBERNETES_SERVICE_PORT, value: "6443"}`)
	assert.NotContains(t, said, "@")

	m = newMachine(t, map[string]string{"kubectl": kubectl})
	m.write("etc/resolv.conf", "nameserver 172.22.0.1\n")
	m.write("run/kubeadm/kubeadm.yaml", initFile)
	_, err = m.run("network")
	require.NoError(t, err)
	assert.NotContains(t, m.read("calls"), "configmap", "names are asked of the name server that there is")
}

// kubeadm's name server is asked as often as ours; a cluster that has another one is left alone.
func TestTheNameServerIsReadyAsSoonAsItAnswers(t *testing.T) {
	const patch = "kubectl -n kube-system patch deployment.apps/coredns --patch spec: {template: {spec: {containers: " +
		"[{name: coredns, readinessProbe: {periodSeconds: 2}}]}}}\n"
	for _, c := range []struct {
		found string
		want  int
	}{{"deployment.apps/coredns", 1}, {"", 0}} {
		m := newMachine(t, map[string]string{"sleep": "", "kubectl": `case "$*" in
*"get deployment"*)
	[ -e $0.tried ] || { touch $0.tried; exit 1; }
	echo ` + c.found + `
	;;
esac`})
		m.write("etc/resolv.conf", "nameserver 172.22.0.1\n")
		m.write("run/kubeadm/kubeadm.yaml", initFile)
		out, err := m.run("network")
		require.NoError(t, err, out)

		calls := m.read("calls")
		assert.Equal(t, c.want, strings.Count(calls, patch), calls)
		assert.Equal(t, 1, strings.Count(calls, "kubectl apply -f -\n"), "the network is made once it is known")
	}
}

// The API server begins to answer between two questions: what the first one would have led to is not left out.
func TestTheNameServerIsAskedUntilThereIsAnAnswer(t *testing.T) {
	m := newMachine(t, map[string]string{"sleep": "", "kubectl": `case "$*" in
*"get configmap"*)
	[ -e $0.tried ] || { touch $0.tried; exit 1; }
	printf 'data:\n  Corefile: |\n    .:53 {\n        forward . /etc/resolv.conf {\n        }\n    }\n'
	;;
*) cat >>$0.stdin ;;
esac`})
	m.write("etc/resolv.conf", "search lab\n")
	m.write("run/kubeadm/kubeadm.yaml", initFile)
	out, err := m.run("network")
	require.NoError(t, err, out)
	assert.Contains(t, m.read("calls"), "kubectl replace -f -\n")
	assert.NotContains(t, m.read("bin/kubectl.stdin"), "forward")
}

func TestRefusals(t *testing.T) {
	m := newMachine(t, nil)
	out, err := m.run("dance")
	require.Error(t, err)
	assert.Contains(t, out, "usage: node-setup install | float | network")

	_, err = Render(Appliance{Authority: []byte("a"), PackagesKey: []byte("b")})
	require.ErrorContains(t, err, "missing")
	_, err = Render(Appliance{Addresses: appliance.Addresses, Authority: []byte("{{ ds }}"), PackagesKey: []byte("b")})
	require.ErrorContains(t, err, "Jinja")
}
