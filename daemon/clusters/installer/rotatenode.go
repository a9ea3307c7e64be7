package installer

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/clusters/contract/kubeconfig"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// certificateTitles are titles of the stage certificates-STAGE, by the stage of a rotation.
var certificateTitles = map[string]string{
	contract.RotationTrust: "Both authorities become trusted",
	contract.RotationSign:  "The next authorities sign",
	contract.RotationDrop:  "Only the next authorities are trusted",
}

func (n *node) rotationStages(r *rotation) []bringup.Stage {
	return []bringup.Stage{
		{Name: "reached", Title: "The node is reached",
			Fact: "the node answers by SSH and is part of this cluster",
			Why:  "First: nothing is changed on a node of another cluster.",
			Done: n.reachedDone, Recheck: time.Hour},
		{Name: "certificates-" + r.Stage, Title: certificateTitles[r.Stage],
			Fact: "its authorities and certificates are those of this stage, and in use",
			Why:  "Before the next stage, which relies on it everywhere.",
			Done: func(ctx context.Context) error { return n.rotatedDone(ctx, r) },
			Do:   func(ctx context.Context, report bringup.Report) error { return n.rotatedDo(ctx, r, report) },

			Recheck: time.Hour},
	}
}

// inUse asks a node whether a stage is in effect there, by its kubelet's own log-in.
const inUse = `
test "$(cat ` + rotatedPath + ` 2>/dev/null)" = "$1" || { echo "the certificates of this stage are not in use"; exit 1; }
systemctl is-active --quiet kubelet.service || { echo "the kubelet does not run"; exit 1; }
kubectl --kubeconfig /etc/kubernetes/kubelet.conf --request-timeout 10s get "node/$2" -o name >/dev/null
`

func (n *node) rotatedDone(ctx context.Context, r *rotation) error {
	if err := n.checkFiles(ctx, r.files(n.ControlPlane)); err != nil {
		return err
	}
	if _, err := n.shell.RunScript(ctx, inUse, r.podMark(), n.Label); err != nil {
		return answerOf(err, "it is not rotated")
	}
	if !n.ControlPlane {
		return nil
	}
	return n.checkControlPlane(ctx, r)
}

// checkControlPlane is nil if the pods of a control plane run in a stage, and its API server answers.
func (n *node) checkControlPlane(ctx context.Context, r *rotation) error {
	a, err := n.openAPI(ctx)
	if err != nil {
		return err
	}
	if err := a.checkReady(ctx); err != nil {
		return err
	}
	for _, name := range controlPlanePods {
		pod, err := a.set.CoreV1().Pods("kube-system").Get(ctx, name+"-"+n.Label, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read pod of %s: %w", name, err)
		}
		if err := checkRotatedPod(pod, r.podMark()); err != nil {
			return err
		}
	}
	return nil
}

// checkRotatedPod is nil if a pod of a control plane runs in a stage, and is Ready.
func checkRotatedPod(pod *corev1.Pod, mark string) error {
	if pod.Annotations[label.Certificates] != mark {
		return fmt.Errorf("pod %s is not started again yet", pod.Name)
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("pod %s is not ready", pod.Name)
}

// renew makes what a control plane's own certificates are signed by who signs now. The chain of the API server leads to
// the former authority as well: pods read their authority when they start.
const renew = `
kubeadm certs renew all --config ` + initPath + ` >/dev/null
{ cat ` + pkiDir + `apiserver.crt; printf '%s' "$1"; } >` + pkiDir + `apiserver.crt.new
chmod 644 ` + pkiDir + `apiserver.crt.new
sync ` + pkiDir + `apiserver.crt.new
mv ` + pkiDir + `apiserver.crt.new ` + pkiDir + `apiserver.crt
`

// useRotated brings into use what was written: every kubeconfig trusts what ca.crt says, the kubelet logs in by $1, if
// that is given, and the control plane's pods start again. Pods of others do not notice.
const useRotated = `
authority=$(base64 -w 0 ` + caPath + `)
for conf in /etc/kubernetes/*.conf; do
	sed "s|^\( *certificate-authority-data: \).*|\1$authority|" "$conf" >"$conf.new"
	chmod --reference "$conf" "$conf.new"
	sync "$conf.new"
	mv "$conf.new" "$conf"
done
if test -n "$1"; then ln -sfn "$1" /var/lib/kubelet/pki/kubelet-client-current.pem; fi
if test -d ` + stagedDir + `; then
	mv ` + stagedDir + `*.yaml ` + manifestDir + `
	rmdir ` + stagedDir + `
	sync ` + manifestDir + `
fi
sync /etc/kubernetes /var/lib/kubelet/pki
`

// restartKubelet is after the control plane's pods: a kubelet that starts while none of them runs waits for the API server
// before it ends what is left of the former ones. The mark $1 is written last.
const restartKubelet = `
systemctl restart kubelet.service
echo "$1" >` + rotatedPath + `.new
sync ` + rotatedPath + `.new
mv ` + rotatedPath + `.new ` + rotatedPath + `
`

// rotatedTimeout is how long a control plane may take to start again.
const rotatedTimeout = 10 * time.Minute

func (n *node) rotatedDo(ctx context.Context, r *rotation, report bringup.Report) error {
	if n.ControlPlane {
		report("waiting for its turn")
		n.joining.Lock()
		defer n.joining.Unlock()
		if err := n.checkOthers(ctx); err != nil {
			return err
		}
	}

	report("writing its authorities")
	if err := n.put(ctx, r.files(n.ControlPlane)); err != nil {
		return err
	}
	if err := n.renewCertificates(ctx, r, report); err != nil {
		return err
	}
	if n.ControlPlane {
		if err := n.stageManifests(ctx, r); err != nil {
			return err
		}
	}

	report("bringing them into use")
	client := ""
	if r.Stage == contract.RotationSign {
		client = kubeletClientPath(r)
	}
	if _, err := n.runLocked(ctx, useRotated, client); err != nil {
		return err
	}
	if n.ControlPlane {
		ready := func(ctx context.Context) error { return n.checkControlPlane(ctx, r) }
		if err := n.waitFor(ctx, rotatedTimeout, ready); err != nil {
			return err
		}
	}

	report("starting its kubelet again")
	if _, err := n.runLocked(ctx, restartKubelet, r.podMark()); err != nil {
		return err
	}
	return n.waitFor(ctx, rotatedTimeout, func(ctx context.Context) error { return n.rotatedDone(ctx, r) })
}

// checkOthers is nil if every other control plane answers: one at a time is away.
func (n *node) checkOthers(ctx context.Context) error {
	for _, o := range n.nodes {
		if !o.ControlPlane || o == n {
			continue
		}
		a, err := o.openAPI(ctx)
		if err == nil {
			err = a.checkReady(ctx)
		}
		if err != nil {
			return fmt.Errorf("control plane %s does not answer: %w; switch it on, then the rotation continues", o.Label, err)
		}
	}
	return nil
}

// kubeletClientPath is the certificate by which a kubelet logs in, until it gets itself the next.
func kubeletClientPath(r *rotation) string {
	return "/var/lib/kubelet/pki/kubelet-client-" + r.Token + ".pem"
}

// renewCertificates replaces what the former authorities signed, once the next ones sign.
func (n *node) renewCertificates(ctx context.Context, r *rotation, report bringup.Report) error {
	if r.Stage != contract.RotationSign {
		return nil
	}
	report("renewing its certificates")

	signer := n
	if !n.ControlPlane {
		signer = n.firstControlPlane()
	}
	if err := signer.ensureConfig(ctx); err != nil {
		return err
	}
	if n.ControlPlane {
		if _, err := n.runLocked(ctx, renew, r.Cross); err != nil {
			return err
		}
	}

	made, err := signer.shell.RunSecret(
		ctx, "kubeadm", "kubeconfig", "user", "--config", initPath, "--org", "system:nodes",
		"--client-name", "system:node:"+n.Label,
	)
	if err != nil {
		return err
	}
	config, err := clientcmd.Load([]byte(made))
	if err != nil {
		return fmt.Errorf("read kubeconfig of a kubelet: %w", err)
	}
	_, user, err := kubeconfig.Current(config)
	if err != nil {
		return fmt.Errorf("read kubeconfig of a kubelet: %w", err)
	}
	text := append(append([]byte{}, user.ClientCertificateData...), user.ClientKeyData...)
	return n.put(ctx, []file{{kubeletClientPath(r), 0o600, text}})
}

// stageManifests writes the manifests of a control plane next to where the kubelet reads them.
func (n *node) stageManifests(ctx context.Context, r *rotation) error {
	var files []file
	for _, name := range controlPlanePods {
		text, err := n.shell.Run(ctx, nil, "cat", manifestDir+name+".yaml")
		if err != nil {
			return err
		}
		made, err := r.manifest(text)
		if err != nil {
			return fmt.Errorf("%s%s.yaml: %w", manifestDir, name, err)
		}
		files = append(files, file{stagedDir + name + ".yaml", 0o600, made})
	}
	return n.put(ctx, files)
}
