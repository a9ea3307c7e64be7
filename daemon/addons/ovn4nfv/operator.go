package ovn4nfv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1lister "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/addons/ovn"
	"firstlight.dev/firstlight/daemon/addons/ovsdb"
)

// Operator decides what pods get, and makes OVN's northbound database what networks and pods ask for.
type Operator struct {
	Client  kubernetes.Interface
	Objects dynamic.Interface
	// Northbound connects to the database.
	Northbound func(context.Context) (*ovsdb.Conn, error)
	Events     record.EventRecorder
	Log        *slog.Logger

	pods    corev1lister.PodLister
	listers map[schema.GroupVersionResource]cache.GenericLister
	given   map[types.UID][]Interface // what was written and may not have come back yet
	said    map[string]string         // of each object, the last sentence
}

const (
	// operatorEvery is how often the database is compared with what it should be, without anything having changed.
	operatorEvery = 30 * time.Second
	retryAfter    = time.Second
	syncTimeout   = 30 * time.Second
)

// Run works until ctx ends. Whatever moment that is, the next operator continues.
func (o *Operator) Run(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	if err := o.watch(ctx, changed); err != nil {
		return err
	}

	next := time.NewTimer(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-next.C:
		}

		next.Reset(operatorEvery)
		if err := o.sync(ctx); err != nil && ctx.Err() == nil {
			o.Log.Warn("it is tried again", "error", err)
			next.Reset(retryAfter)
		}
	}
}

// watch keeps the cluster's objects of interest, and says when one changed.
func (o *Operator) watch(ctx context.Context, changed chan<- struct{}) error {
	notify := func(any) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: notify, UpdateFunc: func(_, object any) { notify(object) }, DeleteFunc: notify,
	}

	core := informers.NewSharedInformerFactoryWithOptions(o.Client, 0, informers.WithTransform(trimPod))
	custom := dynamicinformer.NewDynamicSharedInformerFactory(o.Objects, 0)
	o.pods = core.Core().V1().Pods().Lister()
	all := []cache.SharedIndexInformer{core.Core().V1().Pods().Informer()}
	o.listers = map[schema.GroupVersionResource]cache.GenericLister{}
	for _, kind := range []schema.GroupVersionResource{networks, providers, chainings} {
		o.listers[kind] = custom.ForResource(kind).Lister()
		all = append(all, custom.ForResource(kind).Informer())
	}

	var synced []cache.InformerSynced
	for _, i := range all {
		registration, err := i.AddEventHandler(handler)
		if err != nil {
			return fmt.Errorf("watch the cluster: %w", err)
		}
		synced = append(synced, registration.HasSynced)
	}
	core.Start(ctx.Done())
	custom.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return ctx.Err()
	}
	return nil
}

// trimPod keeps of a pod what the operator reads.
func trimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	kept := map[string]string{}
	for _, key := range []string{NetworkKey, InterfacesKey, label.Routes} {
		if text, ok := pod.Annotations[key]; ok {
			kept[key] = text
		}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			CreationTimestamp: pod.CreationTimestamp, Labels: pod.Labels, Annotations: kept,
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName, HostNetwork: pod.Spec.HostNetwork},
		Status: corev1.PodStatus{Phase: pod.Status.Phase},
	}, nil
}

// outcome is what an object's status says.
type outcome struct{ state, message string }

// sync compares all once.
func (o *Operator) sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()

	known, kept, outcomes, err := o.readNetworks()
	if err != nil {
		return err
	}
	pods, notAssigned, err := o.assign(ctx, known)
	if err != nil {
		return err
	}
	for _, p := range pods {
		if _, ok := known[p.Interface.Network]; !ok {
			kept[strings.Replace(p.Interface.Network, "/", "_", 1)] = true // a pod has it still
		}
	}

	failed := o.writeNorthbound(ctx, render(known, pods), kept)
	if failed != nil {
		for object, result := range outcomes {
			if result.state == stateCreated {
				outcomes[object] = outcome{statePending, "OVN's northbound database: " + failed.Error()}
			}
		}
	}
	chainsFailed := o.routeChains(ctx, pods, outcomes)
	return errors.Join(notAssigned, failed, chainsFailed, o.writeStatus(ctx, outcomes))
}

// writeNorthbound makes the database what is wanted.
func (o *Operator) writeNorthbound(ctx context.Context, wanted map[string]row, kept map[string]bool) error {
	c, err := o.Northbound(ctx)
	if err != nil {
		return err
	}
	defer c.Close()

	results, err := c.Transact(ctx, ovn.Northbound, selectNorthbound()...)
	if err != nil {
		return err
	}
	operations := plan(readNorthbound(results), wanted, kept)
	if len(operations) == 0 {
		return nil
	}
	_, err = c.Transact(ctx, ovn.Northbound, operations...)
	return err
}

// writeStatus says of objects what came of them, where that is not what they say.
func (o *Operator) writeStatus(ctx context.Context, outcomes map[*unstructured.Unstructured]outcome) error {
	var failed []error
	for object, is := range outcomes {
		state, _, _ := unstructured.NestedString(object.Object, "status", "state")
		message, _, _ := unstructured.NestedString(object.Object, "status", "message")
		if state == is.state && message == is.message {
			continue
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": object.GetUID()},
			"status":   map[string]string{"state": is.state, "message": is.message},
		})
		if err != nil {
			return fmt.Errorf("encode a status: %w", err)
		}
		kind := networks
		switch object.GetKind() {
		case "ProviderNetwork":
			kind = providers
		case "NetworkChaining":
			kind = chainings
		}
		_, err = o.Objects.Resource(kind).Namespace(object.GetNamespace()).
			Patch(ctx, object.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		if err != nil && !apierrors.IsNotFound(err) {
			failed = append(failed, fmt.Errorf("write the status of %s %s/%s: %w",
				object.GetKind(), object.GetNamespace(), object.GetName(), err))
			continue
		}
		if is.state == stateFailed {
			o.warn(object, is.message)
		}
	}
	return errors.Join(failed...)
}

// warn makes an Event of a sentence at an object, once.
func (o *Operator) warn(object runtime.Object, text string) {
	if o.said == nil {
		o.said = map[string]string{}
	}
	var key string
	switch about := object.(type) {
	case *corev1.Pod:
		key = string(about.UID)
		object = &corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: about.Namespace, Name: about.Name, UID: about.UID,
		}
	case *unstructured.Unstructured:
		key = string(about.GetUID())
	}
	if o.said[key] == text {
		return
	}
	o.said[key] = text
	o.Events.Event(object, corev1.EventTypeWarning, "NetworkNotReady", text)
}
