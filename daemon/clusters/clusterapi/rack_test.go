package clusterapi

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider"
	"firstlight.dev/firstlight/daemon/engine/rights"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/image/lab/process"
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

// somebody claims a host that is no machine's.
const somebody = "somebody"

// rack is a management cluster with the provider and simulated hosts. Its API server is the workload clusters' too: a
// Node that boots joins it.
type rack struct {
	*management
	full      client.Client // knows hosts
	dynamic   dynamic.Interface
	authority *x509.Certificate
	provider  *process.Child
	history   *history
	booted    map[string]string // by host: the data that it booted with
	hosts     int               // that machines may have
	atOnce    int               // clusters that begin: the first Node waits until each has a machine with data
	template  string            // of data
	wait      sync.WaitGroup
}

func newRack(t *testing.T, hosts int) *rack {
	r := &rack{management: newManagement(t), booted: map[string]string{}, hosts: hosts, template: "edge"}
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, metal3provider.AddToScheme(scheme))
	config, err := clientcmd.BuildConfigFromFlags("", r.api.Kubeconfig)
	require.NoError(t, err)
	config.QPS = -1
	r.full, err = client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	r.dynamic, err = dynamic.NewForConfig(config)
	require.NoError(t, err)

	ca, err := os.ReadFile(r.api.CAFile)
	require.NoError(t, err)
	block, _ := pem.Decode(ca)
	r.authority, err = x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)

	definition, err := sandbox.HostDefinition(t.Context())
	require.NoError(t, err)
	hosted := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal(definition, &hosted.Object))
	definition, err = yaml.Marshal(metal3.LabelForMove(hosted).Object)
	require.NoError(t, err)
	r.apply(string(definition))

	r.until("hosts are served", func() error { return r.full.List(t.Context(), &metal3api.BareMetalHostList{}) })
	for i := range hosts {
		r.addHost(fmt.Sprintf("host-%d", i+1), func(*metal3api.BareMetalHost) {})
	}
	r.addHost("unproven", func(h *metal3api.BareMetalHost) { delete(h.Labels, label.Verified) })
	r.addHost("taken", func(h *metal3api.BareMetalHost) {
		h.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Provisioning", Namespace: "metal3", Name: somebody}
	})

	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: "provider"}}
	require.NoError(t, r.full.Create(t.Context(), account))
	file := filepath.Join(r.dir, "metal3", "kubeconfig")
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
	r.writeLogin(account, file)
	installation := &metal3provider.Installation{Account: rights.Account{Namespace: "metal3", Name: "provider"}}
	r.until("the provider's kinds and rights are applied", func() error { return r.serve(t.Context(), installation) })

	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r.wait.Go(func() { r.operate(ctx, installation) })
	t.Cleanup(func() { cancel(); r.wait.Wait() })
	t.Cleanup(r.killProvider)
	r.startProvider()
	r.record()
	return r
}

func (r *rack) addHost(name string, change func(*metal3api.BareMetalHost)) {
	h := &metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{
		Namespace: "metal3", Name: name, Labels: map[string]string{label.Verified: label.VerifiedHardware},
		Annotations: map[string]string{label.Cleared: "registration"},
	}}
	h.Spec.BMC.CredentialsName = name + "-bmc"
	h.Spec.AutomatedCleaningMode = metal3api.CleaningModeDisabled
	change(h)
	require.NoError(r.t, r.full.Create(r.t.Context(), h))
	r.setState(r.t.Context(), h, metal3api.StateAvailable)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: name + "-bmc"}}
	secret.OwnerReferences = []metav1.OwnerReference{{ // the operator of hosts sees to that
		APIVersion: metal3api.GroupVersion.String(), Kind: "BareMetalHost", Name: h.Name, UID: h.UID,
	}}
	require.NoError(r.t, r.full.Create(r.t.Context(), secret))
}

// setState is tried again at the next look if somebody wrote the host in between.
func (r *rack) setState(ctx context.Context, h *metal3api.BareMetalHost, state metal3api.ProvisioningState) {
	h.Status.Provisioning.State, h.Status.Provisioning.ID = state, "id"
	h.Status.HardwareProfile, h.Status.OperationalStatus = "unknown", metal3api.OperationalStatusOK
	h.Status.OperationHistory = metal3api.OperationHistory{}
	h.Status.HardwareDetails = &metal3api.HardwareDetails{
		Hostname: h.Name, NIC: []metal3api.NIC{
			{Name: "eth0", MAC: "52:54:00:00:00:01", IP: "10.0.0." + h.Name[len(h.Name)-1:]},
			{Name: "enp1s0", MAC: "52:54:00:00:00:02"},
			{Name: "enp2s0", MAC: "52:54:00:00:00:03"},
		},
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
	_, err := i.Serve(ctx, r.full, hosts.Items, nil)
	return err
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
	if _, paused := h.Annotations[metal3api.PausedAnnotation]; paused {
		return
	}
	if kept := h.Annotations[metal3api.StatusAnnotation]; kept != "" && h.Status.Provisioning.State == "" {
		r.restore(ctx, h, kept)
		return
	}

	_, inspect := h.Annotations[metal3api.InspectAnnotationPrefix]
	state := h.Status.Provisioning.State
	switch {
	case inspect && state == metal3api.StateAvailable:
		before := h.DeepCopy()
		delete(h.Annotations, metal3api.InspectAnnotationPrefix)
		_ = r.full.Patch(ctx, h, client.MergeFrom(before))
	case h.Spec.Image != nil && state == metal3api.StateAvailable:
		r.setState(ctx, h, metal3api.StateProvisioning)
	case h.Spec.Image != nil && state == metal3api.StateProvisioning:
		r.setState(ctx, h, metal3api.StateProvisioned)
	case h.Spec.Image != nil && state == metal3api.StateProvisioned:
		if err := r.boot(ctx, h); err != nil && ctx.Err() == nil {
			r.t.Logf("boot: %v", err)
		}
	case state == metal3api.StateProvisioned:
		r.setState(ctx, h, metal3api.StateDeprovisioning)
	case state == metal3api.StateDeprovisioning:
		r.setState(ctx, h, metal3api.StateAvailable)
	}
}

// restore gives a host that was moved here the status that it had.
func (r *rack) restore(ctx context.Context, h *metal3api.BareMetalHost, kept string) {
	status := h.DeepCopy()
	if err := json.Unmarshal([]byte(kept), &status.Status); err != nil {
		r.t.Errorf("host %s: its status: %v", h.Name, err)
		return
	}
	if err := r.full.Status().Update(ctx, status); err != nil {
		r.t.Logf("host %s: %v", h.Name, err)
		return
	}
	before := status.DeepCopy()
	delete(status.Annotations, metal3api.StatusAnnotation)
	_ = r.full.Patch(ctx, status, client.MergeFrom(before))
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
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), providerLogin+"="+filepath.Join(r.dir, "metal3", "kubeconfig"))
	cmd.Stdout, cmd.Stderr = log, log
	r.provider, err = process.Start(cmd)
	require.NoError(r.t, err)
}

func (r *rack) killProvider() {
	if r.provider != nil {
		r.provider.Kill()
		r.provider = nil
	}
}

// killSome kills one of the managers or the provider after another, each at a moment that chance chooses, and starts it
// again.
func (r *rack) killSome(times int) {
	for range times {
		time.Sleep(time.Duration(rand.Int64N(int64(4 * time.Second))))
		all := append(Providers(), Infrastructure())
		p := all[rand.IntN(len(all))]
		r.t.Logf("%.1f s: %s is killed", time.Since(r.history.begin).Seconds(), p.Name)
		if p.Name == Infrastructure().Name {
			r.killProvider()
			r.startProvider()
			continue
		}
		r.kill(p.Name)
		r.start(p.Name)
	}
}

// killAll kills the managers and the provider, and starts them again.
func (r *rack) killAll() {
	r.killProvider()
	r.restart()
	r.startProvider()
}

// list is a field of all objects of a kind.
func (r *rack) list(kind, path string) []string {
	all, err := r.resource(kind).List(r.t.Context(), metav1.ListOptions{})
	require.NoError(r.t, err)
	var out []string
	for i := range all.Items {
		out = append(out, strings.Fields(field(all.Items[i].Object, path))...)
	}
	return out
}

// settles waits until so many machines of each kind run on a host of their own, and checks what must hold of each.
func (r *rack) settles(controlPlane, workers int) {
	r.t.Helper()
	r.until(fmt.Sprintf("%d and %d machines run", controlPlane, workers), func() error {
		if got := r.list("machines", ".status.phase"); len(got) != controlPlane+workers || strings.Count(strings.Join(got, " "), "Running") != len(got) {
			text, _ := r.kubectl("", "get", "machines,metal3machines,bmh", "-n", "metal3", "-o", "wide")
			return fmt.Errorf("the machines are %v\n%s", got, text)
		}
		if got := r.claims(); len(got) != controlPlane+workers {
			return fmt.Errorf("hosts are claimed by %v", got)
		}
		return nil
	})

	ids := map[string]bool{}
	machines := r.list("machines", ".spec.infrastructureRef.name")
	for _, name := range r.list("metal3machines", ".metadata.name") {
		if !slices.Contains(machines, name) { // what made it was killed before it made the Machine, and made others
			assert.Empty(r.t, r.in("metal3machines", name, annotationHost), name)
			continue
		}
		host := strings.TrimPrefix(r.in("metal3machines", name, `.metadata.annotations.metal3\.io/BareMetalHost`), "metal3/")
		id := fmt.Sprintf("metal3://metal3/%s/%s", host, name)
		assert.False(r.t, ids[host], "host %s has two machines", host)
		ids[host] = true
		assert.Equal(r.t, id, r.in("metal3machines", name, ".spec.providerID"))
		assert.Equal(r.t, id, r.in("machines", name, ".spec.providerID"))
		assert.Equal(r.t, id, r.in("nodes", name, ".spec.providerID"))
		assert.Equal(r.t, name, r.in("baremetalhosts", host, ".spec.consumerRef.name"))
		assert.Equal(r.t, name, r.in("baremetalhosts", host, ".spec.userData.name"), "user data is the bootstrap provider's")
		assert.Equal(r.t, name+"-metadata", r.in("baremetalhosts", host, ".spec.metaData.name"))
		assert.True(r.t, strings.HasPrefix(r.in("secrets", name, ".data.value"), "IyMgdGVtcGxhdGU6IGppbmphC"))
	}
	assert.Len(r.t, ids, controlPlane+workers)
}

// claims are the machines that claim hosts.
func (r *rack) claims() []string {
	return slices.DeleteFunc(r.list("baremetalhosts", ".spec.consumerRef.name"), func(name string) bool { return name == somebody })
}

// in is one field of an object of the rack, "" if there is none.
func (r *rack) in(kind, name, path string) string {
	u, err := r.resource(kind).Get(r.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	require.NoError(r.t, err)
	return field(u.Object, path)
}

func (r *rack) run(args ...string) {
	r.t.Helper()
	out, err := r.kubectl("", args...)
	require.NoError(r.t, err, out)
}
