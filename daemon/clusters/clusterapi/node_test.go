package clusterapi

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

const roleControlPlane = "node-role.kubernetes.io/control-plane"

// bootstrappers are those who come with a token of the bootstrap provider.
const bootstrappers = "system:bootstrappers:kubeadm:default-node-token"

// kubeadmConfig is what is read of an InitConfiguration or a JoinConfiguration.
type kubeadmConfig struct {
	Kind             string         `json:"kind"`
	ControlPlane     map[string]any `json:"controlPlane"`
	NodeRegistration struct {
		Name             string                         `json:"name"`
		KubeletExtraArgs []struct{ Name, Value string } `json:"kubeletExtraArgs"`
		Taints           []corev1.Taint                 `json:"taints"`
	} `json:"nodeRegistration"`
	Discovery struct {
		BootstrapToken struct {
			Token      string   `json:"token"`
			Endpoint   string   `json:"apiServerEndpoint"`
			CertHashes []string `json:"caCertHashes"`
		} `json:"bootstrapToken"`
	} `json:"discovery"`
}

// isControlPlane reports whether the node serves the API.
func (k kubeadmConfig) isControlPlane() bool {
	return k.Kind == "InitConfiguration" || k.ControlPlane != nil
}

// system is what cloud-init makes of the data that a host got: its files, and the configuration of kubeadm among them.
type system struct {
	files   map[string]string
	kubeadm kubeadmConfig
}

var metaDataValue = regexp.MustCompile(`{{ *ds\.meta_data\.([a-z_]+) *}}`)

// readSystem is cloud-init on a host: user data with the metadata in it, over what the operator of hosts always gives.
func (r *rack) readSystem(ctx context.Context, h *metal3api.BareMetalHost) (system, error) {
	user, meta := &corev1.Secret{}, &corev1.Secret{}
	for name, secret := range map[string]*corev1.Secret{h.Spec.UserData.Name: user, h.Spec.MetaData.Name: meta} {
		if err := r.full.Get(ctx, client.ObjectKey{Namespace: h.Namespace, Name: name}, secret); err != nil {
			return system{}, err
		}
	}

	values := map[string]string{}
	if err := yaml.Unmarshal(meta.Data["metaData"], &values); err != nil {
		return system{}, fmt.Errorf("metadata: %w", err)
	}
	defaults := map[string]string{"uuid": string(h.UID), "local_hostname": h.Name, "name": h.Name}
	maps.Copy(defaults, values)
	text, isTemplate := strings.CutPrefix(string(user.Data["value"]), "## template: jinja\n")
	if !isTemplate {
		return system{}, fmt.Errorf("user data of %s has no template's first line", h.Name)
	}
	text = metaDataValue.ReplaceAllStringFunc(text, func(s string) string {
		return defaults[metaDataValue.FindStringSubmatch(s)[1]]
	})

	var config struct {
		WriteFiles []struct{ Path, Content string } `json:"write_files"`
	}
	if err := yaml.Unmarshal([]byte(text), &config); err != nil {
		return system{}, fmt.Errorf("cloud-config of %s: %w", h.Name, err)
	}
	s := system{files: map[string]string{}}
	for _, f := range config.WriteFiles {
		s.files[f.Path] = f.Content
	}
	for _, file := range []string{"/run/kubeadm/kubeadm.yaml", "/run/kubeadm/kubeadm-join-config.yaml"} {
		for doc := range strings.SplitSeq(s.files[file], "---\n") {
			var k kubeadmConfig
			if err := yaml.Unmarshal([]byte(doc), &k); err != nil {
				return system{}, fmt.Errorf("%s of %s: %w", file, h.Name, err)
			}
			if k.Kind == "InitConfiguration" || k.Kind == "JoinConfiguration" {
				s.kubeadm = k
			}
		}
	}
	if s.kubeadm.NodeRegistration.Name == "" {
		return system{}, fmt.Errorf("cloud-config of %s has no name of a Node", h.Name)
	}
	return s, nil
}

// login is what the node can write with: as the administrator that `kubeadm init` makes from the cluster's authority, or
// by the token that a node joins with, at the endpoint and with the authority that the same data names.
func (r *rack) login(s system) (client.Client, error) {
	config := &rest.Config{Host: r.api.URL, QPS: 50, Burst: 100}
	config.CAFile = r.api.CAFile
	if token := s.kubeadm.Discovery.BootstrapToken; token.Token != "" {
		hash := sha256.Sum256(r.authority.RawSubjectPublicKeyInfo)
		if want := "sha256:" + hex.EncodeToString(hash[:]); !slices.Contains(token.CertHashes, want) {
			return nil, fmt.Errorf("the data names the authorities %v and not %s", token.CertHashes, want)
		}
		config.Host, config.BearerToken = "https://"+token.Endpoint, token.Token
		return client.New(config, client.Options{Scheme: r.full.Scheme()})
	}

	pair, err := tls.X509KeyPair([]byte(s.files["/etc/kubernetes/pki/ca.crt"]), []byte(s.files["/etc/kubernetes/pki/ca.key"]))
	if err != nil {
		return nil, fmt.Errorf("the cluster's authority: %w", err)
	}
	subject := pkix.Name{CommonName: "kubernetes-admin", Organization: []string{"system:masters"}}
	admin := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      subject,
		NotBefore:    time.Now().Add(-time.Minute),
		NotAfter:     time.Now().Add(time.Hour),
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	keyPEM, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return nil, err
	}
	key, err := keyutil.ParsePrivateKeyPEM(keyPEM)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, admin, pair.Leaf, key.(crypto.Signer).Public(), pair.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("mint administrator: %w", err)
	}
	config.CertData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	config.KeyData = keyPEM
	return client.New(config, client.Options{Scheme: r.full.Scheme()})
}

// boot is what a host does with its data: kubeadm's part of a cluster that begins, or of one that is joined, and the
// kubelet's Node. It is done once for each installation.
func (r *rack) boot(ctx context.Context, h *metal3api.BareMetalHost) error {
	if h.Spec.UserData == nil || h.Spec.MetaData == nil {
		return fmt.Errorf("host %s has an image and not its data", h.Name)
	}
	if r.booted[h.Name] == h.Spec.UserData.Name {
		return nil
	}
	s, err := r.readSystem(ctx, h)
	if err != nil {
		return err
	}
	node, err := r.login(s)
	if err != nil {
		return err
	}
	if s.kubeadm.Kind == "InitConfiguration" {
		if begun, err := r.countBegun(ctx); err != nil || begun < r.atOnce {
			return err
		}
		if err := initialize(ctx, node); err != nil {
			return fmt.Errorf("init of %s: %w", h.Name, err)
		}
	}

	if err := register(ctx, node, s.kubeadm); err != nil {
		return fmt.Errorf("join of %s: %w", h.Name, err)
	}
	if s.kubeadm.isControlPlane() {
		if err := r.runControlPlane(ctx, s.kubeadm.NodeRegistration.Name); err != nil {
			return err
		}
	}
	r.booted[h.Name] = h.Spec.UserData.Name
	return nil
}

// countBegun is of how many clusters the first machine has its data. All share one API server, and once kubeadm's
// configuration is there, the control plane provider takes each of them for initialized: machines that have no data yet
// would be told to join.
func (r *rack) countBegun(ctx context.Context) (int, error) {
	machines, err := r.resource("machines").List(ctx, metav1.ListOptions{LabelSelector: clusterv1.MachineControlPlaneLabel})
	if err != nil {
		return 0, fmt.Errorf("list machines: %w", err)
	}

	begun := map[string]bool{}
	for _, m := range machines.Items {
		if data, _, _ := unstructured.NestedString(m.Object, "spec", "bootstrap", "dataSecretName"); data != "" {
			begun[m.GetLabels()[clusterv1.ClusterNameLabel]] = true
		}
	}
	return len(begun), nil
}

// initialize is what `kubeadm init` leaves for others: its configuration, and the rights of those that join.
func initialize(ctx context.Context, c client.Client) error {
	rights := metav1.ObjectMeta{Name: "kubeadm:node-bootstrapper"}
	for _, o := range []client.Object{
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kubeadm-config"},
			Data:       map[string]string{"ClusterConfiguration": ""},
		},
		&rbacv1.ClusterRole{ObjectMeta: rights, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status"}, Verbs: []string{"create", "update"},
		}}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: rights,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: rights.Name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: bootstrappers}},
		},
	} {
		if err := c.Create(ctx, o); client.IgnoreAlreadyExists(err) != nil {
			return err
		}
	}
	return nil
}

// register is the kubelet: it makes its Node, with the labels that its data gives it.
func register(ctx context.Context, c client.Client, k kubeadmConfig) error {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: k.NodeRegistration.Name, Labels: map[string]string{}}}
	n.Spec.Taints = k.NodeRegistration.Taints
	for _, arg := range k.NodeRegistration.KubeletExtraArgs {
		switch arg.Name {
		case "provider-id":
			n.Spec.ProviderID = arg.Value
		case "node-labels":
			for pair := range strings.SplitSeq(arg.Value, ",") {
				name, value, _ := strings.Cut(pair, "=")
				n.Labels[name] = value
			}
		}
	}
	if k.isControlPlane() {
		n.Labels[roleControlPlane] = ""
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: roleControlPlane, Effect: corev1.TaintEffectNoSchedule})
	}
	if err := c.Create(ctx, n); err != nil {
		return client.IgnoreAlreadyExists(err)
	}
	n.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse},
	}
	n.Status.NodeInfo.KubeletVersion = "v1.36.3"
	return c.Status().Update(ctx, n)
}

// runControlPlane is the kubelet with the static pods of a control plane.
func (r *rack) runControlPlane(ctx context.Context, node string) error {
	for _, component := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: component + "-" + node,
			Labels: map[string]string{"component": component, "tier": "control-plane"},
		}}
		p.Spec.NodeName, p.Spec.Containers = node, []corev1.Container{{Name: component, Image: component}}
		if err := r.full.Create(ctx, p); client.IgnoreAlreadyExists(err) != nil {
			return err
		}
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		if err := r.full.Status().Update(ctx, p); err != nil {
			return err
		}
	}
	return nil
}
