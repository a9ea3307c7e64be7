package installer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/engine/bringup"
	"firstlight.dev/firstlight/daemon/engine/remote"
)

const (
	initPath = "/etc/firstlight/kubeadm.yaml"
	joinPath = "/run/firstlight/join.yaml" // holds a token: not on the disk
)

// complete asks the control plane of the first node for the last things that kubeadm init makes.
const complete = `
export KUBECONFIG=/etc/kubernetes/admin.conf
test -s $KUBECONFIG || { echo "kubeadm has not made it yet"; exit 1; }
systemctl is-active --quiet kubelet.service || { echo "the kubelet does not run"; exit 1; }
kubectl --server "https://$1:6443" --request-timeout 10s get --raw /readyz >/dev/null
kubectl --server "https://$1:6443" --request-timeout 10s get node/"$2" -o name >/dev/null
kubectl --server "https://$1:6443" --request-timeout 10s --namespace kube-public get configmap/cluster-info -o name >/dev/null
kubectl --server "https://$1:6443" --request-timeout 10s --namespace kube-system get configmap/kubeadm-config daemonset/kube-proxy -o name >/dev/null
`

func (n *node) initDone(ctx context.Context) error {
	_, err := n.shell.RunScript(ctx, complete, n.Addr.String(), n.Label)
	if err != nil {
		return answerOf(err, "the control plane is not whole")
	}
	return n.markFormed()
}

// answerOf makes what a script of ours said the error; whatever else happened stays as it is.
func answerOf(err error, what string) error {
	var exit *remote.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("%s: %s", what, exit.Output)
	}
	return err
}

func (n *node) initDo(ctx context.Context, report bringup.Report) error {
	r, err := n.loadIdentity(nil)
	if err != nil {
		return err
	}
	if r.Formed {
		return n.restartControlPlane(ctx, report)
	}

	text, err := render("kubeadm.yaml", n.values())
	if err != nil {
		return bringup.Permanent(err)
	}

	files := append(timerSlackFiles("kubelet.service", n.facts()), file{initPath, 0o600, text})
	if err := n.put(ctx, files); err != nil {
		return err
	}

	report("kubeadm makes the control plane")
	// What a cut left half written stops kubeadm. Nothing was ever stored in a control plane that was
	// never whole: it is cleared away, and the next try begins with nothing.
	_, err = n.runLocked(ctx, `
systemctl enable --quiet kubelet.service # reads all units again
kubeadm init --config "$1" --skip-token-print --ignore-preflight-errors all || { code=$?; kubeadm reset --force >/dev/null 2>&1; exit $code; }
`, initPath)
	return err
}

// restartControlPlane starts what was made once. It is never made again: what is in it is the cluster.
func (n *node) restartControlPlane(ctx context.Context, report bringup.Report) error {
	if f := n.facts(); !f.Kubernetes {
		return bringup.Permanent(fmt.Errorf("the control plane was on this node and is gone; if the cluster may go with it, "+
			"delete its Provisioning, or remove %s, and install every node's system again", filepath.Join(
			n.dir, contract.FileIdentity,
		)))
	}

	report("starting the control plane")
	_, err := n.runLocked(ctx, `systemctl enable --quiet kubelet.service; systemctl start kubelet.service`)
	if err != nil {
		return err
	}

	return n.waitFor(ctx, 2*time.Minute, n.initDone)
}

// waitFor asks until the answer is nil or atMost has passed; then it returns the last answer.
func (n *node) waitFor(ctx context.Context, atMost time.Duration, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	for {
		err := ask(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Second):
		}
	}
}

// joined asks a node that is not the first whether it is one of the cluster.
const joined = `
test -s /etc/kubernetes/kubelet.conf || { echo "kubeadm has not joined it yet"; exit 1; }
test -s /var/lib/kubelet/pki/kubelet-client-current.pem || { echo "it has no certificate yet"; exit 1; }
systemctl is-active --quiet kubelet.service || { echo "the kubelet does not run"; exit 1; }
if test "$1" != worker; then
	test -s /etc/kubernetes/manifests/etcd.yaml || { echo "its etcd is not there yet"; exit 1; }
	kubectl --kubeconfig /etc/kubernetes/admin.conf --server "https://$1:6443" --request-timeout 10s get --raw /readyz >/dev/null
fi
`

func (n *node) joinRole() string {
	if n.ControlPlane {
		return n.Addr.String()
	}
	return "worker"
}

func (n *node) joinDone(ctx context.Context) error {
	a, err := n.connect(ctx)
	if err != nil {
		return bringup.Wait("the control plane of %s", n.firstControlPlane().Label)
	}

	f, err := n.collectFacts(ctx)
	if err != nil {
		return err
	}
	if _, err := n.shell.RunScript(ctx, joined, n.joinRole()); err != nil {
		return answerOf(err, "it is not part of the cluster")
	}
	if !shareAuthority(f.Authority, a.authorityDigest()) {
		return bringup.Permanent(errors.New("its certificates are of another cluster's authority; remove the node and add it again"))
	}

	object, err := a.set.CoreV1().Nodes().Get(ctx, n.Label, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read node %s: %w", n.Label, err)
	}
	if is := object.Status.NodeInfo.MachineID; is != "" && is != f.MachineID {
		return fmt.Errorf("the cluster knows another machine as %s", n.Label)
	}

	return n.checkAddressed(f, object)
}

// readdress puts a node's new address into what its kubelet is told. Nothing else there changes.
const readdress = `
sed "s/--node-ip=[^ \"]*/--node-ip=$1/" "$2" >"$2.new"
sync "$2.new"
mv "$2.new" "$2"
`

// checkAddressed is nil if the node's kubelet and the cluster know the address at which the node is now.
func (n *node) checkAddressed(f facts, object *corev1.Node) error {
	if f.NodeIP.IsValid() && f.NodeIP != n.Addr {
		return fmt.Errorf("its kubelet is told the address %s, and it has %s now", f.NodeIP, n.Addr)
	}
	for _, a := range object.Status.Addresses {
		if at, err := netip.ParseAddr(a.Address); a.Type == corev1.NodeInternalIP && err == nil && at.Is4() == n.Addr.Is4() && at != n.Addr {
			return fmt.Errorf("the cluster knows it at %s, and it has %s now", at, n.Addr)
		}
	}
	return nil
}

// joinDo lets kubeadm join the node. A control plane is given the cluster's keys first, from one that answers.
func (n *node) joinDo(ctx context.Context, report bringup.Report) error {
	a, err := n.connect(ctx)
	if err != nil {
		return err
	}

	if n.ControlPlane {
		report("waiting for its turn")
		n.joining.Lock()
		defer n.joining.Unlock()
	}

	if err := n.checkVersion(a); err != nil {
		return err
	}
	if err := n.replace(ctx, a, report); err != nil {
		return err
	}
	if err := n.nameProxyImage(ctx, a); err != nil {
		return err
	}

	files, err := n.joinFiles(ctx, a)
	if err != nil {
		return err
	}
	if err := n.put(ctx, files); err != nil {
		return err
	}

	if is := n.facts().NodeIP; is.IsValid() && is != n.Addr { // only a worker's, see moved
		report("telling its kubelet the new address")
		if _, err := n.runLocked(ctx, readdress, n.Addr.String(), kubeletFlags); err != nil {
			return err
		}
	}

	report("kubeadm joins it")
	// A node that has its certificate is a member: its kubelet needs only to be started. Before that
	// nothing is lost by clearing away what a cut left; kubeadm takes back its member of etcd.
	_, err = n.runLocked(ctx, `
systemctl enable --quiet kubelet.service # reads all units again
if test -s /etc/kubernetes/kubelet.conf && test -s /var/lib/kubelet/pki/kubelet-client-current.pem && { test "$2" = worker || test -s /etc/kubernetes/manifests/etcd.yaml; }; then
	systemctl restart kubelet.service
else
	kubeadm join --config "$1" --ignore-preflight-errors all || { code=$?; kubeadm reset --force >/dev/null 2>&1; rm -f "$1"; exit $code; }
fi
rm -f "$1"
`, joinPath, n.joinRole())
	if err != nil {
		return err
	}

	return n.waitFor(ctx, 2*time.Minute, n.joinDone)
}

// goneTimeout is how long the cluster may take to notice that a machine is gone: twice what it takes by its settings,
// which are Kubernetes' own (node-monitor-grace-period).
const goneTimeout = 2 * time.Minute

// replace removes the cluster's memory of another machine of the same name, if that machine is gone: a
// dead node that was replaced by another one, or the same one installed anew.
func (n *node) replace(ctx context.Context, a *api, report bringup.Report) error {
	object, err := a.set.CoreV1().Nodes().Get(ctx, n.Label, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read node %s: %w", n.Label, err)
	}
	if object.Status.NodeInfo.MachineID == n.facts().MachineID {
		return nil
	}
	if readyCondition(object) == corev1.ConditionTrue {
		report("waiting whether the machine that was " + n.Label + " is gone")
		isGone := func(context.Context) error { return n.checkGone(ctx, a) }
		if err := n.waitFor(ctx, cmp.Or(n.cluster.goneTimeout, goneTimeout), isGone); err != nil {
			return err
		}
	}

	report("removing the machine that was " + n.Label)
	if err := a.set.CoreV1().Nodes().Delete(
		ctx, n.Label, metav1.DeleteOptions{},
	); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove node %s: %w", n.Label, err)
	}

	return nil
}

// checkGone is nil once the machine that the cluster knows by the node's name is not Ready.
func (n *node) checkGone(ctx context.Context, a *api) error {
	object, err := a.set.CoreV1().Nodes().Get(ctx, n.Label, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read node %s: %w", n.Label, err)
	case readyCondition(object) != corev1.ConditionTrue:
		return nil
	}
	return bringup.Permanent(fmt.Errorf("another machine runs as %s; remove it first, or use another label", n.Label))
}

func readyCondition(object *corev1.Node) corev1.ConditionStatus {
	for _, c := range object.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return corev1.ConditionUnknown
}

// joinFiles are what the kubelet's unit is given besides, kubeadm's configuration with a token of an hour, and for a control
// plane the cluster's keys.
func (n *node) joinFiles(ctx context.Context, a *api) ([]file, error) {
	v := n.values()
	v.Join = true
	token, err := a.from.shell.RunSecret(
		ctx, "kubeadm", "--kubeconfig", "/etc/kubernetes/admin.conf", "token", "create", "--ttl", "1h",
	)
	if err != nil {
		return nil, err
	}

	v.Token = strings.TrimSpace(token)
	if v.AuthorityHash, err = a.authorityHash(); err != nil {
		return nil, err
	}

	text, err := render("kubeadm.yaml", v)
	if err != nil {
		return nil, bringup.Permanent(err)
	}

	files := append(timerSlackFiles("kubelet.service", v.facts), file{joinPath, 0o600, text})
	if !n.ControlPlane {
		return files, nil
	}

	for _, name := range []string{"ca.crt", "ca.key", "sa.pub", "sa.key", "front-proxy-ca.crt", "front-proxy-ca.key", "etcd/ca.crt", "etcd/ca.key"} {
		path := "/etc/kubernetes/pki/" + name
		text, err := a.from.shell.RunSecret(ctx, "cat", path)
		if err != nil {
			return nil, err
		}

		files = append(files, file{path, 0o600, []byte(text)})
	}

	return files, nil
}

// ensureConfig makes sure that kubeadm finds the cluster's configuration on a control plane: where that joined, and
// did not make the cluster, it is not there yet.
func (n *node) ensureConfig(ctx context.Context) error {
	_, err := n.shell.RunScript(ctx, `test -s "$1"`, initPath)
	var exit *remote.ExitError
	if err == nil || !errors.As(err, &exit) {
		return err
	}
	if _, err := n.collectFacts(ctx); err != nil {
		return err
	}

	text, err := render("kubeadm.yaml", n.values())
	if err != nil {
		return bringup.Permanent(err)
	}

	return n.put(ctx, []file{{initPath, 0o600, text}})
}

// permanentIfChanged tells a node that will come from one that only a person can mend.
func permanentIfChanged(err error) error {
	var changed *remote.HostKeyChangedError
	if errors.As(err, &changed) {
		return bringup.Permanent(err)
	}
	return err
}
