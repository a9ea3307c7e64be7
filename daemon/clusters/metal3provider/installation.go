package metal3provider

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/crd"
	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/choice"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/engine/rights"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// Installation is the daemon's part of the provider: its kinds, its rights, and what it must not do itself.
type Installation struct {
	Account rights.Account // that the provider runs as

	neededUntil time.Time // Cluster API was there not long ago
	kinds       apply.Cache
	rights      apply.Cache
	labels      labelMemory
}

// labelMemory is which labels Secrets had when they were last looked at: what is wanted changes seldom, and a look is
// a list of all Secrets of the hosts.
type labelMemory struct {
	wanted map[types.NamespacedName]string
	until  time.Time
}

const (
	fieldOwner = "firstlight-metal3-provider"
	rightsName = "metal3-provider"
)

// readKinds reads the definitions of the provider's kinds.
func readKinds() (apply.Set, error) { return apply.Read(fieldOwner, crd.Metal3Provider) }

// kindsOutline is made once: to read the definitions takes longer than all that Serve asks.
var kindsOutline = sync.OnceValues(func() (apply.Set, error) {
	kinds, err := readKinds()
	return kinds.Outline(), err
})

// Serve makes all that hold, as long as the API server knows Cluster API's Machines; else it does nothing, and isThere is
// false. blocks says by name what keeps a host, in one sentence. It is called again and again: what a read from a cache
// shows late is done at the next call.
func (i *Installation) Serve(ctx context.Context, api client.Client, hosts []host, blocks map[string]string) (isThere bool, err error) {
	if isThere, err := i.isNeeded(ctx, api, time.Now()); err != nil || !isThere {
		return false, err
	}

	if err := i.applyKinds(ctx, api); err != nil {
		return true, err
	}

	set, err := i.readRights(ctx, api)
	if err != nil {
		return true, err
	}
	if i.rights.CheckCurrent(ctx, set, api) != nil {
		if err := set.Apply(ctx, api); err != nil {
			return true, err
		}
	}

	var failed []error
	for n := range hosts {
		failed = append(failed, markHost(ctx, api, &hosts[n], blocks[hosts[n].Name]))
	}

	return true, errors.Join(append(failed, i.keepLabels(ctx, api, secretLabels(hosts), time.Now()))...)
}

// isNeeded reports whether the API server knows Cluster API's Machines. Once it did, that is believed for apply.CacheTTL.
func (i *Installation) isNeeded(ctx context.Context, api client.Reader, now time.Time) (bool, error) {
	if now.Before(i.neededUntil) {
		return true, nil
	}

	definition := newMetadata("apiextensions.k8s.io/v1", "CustomResourceDefinition")
	err := api.Get(ctx, types.NamespacedName{Name: "machines.cluster.x-k8s.io"}, definition, apply.FromCache{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for Cluster API: %w", err)
	}

	i.neededUntil = now.Add(apply.CacheTTL)
	return true, nil
}

// keepLabels labels Secrets as wanted. Once all have been found so, they are not looked at for apply.CacheTTL.
func (i *Installation) keepLabels(
	ctx context.Context, api client.Client, wanted map[types.NamespacedName]string, now time.Time,
) error {
	if maps.Equal(i.labels.wanted, wanted) && now.Before(i.labels.until) {
		return nil
	}

	areRight, err := labelSecrets(ctx, api, wanted)
	if areRight {
		i.labels = labelMemory{wanted: wanted, until: now.Add(apply.CacheTTL)}
	}
	return err
}

// applyKinds has the API server know the provider's kinds.
func (i *Installation) applyKinds(ctx context.Context, api client.Client) error {
	outline, err := kindsOutline()
	if err != nil {
		return err
	}
	if i.kinds.CheckCurrent(ctx, outline, api) == nil {
		return nil
	}

	kinds, err := readKinds()
	if err != nil {
		return err
	}
	return kinds.Apply(ctx, api)
}

func newMetadata(version, kind string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: kind}}
}

// readRights returns what the provider may do. Of Secrets it reads those that it makes and the kubeconfigs of clusters,
// each by its name: no BMC's password.
func (i *Installation) readRights(ctx context.Context, api client.Client) (apply.Set, error) {
	var names []string
	for kind, suffixes := range map[string][]string{
		"Metal3ClusterList": {"-kubeconfig"}, "Metal3MachineList": {suffixMetaData, suffixNetworkData},
	} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(v1beta2.GroupVersion.WithKind(kind))
		if err := api.List(ctx, list, client.InNamespace(metal3.Namespace), apply.FromCache{}); err != nil {
			return apply.Set{}, fmt.Errorf("list %s: %w", kind, err)
		}
		for n := range list.Items {
			name := list.Items[n].Name
			if cluster := list.Items[n].Labels[labelCluster]; kind == "Metal3ClusterList" && cluster != "" {
				name = cluster // a Metal3Cluster of a ClusterClass has a name of its own
			}
			for _, suffix := range suffixes {
				names = append(names, name+suffix)
			}
		}
	}
	slices.Sort(names)

	return apply.New(fieldOwner, i.Rights(names)...)
}

// Rights are the objects that give the account what the controllers call; secrets are the names of those it reads.
func (i *Installation) Rights(secrets []string) []client.Object {
	rule := func(group string, resources []string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
	}
	named := []rbacv1.PolicyRule{rule("", []string{"secrets"}, "create")}
	if len(secrets) > 0 {
		read := rule("", []string{"secrets"}, "get", "delete")
		read.ResourceNames = secrets
		named = append(named, read)
	}

	return []client.Object{
		rights.NewClusterRole(rightsName, []rbacv1.PolicyRule{
			rule(v1beta2.GroupVersion.Group, []string{"*"}, "get", "list", "watch", "create", "update", "patch", "delete"),
			rule("ipam.metal3.io", []string{"*"}, "get", "list", "watch", "update", "patch"),
			rule("ipam.cluster.x-k8s.io", []string{"*"}, "get", "list", "watch", "create", "update", "patch", "delete"),
			rule("cluster.x-k8s.io", []string{"clusters", "machines"}, "get", "list", "watch"),
			rule("cluster.x-k8s.io", []string{"machines/status"}, "patch"),
			rule("cluster.x-k8s.io", []string{"machines/finalizers"}, "update"),
			rule("metal3.io", []string{"baremetalhosts"}, "get", "list", "watch", "patch"),
		}),
		i.Account.BindEverywhere(rightsName),
		rights.NewRole(metal3.Namespace, rightsName, named),
		i.Account.Bind(metal3.Namespace, "Role", rightsName),
	}
}

// markHost writes what keeps a machine's host onto it, where the machine's condition takes it from.
func markHost(ctx context.Context, api client.Client, h *host, block string) error {
	want := ""
	if choice.IsMachineRef(h.Spec.ConsumerRef) && !isInService(h) {
		want = block
	}
	if h.Annotations[label.Why] == want {
		return nil
	}

	value := "null"
	if want != "" {
		value = fmt.Sprintf("%q", want)
	}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, label.Why, value))
	o := &host{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: h.Name}}
	if err := api.Patch(ctx, o, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("mark host %s: %w", h.Name, err)
	}

	return nil
}

// secretLabels returns, for the Secrets of hosts' BMCs, the name of the cluster that the host is of, "" for none.
func secretLabels(hosts []host) map[types.NamespacedName]string {
	wanted := map[types.NamespacedName]string{}
	for n := range hosts {
		h := &hosts[n]
		cluster := h.Labels[labelCluster]
		if h.Spec.BMC.CredentialsName != "" && (cluster == "" || choice.IsMachineRef(h.Spec.ConsumerRef)) {
			wanted[types.NamespacedName{Namespace: h.Namespace, Name: h.Spec.BMC.CredentialsName}] = cluster
		}
	}
	return wanted
}

// labelSecrets puts the name of a cluster onto the Secret of a BMC, which moves with the cluster, and takes it off. The
// Secrets of a namespace are listed once, however many hosts there are. areRight says that all were there, and that
// there was nothing to do.
func labelSecrets(
	ctx context.Context, api client.Client, wanted map[types.NamespacedName]string,
) (areRight bool, err error) {
	areRight = true
	var failed []error
	listed := map[string]map[string]string{} // by namespace and name: the label
	for name, cluster := range wanted {
		if listed[name.Namespace] == nil {
			labels, err := listSecretLabels(ctx, api, name.Namespace)
			if err != nil {
				return false, errors.Join(append(failed, err)...)
			}
			listed[name.Namespace] = labels
		}

		label, isThere := listed[name.Namespace][name.Name]
		areRight = areRight && isThere && label == cluster
		if isThere && label != cluster {
			failed = append(failed, labelSecret(ctx, api, name, cluster))
		}
	}
	return areRight, errors.Join(failed...)
}

// listSecretLabels returns the cluster that each Secret of a namespace is labelled with, "" if with none.
func listSecretLabels(ctx context.Context, api client.Reader, namespace string) (map[string]string, error) {
	list := &metav1.PartialObjectMetadataList{} // what is in them is not needed
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := api.List(ctx, list, client.InNamespace(namespace), apply.FromCache{}); err != nil {
		return nil, fmt.Errorf("list Secrets: %w", err)
	}

	labels := map[string]string{}
	for i := range list.Items {
		labels[list.Items[i].Name] = list.Items[i].Labels[labelCluster]
	}
	return labels, nil
}

func labelSecret(ctx context.Context, api client.Client, name types.NamespacedName, cluster string) error {
	value := "null"
	if cluster != "" {
		value = fmt.Sprintf("%q", cluster)
	}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, labelCluster, value))
	o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	if err := api.Patch(ctx, o, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("label Secret %s: %w", name.Name, err)
	}

	return nil
}
