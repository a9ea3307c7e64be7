package metal3provider

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/choice"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
)

// Machines reconciles Metal3Machines: each gets a host, the host its image, and the Node its providerID.
type Machines struct{ *Provider }

// surroundings are the objects that a Metal3Machine belongs to. Any may be nil.
type surroundings struct {
	machine *clusterv1.Machine
	cluster *clusterv1.Cluster
	infra   *v1beta2.Metal3Cluster

	selector labels.Selector // of hosts
}

// Reconcile goes as far as it can get, and writes the status last.
func (r *Machines) Reconcile(ctx context.Context, q reconcile.Request) (reconcile.Result, error) {
	m := &machine{}
	if err := r.Reader.Get(ctx, q.NamespacedName, m); err != nil {
		r.unreserve(q.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}

	before := m.DeepCopy()
	result, err := r.step(ctx, m)
	if refused := refusal(err); refused != nil {
		setCondition(&m.Status.Conditions, m.Generation, *refused)
		result, err = reconcile.Result{RequeueAfter: lookAgain}, nil
	}

	summarize(&m.Status.Conditions, m.Generation, v1beta2.ConditionAssociate, v1beta2.ConditionMetaData,
		v1beta2.ConditionDataReady, v1beta2.ConditionHostProvisioned)
	if writing := r.writeStatus(ctx, before, m); err == nil {
		err = writing
	}
	return afterRace(result, err)
}

// refusal is a condition for a write that the API server's policies refuse: repeating it at once is of no use.
func refusal(err error) *verdict {
	if err == nil || !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
		return nil
	}
	return &verdict{
		Type:    v1beta2.ConditionHostProvisioned,
		Reason:  v1beta2.ReasonHostRefused,
		Message: err.Error(),
	}
}

func (r *Machines) step(ctx context.Context, m *machine) (reconcile.Result, error) {
	s, err := r.observe(ctx, m)
	if err != nil {
		return reconcile.Result{}, err
	}

	paused := isPaused(s.cluster, m)
	setCondition(&m.Status.Conditions, m.Generation, pausedVerdict(paused))
	if err := r.pauseHost(ctx, m, s, paused); err != nil {
		return reconcile.Result{}, err
	}

	switch {
	case paused:
		return reconcile.Result{}, nil
	case !m.DeletionTimestamp.IsZero():
		return r.remove(ctx, m, s)
	}

	if reason := waitReason(s); reason != "" {
		r.set(m, verdict{Type: v1beta2.ConditionAssociate, Reason: reason})
		return reconcile.Result{}, nil
	}

	err = r.write(ctx, m, func(m *machine) { controllerutil.AddFinalizer(m, v1beta2.MachineFinalizer) })
	if err != nil {
		return reconcile.Result{}, err
	}
	if !hasBootstrapData(s.machine) {
		r.set(m, verdict{Type: v1beta2.ConditionAssociate, Reason: v1beta2.ReasonWaitingForBootstrap})
		return reconcile.Result{}, nil
	}

	if s.selector, err = choice.ParseSelector(m.Spec.HostSelector); err != nil {
		r.set(m, verdict{Type: v1beta2.ConditionAssociate, Reason: v1beta2.ReasonAssociateFailed, Message: err.Error()})
		return reconcile.Result{}, nil
	}

	h, err := r.associate(ctx, m, s)
	if err != nil || h == nil {
		return reconcile.Result{RequeueAfter: lookAgain}, err
	}

	return r.install(ctx, m, s, h)
}

// waitReason is what is missing around a Metal3Machine before it may look for a host; "" if nothing is.
func waitReason(s surroundings) string {
	switch {
	case s.machine == nil:
		return v1beta2.ReasonWaitingForOwner
	case s.cluster == nil || !ptr.Deref(s.cluster.Status.Initialization.InfrastructureProvisioned, false):
		return v1beta2.ReasonWaitingForInfrastructure
	case s.infra == nil:
		return v1beta2.ReasonWaitingForMetal3Cluster
	}
	return ""
}

func hasBootstrapData(m *clusterv1.Machine) bool {
	return ptr.Deref(m.Spec.Bootstrap.DataSecretName, "") != ""
}

// observe finds what a Metal3Machine belongs to.
func (r *Machines) observe(ctx context.Context, m *machine) (s surroundings, err error) {
	if name := ownerName(m, "Machine"); name != "" {
		owner := &clusterv1.Machine{}
		err := r.Client.Get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: name}, owner)
		switch {
		case err == nil:
			s.machine = owner
		case !apierrors.IsNotFound(err):
			return s, fmt.Errorf("read Machine %s: %w", name, err)
		}
	}

	if s.cluster, err = r.readCluster(ctx, m.Namespace, clusterName(m, s.machine)); err != nil || s.cluster == nil {
		return s, err
	}

	infra := &v1beta2.Metal3Cluster{}
	name := s.cluster.Spec.InfrastructureRef.Name
	err = r.Client.Get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: name}, infra)
	switch {
	case err == nil:
		s.infra = infra
	case !apierrors.IsNotFound(err):
		return s, fmt.Errorf("read Metal3Cluster %s: %w", name, err)
	}

	return s, nil
}

// clusterName is the name of the Cluster that a Metal3Machine is of.
func clusterName(m *machine, owner *clusterv1.Machine) string {
	if name := m.Labels[clusterv1.ClusterNameLabel]; name != "" || owner == nil {
		return name
	}
	return owner.Spec.ClusterName
}

func groupOf(apiVersion string) string { group, _, _ := strings.Cut(apiVersion, "/"); return group }

// install brings a host that the machine has to a Node with a providerID.
func (r *Machines) install(ctx context.Context, m *machine, s surroundings, h *host) (reconcile.Result, error) {
	ready, err := r.prepareData(ctx, m, s)
	if err != nil || !ready {
		return reconcile.Result{RequeueAfter: lookAgain}, err
	}

	if err := r.useUserData(m, s); err != nil {
		r.set(m, verdict{Type: v1beta2.ConditionMetaData, Reason: v1beta2.ReasonMetaDataFailed, Message: err.Error()})
		return reconcile.Result{RequeueAfter: lookAgain}, nil
	}

	if h, err = r.writeHost(ctx, h, func(h *host) { specify(h, m, clusterName(m, s.machine)) }); err != nil {
		return reconcile.Result{}, err
	}

	m.Status.FailureDomain = failureDomain(h)
	m.Status.Addresses = hostAddresses(h)
	v := hostVerdict(h)
	if !v.Holds {
		r.set(m, v)
		return reconcile.Result{RequeueAfter: lookAgain}, nil
	}
	if m.Spec.ProviderID != "" && ptr.Deref(m.Status.Initialization.Provisioned, false) && s.machine.Status.NodeRef.IsDefined() {
		r.set(m, v)
		return reconcile.Result{}, r.syncLabels(ctx, s, h)
	}

	return r.findNode(ctx, m, s, h)
}

// hostVerdict says how far a host's installation is, and what keeps it. It is pure.
func hostVerdict(h *host) verdict {
	v := verdict{Type: v1beta2.ConditionHostProvisioned, Reason: v1beta2.ReasonHostProvisioning}
	state := h.Status.Provisioning.State
	switch {
	case state == metal3api.StateProvisioned:
		v.Holds, v.Reason = true, v1beta2.ReasonHostProvisioned
	case h.Annotations[metal3api.PausedAnnotation] == label.Hold:
		v.Reason = v1beta2.ReasonHostHeld
		v.Message = fmt.Sprintf("host %s is held until the appliance's checks have passed", h.Name)
		if why := h.Annotations[label.Why]; why != "" {
			v.Message += ": " + why
		}
		v.Message += "; see firstlightd why " + h.Name
	case h.Status.ErrorMessage != "":
		v.Reason = v1beta2.ReasonHostFailed
		v.Message = fmt.Sprintf("host %s is %s and has an error; see firstlightd why %s", h.Name, state, h.Name)
	default:
		v.Message = fmt.Sprintf("host %s is %s", h.Name, state)
	}
	return v
}

// useUserData decides which Secret the host boots with: the Machine's bootstrap data before the owner's own.
func (r *Machines) useUserData(m *machine, s surroundings) error {
	ref, err := ownSecret(m.Namespace, m.Spec.UserData)
	if err != nil {
		return fmt.Errorf("spec.userData: %w", err)
	}
	if name := ptr.Deref(s.machine.Spec.Bootstrap.DataSecretName, ""); name != "" {
		ref = secretRef(m.Namespace, name)
	}
	m.Status.UserData = ref
	return nil
}

// set puts a verdict among a Metal3Machine's conditions.
func (r *Machines) set(m *machine, v verdict) { setCondition(&m.Status.Conditions, m.Generation, v) }

// write writes what change does to the metadata and the spec of a Metal3Machine. Its status stays as it is in memory.
func (r *Machines) write(ctx context.Context, m *machine, change func(*machine)) error {
	after, err := writeObject(ctx, r.Client, m, change)
	if err != nil {
		return err
	}
	m.ObjectMeta, m.Spec = after.ObjectMeta, after.Spec
	return nil
}

func (r *Machines) writeStatus(ctx context.Context, before, m *machine) error {
	if reflect.DeepEqual(before.Status, m.Status) {
		return nil
	}

	base := m.DeepCopy()
	base.Status = before.Status
	now := metav1.NewTime(r.Now())
	m.Status.LastUpdated = &now
	if err := r.Client.Status().Patch(ctx, m, client.MergeFrom(base)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write status of Metal3Machine %s: %w", m.Name, err)
	}

	return nil
}
