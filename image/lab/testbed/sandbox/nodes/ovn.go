package nodes

import (
	"fmt"

	"firstlight.dev/firstlight/assets/manifest"
)

// OVNNetworks are what upstream's examples have: two networks, and its definition for multus.
const OVNNetworks = `
apiVersion: k8s.plugin.opnfv.org/v1alpha1
kind: Network
metadata:
  name: ovn-priv-net
spec:
  cniType : ovn4nfv
  ipv4Subnets:
  - subnet: 172.16.44.0/24
    name: subnet1
    gateway: 172.16.44.1/24
---
apiVersion: k8s.plugin.opnfv.org/v1alpha1
kind: Network
metadata:
  name: ovn-port-net
spec:
  cniType : ovn4nfv
  ipv4Subnets:
  - subnet: 172.16.33.0/24
    name: subnet1
    gateway: 172.16.33.1/24
---
apiVersion: "k8s.cni.cncf.io/v1"
kind: NetworkAttachmentDefinition
metadata:
  name: ovn4nfv-k8s-plugin
spec:
  config: '{
      "cniVersion": "0.3.1",
      "type": "ovn4nfvk8s-cni"
    }'
`

// OVNPod is a pod that answers on all of its addresses, with interfaces of OVN by one of multus' definitions.
func OVNPod(name, node, definition, annotation string) string {
	return fmt.Sprintf(`
---
apiVersion: v1
kind: Pod
metadata:
  name: %[1]s
  labels: {app: ovn, role: %[1]s}
  annotations: {k8s.v1.cni.cncf.io/networks: %[3]s, k8s.plugin.opnfv.org/nfn-network: %[4]q}
spec:
  nodeName: %[2]s
  terminationGracePeriodSeconds: 1
  tolerations: [{operator: Exists}]
  containers:
    - name: probe
      image: %[5]s
      imagePullPolicy: IfNotPresent
      command: [/usr/bin/firstlight-node, probe, --listen, ":9000"]
      env: [{name: NODE, value: %[2]s}, {name: POD, value: %[1]s}]
`, name, node, definition, annotation, manifest.NodeImage)
}

// EchoProgram sends echo requests of a size and counts replies: no node has ping.
const EchoProgram = `
import os, socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
s.settimeout(2)
def checksum(b):
    total = sum(struct.unpack("!%dH" % (len(b) // 2), b))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return total ^ 0xffff
replies = 0
for n in range(5):
    body = struct.pack("!HH", os.getpid() & 0xffff, n) + b"x" * int(sys.argv[2])
    s.sendto(struct.pack("!BBH", 8, 0, checksum(b"\x08\x00\x00\x00" + body)) + body, (sys.argv[1], 0))
    try:
        while True:
            answer = s.recv(9000)
            if answer[20] == 0 and answer[24:28] == body[:4]:
                replies += 1
                break
    except TimeoutError:
        pass
print(replies, "of 5")
`
