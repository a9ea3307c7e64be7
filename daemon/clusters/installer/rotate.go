package installer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/clusters/contract/kubeconfig"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// Rotate replaces the authorities of a cluster in service, as far as it may by now: Kubernetes' own, etcd's, that of the
// front proxy, and the key of service accounts. Control planes go one after another, then workers, through each stage:
// both are trusted, the next ones sign, the former ones are trusted no more. The last follows settle after the one
// before: until then a run ends well without it. A token names the rotation, so that one that is done is not begun again.
func (i *Installer) Rotate(ctx context.Context, token string, settle time.Duration) error {
	c := i.cluster
	for {
		r, err := c.loadRotation(ctx, token)
		if err != nil {
			return err
		}
		if err := c.saveProgress(r.Rotation); err != nil {
			return err
		}
		if !r.IsDue(token, time.Now(), settle) {
			return nil
		}

		if r.Stage == contract.RotationSigned {
			if err := c.checkTokens(ctx, r); err != nil {
				return err
			}
			r.Stage = contract.RotationDrop
			if err := c.saveRotation(ctx, r); err != nil {
				return err
			}
			continue
		}
		if err := i.rotateStage(ctx, r); err != nil {
			return err
		}

		r.conclude(time.Now())
		if err := c.saveRotation(ctx, r); err != nil {
			return err
		}
	}
}

// conclude is after a stage is in effect everywhere.
func (r *rotation) conclude(now time.Time) {
	switch r.Stage {
	case contract.RotationTrust:
		r.Stage = contract.RotationSign
	case contract.RotationSign:
		r.Stage, r.Signed = contract.RotationSigned, now.UTC()
		r.forgetKeys()
	case contract.RotationDrop:
		r.Stage, r.Former, r.Next, r.Cross = contract.RotationDone, nil, nil, ""
	}
}

// loadRotation reads the record on the first control plane; one of another token that is done is replaced by the next.
func (c *cluster) loadRotation(ctx context.Context, token string) (*rotation, error) {
	n := c.firstControlPlane()
	if err := n.reachedDone(ctx); err != nil {
		return nil, fmt.Errorf("node %s: %w", n.Label, err)
	}

	text, err := n.shell.RunSecret(ctx, "sh", "-c", `test ! -e "$1" || cat "$1"`, "sh", rotationPath)
	if err != nil {
		return nil, fmt.Errorf("read record of the rotation on %s: %w", n.Label, err)
	}
	r := &rotation{}
	if text != "" {
		if err := json.Unmarshal([]byte(text), r); err != nil {
			return nil, bringup.Permanent(fmt.Errorf("read record of the rotation %s on %s: %w", rotationPath, n.Label, err))
		}
		if r.Token == token || r.Stage != contract.RotationDone {
			return r, nil // one that was begun is completed first
		}
	}

	former := authorities{}
	for _, path := range authorityFiles() {
		if former[path], err = n.shell.RunSecret(ctx, "cat", pkiDir+path); err != nil {
			return nil, fmt.Errorf("read %s on %s: %w", path, n.Label, err)
		}
	}
	if r, err = newRotation(token, former, time.Now()); err != nil {
		return nil, fmt.Errorf("node %s: %w", n.Label, err)
	}
	return r, c.saveRotation(ctx, r)
}

// saveRotation writes how far it is: on the first control plane, then for the operator.
func (c *cluster) saveRotation(ctx context.Context, r *rotation) error {
	text, err := r.encode()
	if err != nil {
		return err
	}
	if err := c.firstControlPlane().put(ctx, []file{{rotationPath, 0o600, text}}); err != nil {
		return err
	}
	return c.saveProgress(r.Rotation)
}

func (c *cluster) saveProgress(r contract.Rotation) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return atomicfile.WriteChanged(filepath.Join(c.dir, contract.FileRotation), append(text, '\n'), 0o644)
}

// rotateStage brings one stage into effect: on control planes, on workers, then in what the cluster tells its clients.
func (i *Installer) rotateStage(ctx context.Context, r *rotation) error {
	i.cluster.forgetAPI()
	for _, controlPlanes := range []bool{true, false} {
		plans := map[string]*bringup.Runner{}
		var order []string
		for _, n := range i.cluster.nodes {
			if n.ControlPlane == controlPlanes {
				order = append(order, n.Label)
				plans[n.Label] = &bringup.Runner{Plan: n.rotationStages(r), Log: n.log}
			}
		}
		if len(order) == 0 {
			continue
		}
		if err := i.run(ctx, plans, order); err != nil {
			return err
		}
	}

	i.cluster.forgetAPI()
	plan := i.cluster.rotationStages(r)
	return i.run(ctx, map[string]*bringup.Runner{"": {Plan: plan, Log: i.cluster.log}}, []string{""})
}

// forgetAPI has the API looked for again: what was known of it trusts what the stage before did.
func (c *cluster) forgetAPI() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.api = nil
}

func (n *node) rotationStages(r *rotation) []bringup.Stage {
	return []bringup.Stage{
		{Name: "reached", Fact: "the node answers by SSH and is part of this cluster",
			Why:  "First: nothing is changed on a node of another cluster.",
			Done: n.reachedDone, Recheck: time.Hour},
		{Name: "certificates-" + r.Stage, Fact: "its authorities and certificates are those of this stage, and in use",
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

// rotationStages are of the cluster, after all nodes.
func (c *cluster) rotationStages(r *rotation) []bringup.Stage {
	list := []bringup.Stage{{
		Name: "clients-told",
		Fact: "nodes that join and pods that start are told of the authorities of this stage",
		Why:  "Before the next stage: who starts now has to know who signs then.",
		Done: func(ctx context.Context) error { return c.toldDone(ctx, r) },
		Do:   func(ctx context.Context, _ bringup.Report) error { return c.toldDo(ctx, r) },
	}}
	if r.Stage == contract.RotationTrust {
		return list
	}
	return append(list, bringup.Stage{
		Name: "kubeconfig-kept",
		Fact: "the kubeconfig that the operator hands out works, and no earlier one does",
		Why:  "Last: the one that was handed out works until then.",
		Done: c.kubeconfigDone,
		Do:   c.kubeconfigDo,
	})
}

func (c *cluster) toldDone(ctx context.Context, r *rotation) error {
	a, err := c.connect(ctx)
	if err != nil {
		return bringup.Wait("the cluster's API: %v", err)
	}
	info, err := a.set.CoreV1().ConfigMaps("kube-public").Get(ctx, "cluster-info", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read ConfigMap kube-public/cluster-info: %w", err)
	}
	told, err := withAuthority(info.Data["kubeconfig"], r.trusts())
	if err != nil {
		return err
	}
	if told != info.Data["kubeconfig"] {
		return errors.New("nodes that join are told of other authorities")
	}

	roots, err := a.set.CoreV1().ConfigMaps("").List(
		ctx, metav1.ListOptions{FieldSelector: "metadata.name=kube-root-ca.crt"},
	)
	if err != nil {
		return fmt.Errorf("list ConfigMaps kube-root-ca.crt: %w", err)
	}
	for _, o := range roots.Items {
		if o.Data["ca.crt"] != r.trusts() {
			return bringup.Wait("the controller manager to write ConfigMap %s/%s", o.Namespace, o.Name)
		}
	}
	return nil
}

func (c *cluster) toldDo(ctx context.Context, r *rotation) error {
	a, err := c.connect(ctx)
	if err != nil {
		return err
	}
	info, err := a.set.CoreV1().ConfigMaps("kube-public").Get(ctx, "cluster-info", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read ConfigMap kube-public/cluster-info: %w", err)
	}
	if info.Data["kubeconfig"], err = withAuthority(info.Data["kubeconfig"], r.trusts()); err != nil {
		return err
	}
	_, err = a.set.CoreV1().ConfigMaps("kube-public").Update(ctx, info, metav1.UpdateOptions{})
	return err
}

// withAuthority is a kubeconfig whose clusters trust a bundle.
func withAuthority(text, bundle string) (string, error) {
	config, err := clientcmd.Load([]byte(text))
	if err != nil {
		return "", fmt.Errorf("read kubeconfig: %w", err)
	}
	same := true
	for _, cluster := range config.Clusters {
		same = same && string(cluster.CertificateAuthorityData) == bundle
		cluster.CertificateAuthorityData = []byte(bundle)
	}
	if same {
		return text, nil
	}
	out, err := clientcmd.Write(*config)
	return string(out), err
}

// checkTokens is nil if no Secret has a token that the former key signed. Kubernetes renews those of pods; one in a Secret
// stays as it is, and whoever uses it would be refused.
func (c *cluster) checkTokens(ctx context.Context, r *rotation) error {
	a, err := c.connect(ctx)
	if err != nil {
		return err
	}
	list, err := a.set.CoreV1().Secrets("").List(
		ctx, metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeServiceAccountToken)},
	)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("list Secrets with tokens: %w", err)
	}

	var names []string
	for _, s := range list.Items {
		if isSignedBy(s.Data[corev1.ServiceAccountTokenKey], r.Former["sa.pub"]) {
			names = append(names, s.Namespace+"/"+s.Name)
		}
	}
	if len(names) > 0 {
		return fmt.Errorf("the former key of service accounts is trusted for the tokens in %d Secrets: %s; have each renewed "+
			"(kubectl patch secret NAME --type=json -p '[{\"op\":\"remove\",\"path\":\"/data/token\"}]') or delete it",
			len(names), strings.Join(names, ", "))
	}
	return nil
}
