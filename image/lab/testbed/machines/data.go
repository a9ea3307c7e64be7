package machines

import (
	"fmt"
	"os"
	"strings"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"

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
const cloudConfig = `datasource_list: [ConfigDrive]
network: {config: disabled}
cloud_init_modules: [write_files, users_groups, ssh]
cloud_config_modules: [runcmd]
cloud_final_modules: [scripts_user]
`

// seed is where cloud-init looks for the files of a config drive before it looks for a disk (DataSourceConfigDrive).
const seed = "/var/lib/cloud/seed/config_drive"

// readDrive reads the files of a config drive that cloud-init reads, by where they are to be in a system.
func readDrive(drive []byte) (map[string][]byte, error) {
	f, err := os.CreateTemp("", "drive-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := f.Write(drive); err != nil {
		return nil, err
	}

	volume, err := iso9660.Read(file.New(f, true), int64(len(drive)), 0, 2048)
	if err != nil {
		return nil, fmt.Errorf("read config drive: %w", err)
	}
	files := map[string][]byte{}
	for _, name := range []string{"meta_data.json", "user_data"} {
		path := "/openstack/latest/" + name
		if files[seed+path], err = volume.ReadFile(path[1:]); err != nil {
			return nil, fmt.Errorf("read config drive: %w", err)
		}
	}
	return files, nil
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
