package installer

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/engine/bringup"
	"firstlight.dev/firstlight/daemon/engine/rights"
)

// rotationStages are of the cluster, after all nodes.
func (c *cluster) rotationStages(r *rotation) []bringup.Stage {
	list := []bringup.Stage{{
		Name:  "clients-told",
		Title: "Nodes and pods learn the authorities",
		Fact:  "nodes that join and pods that start are told of the authorities of this stage",
		Why:   "Before the next stage: who starts now has to know who signs then.",
		Done:  func(ctx context.Context) error { return c.toldDone(ctx, r) },
		Do:    func(ctx context.Context, _ bringup.Report) error { return c.toldDo(ctx, r) },
	}}
	if r.Stage == contract.RotationTrust {
		return list
	}
	return append(list, bringup.Stage{
		Name:  "kubeconfig-kept",
		Title: "The kubeconfig is made",
		Fact:  "the kubeconfig that the operator hands out works, and no earlier one does",
		Why:   "Last: the one that was handed out works until then.",
		Done:  c.kubeconfigDone,
		Do:    c.kubeconfigDo,
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

// checkTokens is nil if no Secret has a token that the former key signed.
func (c *cluster) checkTokens(ctx context.Context, former string) error {
	a, err := c.connect(ctx)
	if err != nil {
		return err
	}
	return rights.CheckTokens(ctx, a.set, former)
}
