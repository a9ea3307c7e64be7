package bench_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sync/errgroup"

	"firstlight.dev/firstlight/image/lab/testbed/sandbox/nodes"
)

// preparedFiles is what a person would have prepared: the files of a node and the manifests of the pods' network and
// the name server, as the installer wrote them.
type preparedFiles struct {
	files    map[string][]byte // of every node
	kubeadm  string            // of the first
	manifest []byte
	images   []string
}

// Files that are the same on every node of a cluster.
var common = []string{
	"/etc/containerd/conf.d/60-firstlight.toml", "/etc/containerd/certs.d/_default/hosts.toml",
	"/etc/containerd/certs.d/firstlight.internal/hosts.toml", "/etc/firstlight/ca.crt",
	"/etc/firstlight/packages.asc", "/etc/apt/sources.list.d/firstlight.sources",
	"/etc/firstlight/patches/kubeletconfiguration+merge.yaml",
}

// timers are of small machines alone (manifest.TimerSlack).
var timers = []string{
	"/etc/systemd/system/containerd.service.d/60-firstlight.conf", "/etc/systemd/system/kubelet.service.d/60-firstlight.conf",
}

// endpoint is what a node's own way to the API is called by, and direct what a person writes in its place.
const (
	endpoint = "127.0.0.1:7443"
	direct   = "172.22.0.11:6443"
)

func prepareFiles(ctx context.Context, rack *nodes.Rack, servers []*nodes.Server) (*preparedFiles, error) {
	first := servers[0]
	k := &preparedFiles{files: map[string][]byte{}}
	for _, path := range common {
		text, err := os.ReadFile(first.Path(path))
		if err != nil {
			return nil, err
		}
		k.files[path] = text
	}
	for _, path := range timers {
		text, err := os.ReadFile(first.Path(path))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		k.files[path] = text
	}
	text, err := os.ReadFile(first.Path("/etc/firstlight/kubeadm.yaml"))
	if err != nil {
		return nil, err
	}
	k.kubeadm = strings.ReplaceAll(string(text), endpoint, direct)
	out, err := first.Run(ctx, "sh", "-c", "ctr -n k8s.io images list -q | grep ^firstlight.internal/")
	if err != nil {
		return nil, err
	}
	k.images = strings.Fields(out)
	out, err = rack.Kubectl(ctx, cluster, "get", "-o", "json", "clusterrole/firstlight:network", "clusterrolebinding/firstlight:network",
		"clusterrole/firstlight:coredns", "clusterrolebinding/firstlight:coredns")
	if err != nil {
		return nil, err
	}
	inside, err := rack.Kubectl(ctx, cluster, "-n", "kube-system", "get", "-o", "json", "sa/firstlight-network", "ds/firstlight-network",
		"sa/coredns", "cm/coredns", "deployment/coredns", "service/kube-dns")
	if err != nil {
		return nil, err
	}
	k.manifest, err = plainList(out, inside)
	return k, err
}

// plainList is lists of objects without what the API server added.
func plainList(lists ...string) ([]byte, error) {
	all := map[string]any{"apiVersion": "v1", "kind": "List"}
	var items []any
	for _, text := range lists {
		var list struct{ Items []map[string]any }
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return nil, fmt.Errorf("read objects: %w", err)
		}
		for _, o := range list.Items {
			delete(o, "status")
			if meta, ok := o["metadata"].(map[string]any); ok {
				for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"} {
					delete(meta, field)
				}
			}
			items = append(items, o)
		}
	}
	all["items"] = items
	text, err := json.Marshal(all)
	return []byte(strings.NewReplacer(`"value":"127.0.0.1"`, `"value":"172.22.0.11"`, `"value":"7443"`, `"value":"6443"`).Replace(string(text))), err
}

// prepare is done on every node: the programs, the runtime, the images.
const prepare = `
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install --yes --no-install-recommends kubelet kubeadm kubectl
echo 1 >/proc/sys/net/ipv4/ip_forward
systemctl restart containerd
for image; do ctr -n k8s.io images pull --hosts-dir /etc/containerd/certs.d "$image" >/dev/null; done
`

// byHand makes a cluster of new machines as a person does who has everything at hand.
func (k *preparedFiles) byHand(ctx context.Context, servers []*nodes.Server) error {
	group, inner := errgroup.WithContext(ctx)
	for _, s := range servers {
		group.Go(func() error {
			for path, text := range k.files {
				if err := s.WriteFile(path, text, 0o644); err != nil {
					return err
				}
			}
			_, err := s.Run(inner, "sh", append([]string{"-euc", prepare, "sh"}, k.images...)...)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	first := servers[0]
	if err := first.WriteFile("/root/kubeadm.yaml", []byte(k.kubeadm), 0o600); err != nil {
		return err
	}
	if err := first.WriteFile("/root/manifest.json", k.manifest, 0o600); err != nil {
		return err
	}
	if _, err := first.Run(ctx, "kubeadm", "init", "--config", "/root/kubeadm.yaml", "--ignore-preflight-errors", "all"); err != nil {
		return err
	}
	const kubectl = "kubectl --kubeconfig /etc/kubernetes/admin.conf "
	if _, err := first.Run(ctx, "sh", "-euc", kubectl+"apply -f /root/manifest.json"); err != nil {
		return err
	}
	token, err := first.Run(ctx, "kubeadm", "token", "create")
	if err != nil {
		return err
	}
	group, inner = errgroup.WithContext(ctx)
	for _, s := range servers[1:] {
		group.Go(func() error { return k.join(inner, s, strings.TrimSpace(token)) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	_, err = first.Run(ctx, "sh", "-euc", kubectl+"wait nodes --all --for=condition=Ready --timeout=10m >/dev/null\n"+
		"for w in ds/kube-proxy ds/firstlight-network deployment/coredns; do "+kubectl+"-n kube-system rollout status $w --timeout=10m >/dev/null; done")
	return err
}

func (k *preparedFiles) join(ctx context.Context, s *nodes.Server, token string) error {
	text := fmt.Sprintf(`apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
nodeRegistration:
  name: %s
  criSocket: unix:///run/containerd/containerd.sock
  imagePullPolicy: IfNotPresent
  kubeletExtraArgs:
    - {name: node-ip, value: %q}
    - {name: hostname-override, value: %q}
patches: {directory: /etc/firstlight/patches}
discovery:
  bootstrapToken: {apiServerEndpoint: %q, token: %s, unsafeSkipCAVerification: true}
  tlsBootstrapToken: %[5]s
`, s.Label(), s.Addr, s.Label(), direct, token)
	if err := s.WriteFile("/root/kubeadm.yaml", []byte(text), 0o600); err != nil {
		return err
	}
	_, err := s.Run(ctx, "kubeadm", "join", "--config", "/root/kubeadm.yaml", "--ignore-preflight-errors", "all")
	return err
}
