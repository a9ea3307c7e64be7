package sriovnodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/daemon/addons/cniprogram"
	"firstlight.dev/firstlight/daemon/addons/sriov"
)

// Agent keeps the devices of one node as policies say.
type Agent struct {
	Node      string
	Machine   Machine
	Resources string     // file for the device plugin: see EncodeResources
	Kubelet   string     // its socket that says which devices pods have
	CNI       sriov.Dirs // of the CNI plugin
	Routed    func() (map[string]bool, error)
	Self      string // this program
	Installer *cniprogram.Installer
	Nodes     corev1client.NodesGetter
	Objects   dynamic.Interface
	Report    func(fault string)
	Log       *slog.Logger

	written  State
	at       time.Time // when written was written; zero if it never was
	reported []string
}

const (
	agentEvery = 10 * time.Second
	stateEvery = 5 * time.Minute // somebody may have deleted it
	askTimeout = 10 * time.Second
	mostAnswer = 16 << 20 // bytes
)

// Install puts the CNI plugin on the node.
func (a *Agent) Install() error { return a.Installer.Ensure(a.Self, sriov.Name, true) }

// Run applies policies until ctx ends. What was made stays then.
func (a *Agent) Run(ctx context.Context) error {
	for {
		failed := a.step(ctx)
		if ctx.Err() != nil {
			return nil
		}
		a.report(failed)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(agentEvery):
		}
	}
}

// step compares the node with its policies once.
func (a *Agent) step(ctx context.Context) (failed []error) {
	if err := a.Install(); err != nil {
		failed = append(failed, err)
	}
	node, err := a.Nodes.Nodes().Get(ctx, a.Node, metav1.GetOptions{})
	if err != nil {
		return append(failed, fmt.Errorf("read the node: %w", err))
	}
	all, wrong, err := a.readPolicies(ctx)
	if err != nil {
		return append(failed, err)
	}
	interfaces, err := a.Machine.Interfaces()
	if err != nil {
		return append(failed, err)
	}

	plans, faults := MakePlans(all, node.Labels, interfaces)
	faults = append(wrong, faults...)
	users, err := a.findUsers(ctx)
	if err != nil {
		return append(failed, err) // nothing is changed that may be in use
	}
	failed = append(failed, faults...)
	failed = append(failed, a.Machine.Apply(plans, users)...)
	if err := a.writeResources(plans); err != nil {
		failed = append(failed, err)
	}

	if interfaces, err = a.Machine.Interfaces(); err != nil {
		return append(failed, err)
	}
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
	if err := a.writeState(ctx, newState(interfaces, failed), owner); err != nil {
		failed = append(failed, err)
	}
	return failed
}

// newState is what a node's State says.
func newState(interfaces []Interface, failed []error) State {
	s := State{Interfaces: interfaces, SyncStatus: SyncSucceeded, BlockedBy: []string{}}
	if s.Interfaces == nil {
		s.Interfaces = []Interface{}
	}
	var texts []string
	for _, err := range failed {
		texts = append(texts, err.Error())
		var b *Blocked
		if errors.As(err, &b) {
			s.BlockedBy = append(s.BlockedBy, b.Pods...)
		} else {
			s.SyncStatus = SyncFailed
		}
	}
	if len(failed) > 0 && s.SyncStatus == SyncSucceeded {
		s.SyncStatus = SyncInProgress
	}
	slices.Sort(s.BlockedBy)
	s.BlockedBy = slices.Compact(s.BlockedBy)
	s.LastSyncError = strings.Join(texts, "\n")
	return s
}

func (a *Agent) readPolicies(ctx context.Context) (all []Policy, wrong []error, err error) {
	list, err := a.Objects.Resource(policies).Namespace(Namespace).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil, nil // a cluster without the kinds
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read policies: %w", err)
	}
	for _, o := range list.Items {
		p := Policy{Name: o.GetName()}
		if err := decode(&o, &p); err != nil {
			wrong = append(wrong, err)
			continue
		}
		all = append(all, p)
	}
	return all, wrong, nil
}

// findUsers asks the kubelet which devices pods have. The CNI plugin's own records, and the node's use of its interfaces,
// are other users.
func (a *Agent) findUsers(ctx context.Context) (Users, error) {
	users := Users{Pods: map[string]string{}, Others: map[string]string{}}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	connection, err := grpc.NewClient("unix:"+a.Kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(mostAnswer)))
	if err != nil {
		return users, fmt.Errorf("ask the kubelet which devices pods have: %w", err)
	}
	defer connection.Close()
	answer, err := podresources.NewPodResourcesListerClient(connection).List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return users, fmt.Errorf("ask the kubelet which devices pods have: %w", err)
	}
	for _, pod := range answer.PodResources {
		for _, c := range pod.Containers {
			for _, d := range c.Devices {
				for _, id := range d.DeviceIds {
					users.Pods[id] = pod.Namespace + "/" + pod.Name
				}
			}
		}
	}

	assigned, err := sriov.ReadContainers(a.CNI)
	if err != nil {
		return users, err
	}
	for address, container := range assigned {
		users.Others[address] = "the container " + container
	}
	functions, err := a.Machine.Sysfs.VirtualFunctions()
	if err != nil {
		return users, err
	}
	routed, err := a.Routed()
	if err != nil {
		return users, err
	}
	for _, f := range functions {
		if f.IsEnslaved || slices.ContainsFunc(f.Interfaces, func(name string) bool { return routed[name] }) {
			users.Others[f.Address] = "the node itself by " + f.Interfaces[0]
		}
	}
	return users, nil
}

func (a *Agent) writeResources(plans []Plan) error {
	text, err := EncodeResources(plans)
	if err != nil {
		return err
	}
	return atomicfile.WriteChanged(a.Resources, text, 0o644)
}

// writeState writes the node's State, if it is another than the last one that was written.
func (a *Agent) writeState(ctx context.Context, s State, owned metav1.OwnerReference) error {
	if time.Since(a.at) < stateEvery && reflect.DeepEqual(a.written, s) {
		return nil
	}
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode the node's state: %w", err)
	}
	var status map[string]any
	if err := json.Unmarshal(text, &status); err != nil {
		return fmt.Errorf("encode the node's state: %w", err)
	}
	reference, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&owned)
	if err != nil {
		return fmt.Errorf("encode the node's state: %w", err)
	}

	object := func(metadata map[string]any) *unstructured.Unstructured {
		metadata["name"], metadata["namespace"] = a.Node, Namespace
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": group + "/v1", "kind": "SriovNetworkNodeState", "metadata": metadata,
		}}
	}
	client := a.Objects.Resource(states).Namespace(Namespace)
	options := metav1.ApplyOptions{FieldManager: owner, Force: true}
	_, err = client.Apply(ctx, a.Node, object(map[string]any{"ownerReferences": []any{reference}}), options)
	if err != nil {
		return fmt.Errorf("write the node's state: %w", err)
	}
	with := object(map[string]any{})
	with.Object["status"] = status
	if _, err := client.ApplyStatus(ctx, a.Node, with, options); err != nil {
		return fmt.Errorf("write the node's state: %w", err)
	}
	a.written, a.at = s, time.Now()
	return nil
}

// report says each fault once.
func (a *Agent) report(failed []error) {
	var texts []string
	for _, err := range failed {
		text := err.Error()
		texts = append(texts, text)
		if !slices.Contains(a.reported, text) {
			a.Log.Warn("the node is not as policies say", "fault", text)
			a.Report(text)
		}
	}
	if len(failed) == 0 && len(a.reported) > 0 {
		a.Log.Info("the node is as policies say")
	}
	a.reported = texts
}
