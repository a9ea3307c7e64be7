package nodes_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/manifest"
)

// shop is a machine with the stick's own system for nodes. Its disk is fetched from the appliance once and is on a claim
// from then on. Its guest says who it is, what it resolves, and how often it was booted. In its namespace no pod may have
// more rights than Pod Security's level "restricted" gives.
const shop = `
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {pod-security.kubernetes.io/enforce: restricted}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: web, namespace: shop}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}}
---
apiVersion: v1
kind: Secret
metadata: {name: web, namespace: shop}
stringData:
  userdata: |
    #cloud-config
    bootcmd:
    - mkdir -p /srv
    - echo boot >>/srv/boots
    write_files:
    - path: /srv/who
      content: '{"node": "guest", "pod": "web"}'
    - path: /etc/systemd/system/who.service
      content: |
        [Service]
        ExecStart=/usr/bin/python3 -m http.server 8080 --directory /srv
        Restart=always
        [Install]
        WantedBy=multi-user.target
    runcmd:
    - resolvectl domain $(ip -o route show default | grep -o 'dev [^ ]*' | cut -c 5-) cluster.local
    - getent hosts kubernetes.default.svc.cluster.local >/srv/resolved
    - systemctl enable --now who.service
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: web, namespace: shop}
spec:
  running: true
  template:
    metadata: {labels: {app: web}}
    spec:
      domain:
        cpu: {cores: 1}
        memory: {guest: 768Mi}
        devices:
          rng: {}
          disks:
          - {name: system, disk: {bus: virtio}}
          - {name: seed, disk: {bus: virtio}}
          interfaces:
          - {name: default, masquerade: {}, ports: [{name: http, port: 8080}, {name: ssh, port: 22}]}
      networks: [{name: default, pod: {}}]
      tolerations: [{operator: Exists}]
      terminationGracePeriodSeconds: 120
      volumes:
      - name: system
        firstlightImage: {url: "http://172.22.0.1:6180/images/debian-13.raw", checksum: "sha256:%s", claimName: web}
      - name: seed
        cloudInitNoCloud: {secretRef: {name: web}}
`

// digestOf is the sha256 of a file.
func digestOf(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	require.NoError(t, err)
	return hex.EncodeToString(sum.Sum(nil))
}

// machines is a cluster of one node with virtual machines.
type machines struct{ *bench }

// get reads a field of an object in the machine's namespace.
func (c machines) get(object, path string) string {
	c.t.Helper()
	return c.kubectl("-n", "shop", "get", object, "-o", "jsonpath="+path)
}

// until waits until a field of an object matches; how it changes is logged.
func (c machines) until(object, path, want string) {
	c.t.Helper()
	began := time.Now()
	c.await(c.Servers[0], fmt.Sprintf("kubectl --kubeconfig /etc/kubernetes/admin.conf -n shop get %s -o 'jsonpath=%s'", object, path), want)
	c.t.Logf("%4.0f s  %s %s: %s", time.Since(began).Seconds(), object, path, c.get(object, path))
}

// pod is the name of the machine's pod, once there is one that is not ending.
func (c machines) pod() string {
	c.t.Helper()
	const list = `kubectl --kubeconfig /etc/kubernetes/admin.conf -n shop get pods -l kubevirt.io=virt-launcher --field-selector status.phase=Running -o name`
	c.await(c.Servers[0], list, "^pod/virt-launcher-web-[0-9a-v]{5}\n$")
	return strings.TrimSpace(strings.TrimPrefix(c.on(c.Servers[0], list), "pod/"))
}

// answer waits for a file that the guest serves, by way of its pod's address.
func (c machines) answer(pod, file, want string) {
	c.t.Helper()
	began := time.Now()
	c.await(c.Servers[0], "kubectl --kubeconfig /etc/kubernetes/admin.conf get --raw /api/v1/namespaces/shop/pods/"+pod+":8080/proxy/"+file, want)
	c.t.Logf("%4.0f s  the guest answers /%s: %s", time.Since(began).Seconds(), file,
		c.kubectl("get", "--raw", "/api/v1/namespaces/shop/pods/"+pod+":8080/proxy/"+file))
}

// TestVirtualMachine: a Provisioning asks for virtual-machines, which the stick carries. The stick's own Debian becomes
// a machine in a pod without rights: it boots, gets its user data, answers on its port through the pod's address and
// through a Service, resolves names of the cluster, prints on its console, is powered down and started again with the
// same disk. What is not in the subset is refused, each with a sentence.
func TestVirtualMachine(t *testing.T) {
	long(t)
	b := newWhole(t, "machine", 1)
	c := machines{b}
	first := b.Servers[0]
	b.host(1, first)
	b.apply(`{apiVersion: bpa.akraino.org/v1alpha1, kind: Provisioning, metadata: {name: edge, namespace: default, labels: {cluster: edge, owner: alpha}},
spec: {masters: [{master-1: {mac-address: '52:54:00:00:00:01'}}], KUDPlugins: [local-path-provisioner, virtual-machines]}}`)
	b.until("bpa", "edge")
	b.appliance("kubectl", "wait", "kc/edge-virtual-machines", "kc/edge-local-path-provisioner", "--for=condition=Ready", "--timeout=10m")
	t.Log("\n" + b.appliance("kubectl", "get", "kc", "-o", "wide"))
	t.Log("\n" + b.kubectl("-n", "kube-system", "logs", "ds/firstlight-machines-kvm"))

	b.applyEdge(fmt.Sprintf(shop, digestOf(t, filepath.Join(b.Dir, "system.raw"))))
	c.refusals()

	// It runs, with a disk that was fetched.
	c.until("vm/web", "{.status.printableStatus}", "^Running$")
	pod := c.pod()
	t.Log("\n" + b.kubectl("-n", "shop", "get", "vm,vmi,pod,pvc", "-o", "wide"))
	t.Log("\n" + end(b.kubectl("-n", "shop", "logs", pod)))
	assert.Equal(t, "True", c.get("vmi/web", `{.status.conditions[?(@.type=="Ready")].status}`))
	assert.Equal(t, c.get("pod/"+pod, "{.status.podIP}"), c.get("vmi/web", "{.status.interfaces[0].ipAddress}"))
	assert.Equal(t, "master-1", c.get("vmi/web", "{.status.nodeName}"))
	assert.Equal(t, "restricted", c.get("namespace/shop", `{.metadata.labels.pod-security\.kubernetes\.io/enforce}`))

	// Its guest answers: through the pod's address, on a low port, and through a Service.
	c.answer(pod, "who", `"pod": "web"`)
	c.answer(pod, "boots", "^boot\n$")
	c.answer(pod, "resolved", "kubernetes.default.svc.cluster.local")
	banner := b.on(first, "bash -c 'exec 3<>/dev/tcp/"+c.get("pod/"+pod, "{.status.podIP}")+"/22; head -n 1 <&3'")
	t.Log("port 22: " + banner)
	assert.Contains(t, banner, "SSH-2.0-OpenSSH")
	b.applyEdge(probeIn("default", "visitor"))
	b.kubectl("wait", "pod/visitor", "--for=condition=Ready", "--timeout=3m")
	through := b.ask("visitor", "web.shop.svc.cluster.local")
	t.Log("a pod asks web.shop: " + through)
	assert.Contains(t, through, `"pod":"web"`)

	// Its console: in the pod's log, and for whoever attaches.
	c.await(first, "kubectl --kubeconfig /etc/kubernetes/admin.conf -n shop logs "+pod, "login:")
	console := b.on(first, `(sleep 2; printf '\r'; sleep 10; printf '\035') | kubectl --kubeconfig /etc/kubernetes/admin.conf -n shop exec -i `+
		pod+` -- /usr/bin/firstlight-addons machine console`)
	t.Log("the console:\n" + end(console))
	assert.Contains(t, console, "web login:")

	// Stopped: its guest is told by ACPI, and has time. Started: the same disk.
	began := time.Now()
	b.kubectl("-n", "shop", "patch", "vm", "web", "--type=merge", "-p", `{"spec":{"running":false}}`)
	c.until("vm/web", "{.status.printableStatus}", "^Stopped$")
	b.await(first, "kubectl --kubeconfig /etc/kubernetes/admin.conf -n shop get vmi,pods -o name | grep -c . || true", "^0\n")
	t.Logf("%4.0f s until it had stopped", time.Since(began).Seconds())
	assert.Less(t, time.Since(began), 110*time.Second, "the guest does not hear the power button")

	b.kubectl("-n", "shop", "patch", "vm", "web", "--type=merge", "-p", `{"spec":{"running":true}}`)
	c.until("vm/web", "{.status.printableStatus}", "^Running$")
	again := c.pod()
	assert.NotEqual(t, pod, again)
	c.answer(again, "boots", "^boot\nboot\n$")

	// Without the add-on its objects stay, and so does what runs.
	b.apply(`{apiVersion: bpa.akraino.org/v1alpha1, kind: Provisioning, metadata: {name: edge, namespace: default, labels: {cluster: edge, owner: alpha}},
spec: {masters: [{master-1: {mac-address: '52:54:00:00:00:01'}}], KUDPlugins: [local-path-provisioner]}}`)
	b.until("bpa", "edge")
	const own = "kubectl --kubeconfig /etc/kubernetes/admin.conf -n kube-system get deploy,ds -o name | grep -c machines || true"
	b.await(first, own, "^0\n")
	assert.Contains(t, b.kubectl("-n", "shop", "get", "vm,vmi", "-o", "name"), "virtualmachine.kubevirt.io/web")
	c.answer(again, "who", `"pod": "web"`)
	b.kubectl("-n", "shop", "delete", "vm", "web", "--timeout=3m")
	b.await(first, "kubectl --kubeconfig /etc/kubernetes/admin.conf -n shop get vmi,pods -o name | grep -c . || true", "^0\n")
}

// probeIn is a pod that asks.
func probeIn(namespace, name string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s}, spec: {terminationGracePeriodSeconds: 0,
tolerations: [{operator: Exists}], containers: [{name: probe, image: '%s', imagePullPolicy: IfNotPresent,
command: [/usr/bin/firstlight-node, probe, '--listen=:9000'], env: [{name: POD, value: %[1]s}]}]}}
`, name, namespace, manifest.NodeImage)
}

// refusals tries what is not there.
func (c machines) refusals() {
	c.t.Helper()
	apply := func(text string) error {
		_, err := c.Servers[0].Run(c.ctx, "sh", "-euc", "kubectl --kubeconfig /etc/kubernetes/admin.conf -n shop apply -f - <<'END'\n"+text+"\nEND")
		return err
	}
	const machine = `{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: other}, spec: {running: true, template: {spec: {%s}}}}`
	const memory = "domain: {memory: {guest: 64Mi}, devices: {disks: [{name: a, disk: {}}]}}"
	const network = "networks: [{name: a, pod: {}}], domain: {memory: {guest: 64Mi}, devices: {interfaces: [{name: a, %s}]}}"
	for says, spec := range map[string]string{
		"there are no container disks":                memory + ", volumes: [{name: a, containerDisk: {image: x}}]",
		"there are no disks of hosts":                 memory + ", volumes: [{name: a, hostDisk: {path: /etc, type: Disk}}]",
		"there is no bridge":                          fmt.Sprintf(network, "bridge: {}, ports: [{port: 80}]"),
		"list the ports that the guest is reached at": fmt.Sprintf(network, "masquerade: {}"),
		"there is no Secure Boot":                     "domain: {memory: {guest: 64Mi}, firmware: {bootloader: {efi: {}}}}",
	} {
		err := apply(fmt.Sprintf(machine, spec))
		if assert.ErrorContains(c.t, err, says) {
			c.t.Log(err)
		}
	}

	// A field of KubeVirt's that nothing here knows is not ignored.
	require.NoError(c.t, apply(fmt.Sprintf(machine, "evictionStrategy: LiveMigrate, domain: {memory: {guest: 64Mi}}")))
	c.until("vm/other", `{.status.conditions[?(@.type=="Failure")].message}`, `unknown field "evictionStrategy"`)
	c.kubectl("-n", "shop", "delete", "vm", "other")

	c.until("vmi/web", "{.status.phase}", ".")
	_, err := c.Kubectl(c.ctx, cluster, "-n", "shop", "patch", "vmi", "web", "--type=merge", "-p", `{"spec":{"hostname":"other"}}`)
	assert.ErrorContains(c.t, err, "an instance is not changed")

	// The controller makes pods of machines, and no others.
	_, err = c.Kubectl(c.ctx, cluster, "--as=system:serviceaccount:kube-system:firstlight-machines", "run", "x", "--image="+manifest.NodeImage)
	assert.ErrorContains(c.t, err, "the controller of machines creates pods of instances alone")
}
