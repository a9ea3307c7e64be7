package machines

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"firstlight.dev/firstlight/image/lab/testbed/scenario"
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

// readDrive finds user data and metadata in the image of a config drive, where each file is in one piece.
func readDrive(drive []byte) (user, meta string, err error) {
	const head = `Content-Type: multipart/mixed; boundary="`
	begin := bytes.Index(drive, []byte(head))
	if begin < 0 {
		return "", "", errors.New("the user data of the config drive is not that of the bootstrap provider with the appliance's behind it")
	}
	boundary, _, _ := strings.Cut(string(drive[begin+len(head):]), `"`)
	last := "--" + boundary + "--\n"
	length := bytes.Index(drive[begin:], []byte(last))
	if length < 0 {
		return "", "", errors.New("the user data of the config drive has no end")
	}
	user = string(drive[begin:][:length+len(last)])

	key := bytes.Index(drive, []byte(`"metal3-name"`))
	for start := bytes.LastIndexByte(drive[:max(key, 0)], '{'); start >= 0; start = bytes.LastIndexByte(drive[:start], '{') {
		values := map[string]any{}
		if json.NewDecoder(bytes.NewReader(drive[start:])).Decode(&values) == nil && values["metal3-name"] != nil {
			values["instance-id"] = values["uuid"]
			text, err := json.Marshal(values)
			return user, string(text), err
		}
	}
	return "", "", errors.New("the config drive has no metadata of its host")
}

// ignored begins what each of kubeadm's registrations of a node does not check, install the first command of a machine.
const (
	ignored = "ignorePreflightErrors: [NumCPU"
	install = "node-setup install"
)

// ForSandboxes has templates of machines install what a sandbox wants besides, and not refuse it.
func ForSandboxes(templates string) (string, error) {
	for _, part := range []string{ignored, install} {
		if !strings.Contains(templates, part) {
			return "", fmt.Errorf("the templates have no %q", part)
		}
	}
	return strings.NewReplacer(
		ignored, ignored+", SystemVerification, Swap, FileContent--proc-sys-net-bridge-bridge-nf-call-iptables",
		install, install+", /etc/in-sandbox",
	).Replace(templates), nil
}

// Hosts are the objects by which an owner gives servers to the appliance.
func Hosts(d *scenario.Scenario) string {
	var all strings.Builder
	for _, h := range d.Servers.Hosts() {
		fmt.Fprintf(&all, `---
{apiVersion: v1, kind: Secret, metadata: {name: %[1]s-bmc}, stringData: {username: %[2]s, password: %[3]s}}
---
{apiVersion: metal3.io/v1alpha1, kind: BareMetalHost, metadata: {name: %[1]s}, spec: {online: true, bootMACAddress: %[4]q,
bmc: {address: %[5]q, credentialsName: %[1]s-bmc, disableCertificateVerification: true}}}
`, h.Name, d.Servers.Username(), d.Servers.Password(), h.MAC, h.BMC())
	}
	return all.String()
}
