package clusterapi

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// upstreamTemplates is where the tests of Metal3's own provider have their templates, of its main branch.
const upstreamTemplates = "test/e2e/data/infrastructure-metal3/main"

// TestUpstreamsTemplates: what the tests of Metal3's own provider apply, with its variables and nothing else changed,
// becomes a cluster here; of those with taints no cluster is made, as they need a feature gate that Cluster API has off.
// FIRSTLIGHT_UPSTREAM names a checkout of that provider (its files are not in this repository).
func TestUpstreamsTemplates(t *testing.T) {
	checkout := os.Getenv("FIRSTLIGHT_UPSTREAM")
	if checkout == "" {
		t.Skip("applies files of Metal3's own provider; FIRSTLIGHT_UPSTREAM names a checkout of it")
	}
	dir := filepath.Join(checkout, filepath.FromSlash(upstreamTemplates))

	for _, name := range []string{
		"cluster-template-ubuntu",
		"cluster-template-ubuntu-ip-reuse",
		"cluster-template-ubuntu-md-remediation",
		"cluster-template-centos",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRack(t, 3)
			r.prepareWorkload("edge")
			text, err := r.kubectl("", "kustomize", filepath.Join(dir, name))
			require.NoError(t, err, text)
			file := filepath.Join(t.TempDir(), "template.yaml")
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			r.apply(r.clusterctlWith(r.upstreamVariables(), "generate", "cluster", "edge", "-n", "metal3", "--from", file,
				"--kubernetes-version", "v1.36.3", "--control-plane-machine-count", "1", "--worker-machine-count", "1"))

			r.settles(1, 1)
			r.until("the network of pods is applied", func() error {
				if got := r.get("configmap", "of-the-network", ".data.seen"); got != "true" {
					return fmt.Errorf("its ConfigMap says %q", got)
				}
				return nil
			})
			for _, address := range r.list("ipaddresses", ".spec.address") {
				t.Log("address " + address)
			}

			r.run("delete", "cluster", "edge", "-n", "metal3", "--wait=false")
			r.until("all hosts are free", func() error {
				if claims := r.claims(); len(claims) > 0 {
					return fmt.Errorf("hosts are claimed by %v", claims)
				}
				return nil
			})
			r.until("the cluster is gone", func() error {
				if left := r.list("clusters", ".metadata.name"); len(left) > 0 {
					return fmt.Errorf("there is %v", left)
				}
				return nil
			})
		})
	}
}

// upstreamVariables are those of its test's configuration, for this rack.
func (r *rack) upstreamVariables() []string {
	network, err := json.Marshal(map[string]string{
		"network.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: of-the-network, namespace: default}\ndata: {seen: \"true\"}\n",
	})
	require.NoError(r.t, err)

	var all []string
	for name, value := range map[string]string{
		"CLUSTER_APIENDPOINT_HOST":           r.host(),
		"CLUSTER_APIENDPOINT_PORT":           r.port(),
		"CLUSTER_PROVISIONING_INTERFACE":     "ironicendpoint",
		"POD_CIDR":                           "192.168.0.0/18",
		"SERVICE_CIDR":                       "10.96.0.0/12",
		"NODE_DRAIN_TIMEOUT":                 "0",
		"IMAGE_USERNAME":                     "metal3",
		"SSH_PUB_KEY_CONTENT":                "ssh-ed25519 AAAA",
		"IMAGE_RAW_URL":                      "http://172.22.0.1/images/node.raw",
		"IMAGE_RAW_CHECKSUM":                 "abc",
		"IMAGE_CHECKSUM_TYPE":                "sha256",
		"REGISTRY":                           "172.22.0.1:5000",
		"PROVIDER_ID_FORMAT":                 "metal3://{{ ds.meta_data.providerid }}",
		"CNI_RESOURCES":                      string(network),
		"IPAM_PROVISIONING_POOL_RANGE_START": "172.22.0.100",
		"IPAM_PROVISIONING_POOL_RANGE_END":   "172.22.0.200",
		"BARE_METAL_PROVISIONER_CIDR":        "24",
		"IPAM_EXTERNALV4_POOL_RANGE_START":   "192.168.111.100",
		"IPAM_EXTERNALV4_POOL_RANGE_END":     "192.168.111.200",
		"EXTERNAL_SUBNET_V4_PREFIX":          "24",
		"EXTERNAL_SUBNET_V4_HOST":            "192.168.111.1",
	} {
		all = append(all, name+"="+value)
	}
	return all
}
