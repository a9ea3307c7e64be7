package clusterapi

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// providerLogin names the kubeconfig of the infrastructure provider: with it this program is the provider, so that it
// can be killed.
const providerLogin = "FIRSTLIGHT_TEST_PROVIDER"

func TestMain(m *testing.M) {
	if file := os.Getenv(providerLogin); file != "" {
		fmt.Fprintln(os.Stderr, runProvider(file))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// runProvider is the infrastructure provider, as the operator of clusters has it beside its own controllers.
func runProvider(kubeconfig string) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctrllog.SetLogger(logr.FromSlogHandler(log.Handler()))
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 100, 200
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return err
	}
	m, err := ctrlmanager.New(config, ctrlmanager.Options{Scheme: scheme, Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	if err := metal3provider.Add(m, log); err != nil {
		return err
	}
	return m.Start(signals.SetupSignalHandler())
}

const roleControlPlane = "node-role.kubernetes.io/control-plane"

// rack is a management cluster with the provider and simulated hosts. Its API server is the workload clusters' too: a
// Node that boots joins it.
type rack struct {
	*management
	full     client.Client // knows hosts
	provider *exec.Cmd
	wait     sync.WaitGroup
}

func newRack(t *testing.T, hosts int) *rack {
	r := &rack{management: newManagement(t)}
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, metal3provider.AddToScheme(scheme))
	config, err := clientcmd.BuildConfigFromFlags("", r.api.Kubeconfig)
	require.NoError(t, err)
	r.full, err = client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)

	definition, err := sandbox.HostDefinition(t.Context())
	require.NoError(t, err)
	r.apply(string(definition))

	r.until("hosts are served", func() error { return r.full.List(t.Context(), &metal3api.BareMetalHostList{}) })
	for i := range hosts {
		r.addHost(fmt.Sprintf("host-%d", i+1))
	}

	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: "provider"}}
	require.NoError(t, r.full.Create(t.Context(), account))
	file := filepath.Join(r.dir, "metal3", "kubeconfig")
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
	r.writeLogin(account, file)
	installation := &metal3provider.Installation{Account: metal3provider.Account{Namespace: "metal3", Name: "provider"}}
	r.until("the provider's kinds and rights are applied", func() error { return r.serve(t.Context(), installation) })

	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r.wait.Go(func() { r.operate(ctx, installation) })
	t.Cleanup(func() { cancel(); r.wait.Wait() })
	t.Cleanup(r.killProvider)
	r.startProvider()
	return r
}

func (r *rack) addHost(name string) {
	h := &metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{
		Namespace: "metal3", Name: name, Labels: map[string]string{label.Verified: label.VerifiedHardware},
		Annotations: map[string]string{label.Cleared: "registration"},
	}}
	h.Spec.BMC.CredentialsName = name + "-bmc"
	h.Spec.Online, h.Spec.AutomatedCleaningMode = true, metal3api.CleaningModeDisabled
	require.NoError(r.t, r.full.Create(r.t.Context(), h))
	r.setState(r.t.Context(), h, metal3api.StateAvailable)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: name + "-bmc"}}
	require.NoError(r.t, r.full.Create(r.t.Context(), secret))
}

// setState is tried again at the next look if somebody wrote the host in between.
func (r *rack) setState(ctx context.Context, h *metal3api.BareMetalHost, state metal3api.ProvisioningState) {
	h.Status.Provisioning.State, h.Status.Provisioning.ID = state, "id"
	h.Status.HardwareProfile, h.Status.OperationalStatus = "unknown", metal3api.OperationalStatusOK
	h.Status.OperationHistory = metal3api.OperationHistory{}
	h.Status.HardwareDetails = &metal3api.HardwareDetails{
		Hostname: h.Name, NIC: []metal3api.NIC{{Name: "eth0", MAC: "52:54:00:00:00:01", IP: "10.0.0." + h.Name[len(h.Name)-1:]}},
	}
	if err := r.full.Status().Update(ctx, h); err != nil {
		r.t.Logf("host %s: %v", h.Name, err)
	}
}

// serve is the daemon's part.
func (r *rack) serve(ctx context.Context, i *metal3provider.Installation) error {
	var hosts metal3api.BareMetalHostList
	if err := r.full.List(ctx, &hosts); err != nil {
		return err
	}
	return i.Serve(ctx, r.full, hosts.Items, nil)
}

// operate is the daemon, the operator of hosts and the kubelets, until ctx ends.
func (r *rack) operate(ctx context.Context, i *metal3provider.Installation) {
	for ctx.Err() == nil {
		if err := r.serve(ctx, i); err != nil && ctx.Err() == nil {
			r.t.Logf("serve: %v", err)
		}
		var hosts metal3api.BareMetalHostList
		if r.full.List(ctx, &hosts) == nil {
			for n := range hosts.Items {
				r.operateHost(ctx, &hosts.Items[n])
			}
		}
		r.endPods(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// operateHost installs a host that has an image, and gives up and inspects one that had.
func (r *rack) operateHost(ctx context.Context, h *metal3api.BareMetalHost) {
	_, inspect := h.Annotations[metal3api.InspectAnnotationPrefix]
	state := h.Status.Provisioning.State
	switch {
	case inspect && state == metal3api.StateAvailable:
		before := h.DeepCopy()
		delete(h.Annotations, metal3api.InspectAnnotationPrefix)
		_ = r.full.Patch(ctx, h, client.MergeFrom(before))
	case h.Spec.Image != nil && state != metal3api.StateProvisioned:
		r.setState(ctx, h, metal3api.StateProvisioned)
	case h.Spec.Image != nil:
		r.boot(ctx, h)
	case state == metal3api.StateProvisioned:
		r.setState(ctx, h, metal3api.StateDeprovisioning)
	case state == metal3api.StateDeprovisioning:
		r.setState(ctx, h, metal3api.StateAvailable)
	}
}

// boot is the kubelet of a host: it makes its Node, once for each installation. A control plane node has the pods that
// kubeadm would have started.
func (r *rack) boot(ctx context.Context, h *metal3api.BareMetalHost) {
	name := h.Spec.ConsumerRef.Name
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"metal3.io/uuid": string(h.UID)}}}
	isControlPlane := !strings.Contains(name, "-md-")
	if isControlPlane {
		n.Labels[roleControlPlane] = ""
		n.Spec.Taints = []corev1.Taint{{Key: roleControlPlane, Effect: corev1.TaintEffectNoSchedule}}
	}
	if r.full.Create(ctx, n) != nil {
		return
	}
	n.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse},
	}
	n.Status.NodeInfo.KubeletVersion = "v1.36.3"
	_ = r.full.Status().Update(ctx, n)
	for _, component := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		if !isControlPlane {
			return
		}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "kube-system", Name: component + "-" + name,
			Labels: map[string]string{"component": component, "tier": "control-plane"},
		}}
		p.Spec.NodeName, p.Spec.Containers = name, []corev1.Container{{Name: component, Image: component}}
		if r.full.Create(ctx, p) == nil {
			p.Status.Phase = corev1.PodRunning
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			_ = r.full.Status().Update(ctx, p)
		}
	}
}

// endPods is the kubelets' part of the deletion of pods.
func (r *rack) endPods(ctx context.Context) {
	var pods corev1.PodList
	if r.full.List(ctx, &pods, client.InNamespace(metav1.NamespaceSystem)) != nil {
		return
	}
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp != nil {
			_ = r.full.Delete(ctx, &pods.Items[i], client.GracePeriodSeconds(0))
		}
	}
}

func (r *rack) startProvider() {
	log, err := os.OpenFile(filepath.Join(r.dir, "metal3", "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(r.t, err)
	defer log.Close()
	self, err := os.Executable()
	require.NoError(r.t, err)
	r.provider = exec.Command(self)
	r.provider.Env = append(os.Environ(), providerLogin+"="+filepath.Join(r.dir, "metal3", "kubeconfig"))
	r.provider.Stdout, r.provider.Stderr = log, log
	r.provider.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(r.t, r.provider.Start())
}

func (r *rack) killProvider() {
	if r.provider != nil {
		_ = r.provider.Process.Kill()
		_ = r.provider.Wait()
		r.provider = nil
	}
}

// killAll kills the managers and the provider, and starts them again.
func (r *rack) killAll() {
	r.killProvider()
	r.restart()
	r.startProvider()
}

func (r *rack) list(kind, path string) []string {
	out, err := r.kubectl("", "get", kind, "-n", "metal3", "-o", "jsonpath={range .items[*]}{"+path+"}{\"\\n\"}{end}")
	require.NoError(r.t, err, out)
	return strings.Fields(out)
}

// settles waits until so many machines of each kind run on a host of their own, and checks what must hold of each.
func (r *rack) settles(controlPlane, workers int) {
	r.t.Helper()
	r.until(fmt.Sprintf("%d and %d machines run", controlPlane, workers), func() error {
		if got := r.list("machines", ".status.phase"); len(got) != controlPlane+workers || strings.Count(strings.Join(got, " "), "Running") != len(got) {
			text, _ := r.kubectl("", "get", "machines,metal3machines,bmh", "-n", "metal3", "-o", "wide")
			return fmt.Errorf("the machines are %v\n%s", got, text)
		}
		if got := r.list("bmh", ".spec.consumerRef.name"); len(got) != controlPlane+workers {
			return fmt.Errorf("hosts are claimed by %v", got)
		}
		return nil
	})

	ids := map[string]bool{}
	for _, name := range r.list("metal3machines", ".metadata.name") {
		host := strings.TrimPrefix(r.in("metal3machine", name, `.metadata.annotations.metal3\.io/BareMetalHost`), "metal3/")
		id := fmt.Sprintf("metal3://metal3/%s/%s", host, name)
		assert.False(r.t, ids[host], "host %s has two machines", host)
		ids[host] = true
		assert.Equal(r.t, id, r.in("metal3machine", name, ".spec.providerID"))
		assert.Equal(r.t, id, r.in("machine", name, ".spec.providerID"))
		assert.Equal(r.t, id, r.in("node", name, ".spec.providerID"))
		assert.Equal(r.t, name, r.in("bmh", host, ".spec.consumerRef.name"))
		assert.Equal(r.t, name, r.in("bmh", host, ".spec.userData.name"), "user data is the bootstrap provider's")
		assert.Equal(r.t, name+"-metadata", r.in("bmh", host, ".spec.metaData.name"))
		assert.True(r.t, strings.HasPrefix(r.in("secret", name, ".data.value"), "IyMgdGVtcGxhdGU6IGppbmphC"))
	}
	assert.Len(r.t, ids, controlPlane+workers)
}

// in is one field of an object of the rack.
func (r *rack) in(kind, name, path string) string {
	out, err := r.kubectl("", "get", kind, name, "-n", "metal3", "--ignore-not-found", "-o", "jsonpath={"+path+"}")
	require.NoError(r.t, err, out)
	return out
}

func (r *rack) run(args ...string) {
	r.t.Helper()
	out, err := r.kubectl("", args...)
	require.NoError(r.t, err, out)
}
