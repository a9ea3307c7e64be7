package metal3provider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
)

// namespace of all that the tests make: hosts have one.
const namespace = "metal3"

// fixture is an API and the provider's controllers, stepped by hand. What Cluster API and the operator of hosts do, it does.
type fixture struct {
	*Provider
	t        *testing.T
	api      client.Client // the test's own
	real     bool
	nodes    client.Client // of every workload cluster
	fatal    func() error  // asked before each write of the provider; an error is a crash
	restarts int
}

var errKilled = errors.New("killed")

func newFixture(t *testing.T, api client.Client, isReal bool) *fixture {
	r := &fixture{t: t, api: api, real: isReal}
	r.nodes = newFake(t)
	r.restart()
	for _, name := range []string{namespace} {
		if err := api.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			require.True(t, apierrors.IsAlreadyExists(err), "%v", err)
		}
	}
	t.Cleanup(r.sweep)
	return r
}

// restart forgets all that the provider remembers.
func (r *fixture) restart() {
	ask := func() error {
		if r.fatal != nil {
			return r.fatal()
		}
		return nil
	}
	writer := interceptor.NewClient(withWatch{r.api}, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := ask(); err != nil {
				return err
			}
			return c.Create(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := ask(); err != nil {
				return err
			}
			return c.Delete(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := ask(); err != nil {
				return err
			}
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourcePatch: func(
			ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption,
		) error {
			if err := ask(); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	r.Provider = &Provider{
		Client: writer, Reader: r.api, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Workload: func(context.Context, types.NamespacedName) (client.Client, error) { return r.nodes, nil },
	}
	r.restarts++
}

type withWatch struct{ client.Client }

func (withWatch) Watch(context.Context, client.ObjectList, ...client.ListOption) (w watchInterface, err error) {
	return nil, errors.New("not watched here")
}

// round reconciles everything once. A crash ends it, and the provider begins anew.
func (r *fixture) round() {
	r.t.Helper()
	for _, c := range r.controllers() {
		require.NoError(r.t, r.api.List(r.t.Context(), c.list, client.InNamespace(namespace)))
		items, err := meta.ExtractList(c.list)
		require.NoError(r.t, err)
		for _, item := range items {
			_, err := c.Reconcile(r.t.Context(), reconcile.Request{NamespacedName: key(item.(client.Object))})
			if errors.Is(err, errKilled) {
				r.restart()
				return
			}
			require.NoError(r.t, err)
		}
	}
}

type controllerOf struct {
	reconcile.Reconciler
	list client.ObjectList
}

func (r *fixture) controllers() []controllerOf {
	return []controllerOf{
		{&Clusters{r.Provider}, &v1beta2.Metal3ClusterList{}},
		{&Machines{r.Provider}, &v1beta2.Metal3MachineList{}},
		{&Templates{r.Provider}, &v1beta2.Metal3DataTemplateList{}},
		{&Datas{r.Provider}, &v1beta2.Metal3DataList{}},
		{&Pools{r.Provider}, &v1alpha1.IPPoolList{}},
		{&Remediations{r.Provider}, &v1beta2.Metal3RemediationList{}},
	}
}

// until makes rounds until something holds.
func (r *fixture) until(what string, holds func() bool, between ...func()) {
	r.t.Helper()
	for range 200 {
		if holds() {
			return
		}
		r.round()
		for _, f := range between {
			f()
		}
	}
	r.t.Fatalf("never: %s\n%s", what, r.describe())
}

// describe is how the machines and hosts stand.
func (r *fixture) describe() (text string) {
	for _, m := range r.machines() {
		text += fmt.Sprintf("%s -> %q %v\n", m.Name, m.Annotations[v1beta2.AnnotationHost], m.DeletionTimestamp)
		for _, c := range m.Status.Conditions {
			text += fmt.Sprintf("    %s %s %s %s\n", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	for _, h := range r.hosts() {
		text += fmt.Sprintf("%s %s %+v image %v %v\n", h.Name, h.Status.Provisioning.State, h.Spec.ConsumerRef, h.Spec.Image, h.Annotations)
	}
	return text
}

func (r *fixture) get(name string, o client.Object) {
	r.t.Helper()
	require.NoError(r.t, r.api.Get(r.t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, o))
}

func (r *fixture) machine(name string) *machine { m := &machine{}; r.get(name, m); return m }
func (r *fixture) host(name string) *host       { h := &host{}; r.get(name, h); return h }

func (r *fixture) machines() []machine {
	var all v1beta2.Metal3MachineList
	require.NoError(r.t, r.api.List(r.t.Context(), &all))
	return all.Items
}

func (r *fixture) hosts() []host {
	var all metal3api.BareMetalHostList
	require.NoError(r.t, r.api.List(r.t.Context(), &all))
	return all.Items
}

func (r *fixture) isGone(name string, o client.Object) bool {
	err := r.api.Get(r.t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, o)
	return apierrors.IsNotFound(err)
}

func (r *fixture) condition(m *machine, kind string) metav1.Condition {
	c := meta.FindStatusCondition(m.Status.Conditions, kind)
	if c == nil {
		return metav1.Condition{}
	}
	return *c
}

// change patches an object as its owner.
func change[T client.Object](r *fixture, name string, o T, f func(T)) T {
	r.t.Helper()
	r.get(name, o)
	before := o.DeepCopyObject().(T)
	if o.GetAnnotations() == nil {
		o.SetAnnotations(map[string]string{})
	}
	f(o)
	require.NoError(r.t, r.api.Patch(r.t.Context(), o, client.MergeFrom(before)))
	return o
}

func changeStatus[T client.Object](r *fixture, name string, o T, f func(T)) T {
	r.t.Helper()
	r.get(name, o)
	f(o)
	require.NoError(r.t, r.api.Status().Update(r.t.Context(), o))
	return o
}

// addHost makes a host that is proven and waits.
func (r *fixture) addHost(name string, f ...func(*host)) {
	r.t.Helper()
	h := &host{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{label.Verified: label.VerifiedHardware}}}
	h.Spec.BMC.CredentialsName, h.Spec.Online = name+"-bmc", true
	h.Spec.AutomatedCleaningMode = metal3api.CleaningModeDisabled
	h.Annotations = map[string]string{label.Cleared: "registration"}
	for _, f := range f {
		f(h)
	}
	require.NoError(r.t, r.api.Create(r.t.Context(), h))
	r.setState(name, metal3api.StateAvailable)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-bmc"}}
	require.NoError(r.t, r.api.Create(r.t.Context(), secret))
}

func (r *fixture) setState(name string, state metal3api.ProvisioningState) {
	r.t.Helper()
	changeStatus(r, name, &host{}, func(h *host) {
		h.Status.Provisioning.State = state
		h.Status.HardwareProfile = "unknown"
		h.Status.OperationalStatus, h.Status.ErrorType = metal3api.OperationalStatusOK, ""
		h.Status.Provisioning.ID = "id"
		h.Status.OperationHistory = metal3api.OperationHistory{}
		h.Status.TriedCredentials, h.Status.GoodCredentials = metal3api.CredentialsStatus{}, metal3api.CredentialsStatus{}
		h.Status.HardwareDetails = &metal3api.HardwareDetails{
			NIC: []metal3api.NIC{{Name: "eth0", MAC: "52:54:00:00:00:01", IP: "10.0.0." + name[len(name)-1:]}}, Hostname: name,
		}
	})
}

// operate does what the operator of hosts does: a host with an image is installed, one without is given up, and one
// that is to be inspected is.
func (r *fixture) operate() {
	for _, h := range r.hosts() {
		_, paused := h.Annotations[metal3api.PausedAnnotation]
		state := h.Status.Provisioning.State
		_, inspect := h.Annotations[metal3api.InspectAnnotationPrefix]
		switch {
		case paused:
		case inspect && state == metal3api.StateAvailable:
			change(r, h.Name, &host{}, func(h *host) { delete(h.Annotations, metal3api.InspectAnnotationPrefix) })
		case h.Spec.Image != nil && state != metal3api.StateProvisioned:
			r.setState(h.Name, metal3api.StateProvisioned)
		case h.Spec.Image == nil && state == metal3api.StateProvisioned:
			r.setState(h.Name, metal3api.StateDeprovisioning)
		case h.Spec.Image == nil && state == metal3api.StateDeprovisioning:
			r.setState(h.Name, metal3api.StateAvailable)
		}
	}
}

// addCluster makes a Cluster and its Metal3Cluster, with the reference that Cluster API sets.
func (r *fixture) addCluster(name string, f ...func(*v1beta2.Metal3Cluster)) {
	r.t.Helper()
	c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	c.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: v1beta2.GroupVersion.Group, Kind: "Metal3Cluster", Name: name,
	}
	require.NoError(r.t, r.api.Create(r.t.Context(), c))
	i := &v1beta2.Metal3Cluster{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, Labels: map[string]string{labelCluster: name},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(c, clusterv1.GroupVersion.WithKind("Cluster"))},
	}}
	i.Spec.ControlPlaneEndpoint = v1beta2.APIEndpoint{Host: "10.0.0.100", Port: 6443}
	for _, f := range f {
		f(i)
	}
	require.NoError(r.t, r.api.Create(r.t.Context(), i))
}

// provisionCluster is Cluster API when it has seen the Metal3Cluster.
func (r *fixture) provisionCluster(name string) {
	changeStatus(r, name, &clusterv1.Cluster{}, func(c *clusterv1.Cluster) {
		c.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	})
}

// addMachine makes a Machine and its Metal3Machine, as a control plane does.
func (r *fixture) addMachine(cluster, name string, f ...func(*clusterv1.Machine, *machine)) {
	r.t.Helper()
	o := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{labelCluster: cluster}}}
	o.Spec.ClusterName = cluster
	o.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: v1beta2.GroupVersion.Group, Kind: "Metal3Machine", Name: name,
	}
	o.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "KubeadmConfig", Name: name,
	}
	m := &machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{labelCluster: cluster}}}
	m.Spec.Image = &v1beta2.Image{URL: "http://10.0.0.1/images/debian-13.raw", Checksum: "abc", DiskFormat: ptr.To("raw")}
	for _, f := range f {
		f(o, m)
	}
	require.NoError(r.t, r.api.Create(r.t.Context(), o))
	m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(o, clusterv1.GroupVersion.WithKind("Machine"))}
	require.NoError(r.t, r.api.Create(r.t.Context(), m))
}

// bootstrap is the bootstrap provider when it has written its Secret.
func (r *fixture) bootstrap(name string) {
	change(r, name, &clusterv1.Machine{}, func(m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName = ptr.To(name) })
}

// addNode is the kubelet of a host.
func (r *fixture) addNode(name, hostName, providerID string) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"metal3.io/uuid": string(r.host(hostName).UID)}}}
	n.Spec.ProviderID = providerID
	require.NoError(r.t, r.nodes.Create(r.t.Context(), n))
}

// sweep removes what a test made.
func (r *fixture) sweep() {
	ctx := context.Background()
	for _, list := range []client.ObjectList{
		&clusterv1.MachineList{}, &clusterv1.ClusterList{}, &v1beta2.Metal3MachineList{}, &v1beta2.Metal3ClusterList{},
		&v1beta2.Metal3DataList{}, &v1beta2.Metal3DataClaimList{}, &v1beta2.Metal3DataTemplateList{},
		&v1beta2.Metal3RemediationList{},
		&v1alpha1.IPPoolList{}, &ipamv1.IPAddressClaimList{}, &ipamv1.IPAddressList{}, &corev1.SecretList{},
		&metal3api.BareMetalHostList{},
	} {
		require.NoError(r.t, r.api.List(ctx, list, client.InNamespace(namespace)))
		items, err := meta.ExtractList(list)
		require.NoError(r.t, err)
		for _, item := range items {
			o := item.(client.Object)
			before := o.DeepCopyObject().(client.Object)
			if h, ok := o.(*host); ok {
				if h.Annotations == nil {
					h.Annotations = map[string]string{}
				}
				h.Annotations[label.AllowWipe] = "none"
			}
			o.SetFinalizers(nil)
			if patch := client.MergeFrom(before); len(before.GetFinalizers()) > 0 || o.GetAnnotations()[label.AllowWipe] != "" {
				require.NoError(r.t, client.IgnoreNotFound(r.api.Patch(ctx, o, patch)))
			}
			require.NoError(r.t, client.IgnoreNotFound(r.api.Delete(ctx, o)))
		}
	}
}

// killRandomly has every nth write of the provider be its last, on average.
func (r *fixture) killRandomly(n int, seed uint64) {
	random := rand.New(rand.NewPCG(seed, seed))
	r.fatal = func() error {
		if random.IntN(n) == 0 {
			return errKilled
		}
		return nil
	}
}
