package installer

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/clusters/contract/inventory"
	"firstlight.dev/firstlight/daemon/clusters/contract/kubeconfig"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// The kubeconfig that the operator hands out is of a user of its own, whose name is new each time, and
// one binding says which of them is the administrator: with the next one, the one before is worth
// nothing. Kubernetes knows no other way to take back a certificate.
const (
	adminPrefix  = "firstlight-admin-"
	adminBinding = "firstlight:admin"
)

func (c *cluster) kubeconfigPath() string { return filepath.Join(c.dir, contract.FileKubeconfig) }

// kubeconfigFor makes the administrator's kubeconfig for use from outside: by the addresses of the control
// planes instead of the nodes' own proxies. Each control plane is a context; the first is the current one. It was made on
// a node, which is its owner's: certificates and key are taken from it and nothing else, because whoever uses it would
// run the programs and read the files that it names.
func kubeconfigFor(cluster string, made []byte, servers []inventory.Node) ([]byte, error) {
	config, err := clientcmd.Load(made)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}

	theirs, user, err := kubeconfig.Current(config)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}

	out := clientcmdapi.NewConfig()
	out.CurrentContext = cluster
	for i, s := range servers {
		name := cluster
		if i > 0 {
			name += "-" + s.Label
		}

		out.Clusters[name] = &clientcmdapi.Cluster{
			Server:                   "https://" + netip.AddrPortFrom(s.Addr, 6443).String(),
			CertificateAuthorityData: theirs.CertificateAuthorityData,
		}
		out.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: cluster + "-admin"}
	}

	out.AuthInfos[cluster+"-admin"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: user.ClientCertificateData,
		ClientKeyData:         user.ClientKeyData,
	}
	text, err := clientcmd.Write(*out)
	if err != nil {
		return nil, fmt.Errorf("write kubeconfig: %w", err)
	}

	return text, nil
}

// adminUser is the user of a kubeconfig that this installer made, if it can still be handed out: for
// these control planes and this authority, and with a third of its life left.
func adminUser(text []byte, cluster string, servers []inventory.Node, authority []byte, now time.Time) (string, error) {
	again, err := kubeconfigFor(cluster, text, servers)
	if err != nil {
		return "", err
	}
	if string(again) != string(text) {
		return "", errors.New("the kubeconfig is not for these control planes")
	}

	config, err := kubeconfig.Parse(text)
	if err != nil {
		return "", err
	}
	if firstBlock(string(config.CAData)) != firstBlock(string(authority)) { // who signs now
		return "", errors.New("the kubeconfig is of another cluster")
	}

	block, _ := pem.Decode(config.CertData)
	if block == nil {
		return "", errors.New("the kubeconfig has no certificate")
	}

	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("read the kubeconfig's certificate: %w", err)
	}
	if left, life := cert.NotAfter.Sub(now), cert.NotAfter.Sub(cert.NotBefore); left < life/3 {
		return "", fmt.Errorf("the kubeconfig's certificate ends on %s", cert.NotAfter.Format(time.DateOnly))
	}
	if !strings.HasPrefix(cert.Subject.CommonName, adminPrefix) {
		return "", fmt.Errorf("the kubeconfig is of the user %q", cert.Subject.CommonName)
	}

	return cert.Subject.CommonName, nil
}

// bindAdmin makes a user the administrator, and nobody who was it before.
func bindAdmin(user string) (apply.Set, error) {
	return apply.New("firstlight-installer", &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: adminBinding},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
}

func (c *cluster) kubeconfigDone(ctx context.Context) error {
	a, err := c.connect(ctx)
	if err != nil {
		return err
	}

	text, err := os.ReadFile(c.kubeconfigPath())
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}

	user, err := adminUser(text, c.Cluster, c.inv.ControlPlanes(), a.authority, time.Now())
	if err != nil {
		return err
	}

	set, err := bindAdmin(user)
	if err != nil {
		return bringup.Permanent(err)
	}
	if err := set.CheckCurrent(ctx, a.client); err != nil {
		return err
	}

	return checkAdmin(ctx, text)
}

// checkAdmin tries what only an administrator may.
func checkAdmin(ctx context.Context, text []byte) error {
	config, err := kubeconfig.Parse(text)
	if err != nil {
		return err
	}

	set, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}

	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if _, err := set.CoreV1().Secrets("kube-system").List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		return fmt.Errorf("try the kubeconfig: %w", err)
	}

	return nil
}

// kubeconfigDo lets kubeadm make a kubeconfig of a new user and makes that user the administrator.
func (c *cluster) kubeconfigDo(ctx context.Context, report bringup.Report) error {
	a, err := c.connect(ctx)
	if err != nil {
		return err
	}

	report("making a kubeconfig")
	user := adminPrefix + strings.ToLower(rand.Text()[:10])
	if err := a.from.ensureConfig(ctx); err != nil {
		return err
	}

	made, err := a.from.shell.RunSecret(
		ctx, "kubeadm", "kubeconfig", "user", "--config", initPath, "--client-name", user, "--validity-period",
		adminValidity.String(),
	)
	if err != nil {
		return err
	}

	text, err := kubeconfigFor(c.Cluster, []byte(made), c.inv.ControlPlanes())
	if err != nil {
		return err
	}

	set, err := bindAdmin(user)
	if err != nil {
		return bringup.Permanent(err)
	}
	if err := set.Apply(ctx, a.client); err != nil {
		return err
	}

	return atomicfile.WriteChanged(c.kubeconfigPath(), text, 0o600)
}

// adminValidity is how long a kubeconfig is good for; the next run of the installer after two thirds of it
// makes a new one.
const adminValidity = 3 * 365 * 24 * time.Hour
