package multus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// ResourceKey is the annotation of a definition whose network needs a device of the pod: the resource that the pod's
// containers request (De-facto Standard v1.3, 3.2; k8s.v1.cni.cncf.io/resourceName).
const ResourceKey = "k8s.v1.cni.cncf.io/resourceName"

// podDevices gives a pod's networks the devices that the kubelet assigned to its containers, each one once.
type podDevices struct {
	read func() (map[string][]string, error)
	all  map[string][]string // identifiers by resource; nil until they were read
	used map[string]bool
}

// claim returns the device for the next network of a resource: the one that the pod's annotation names, else the first
// that no other network has.
func (d *podDevices) claim(resource, named string) (string, error) {
	if d.all == nil {
		all, err := d.read()
		if err != nil {
			return "", err
		}
		d.all, d.used = all, map[string]bool{}
	}

	isFree := func(id string) bool { return !d.used[id] && (named == "" || id == named) }
	i := slices.IndexFunc(d.all[resource], isFree)
	if i < 0 && named != "" {
		return "", fmt.Errorf("the pod has no device %s of %s that no other network has; leave deviceID out of its annotation",
			named, resource)
	}
	if i < 0 {
		return "", fmt.Errorf("it needs a device of %s, and the pod has %d of them in all; have its containers request one "+
			"for each such network (resources.limits)", resource, len(d.all[resource]))
	}
	id := d.all[resource][i]
	d.used[id] = true
	return id, nil
}

// addDevice puts a device into the configuration of a list's first plugin, where upstream puts it: deviceID, and
// pciBusID for plugins that know this name alone.
func addDevice(list []byte, id string) ([]byte, error) {
	var config map[string]any
	decoder := json.NewDecoder(bytes.NewReader(list))
	decoder.UseNumber()
	if err := decoder.Decode(&config); err != nil {
		return nil, fmt.Errorf("read the list of plugins: %w", err)
	}
	plugins, _ := config["plugins"].([]any)
	if len(plugins) == 0 {
		return nil, errors.New("read the list of plugins: it is empty")
	}
	first, _ := plugins[0].(map[string]any)
	if first == nil {
		return nil, errors.New("read the list of plugins: the first one is no object")
	}
	first["deviceID"], first["pciBusID"] = id, id
	return json.Marshal(config)
}

const (
	kubeletTimeout = 10 * time.Second
	// kubeletAnswer is what an answer may have: a node may have many pods.
	kubeletAnswer = 16 << 20
)

// readDevices asks the kubelet which devices a pod has, by resource (KEP-606, API podresources v1).
func readDevices(ctx context.Context, socket, namespace, name string) (map[string][]string, error) {
	ctx, cancel := context.WithTimeout(ctx, kubeletTimeout)
	defer cancel()

	connection, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(kubeletAnswer)))
	if err != nil {
		return nil, fmt.Errorf("ask the kubelet for the pod's devices: %w", err)
	}
	defer connection.Close()
	answer, err := podresources.NewPodResourcesListerClient(connection).List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask the kubelet for the pod's devices: %w", err)
	}

	all := map[string][]string{}
	for _, pod := range answer.PodResources {
		if pod.Namespace != namespace || pod.Name != name {
			continue
		}
		for _, c := range pod.Containers {
			for _, d := range c.Devices {
				for _, id := range d.DeviceIds {
					if !slices.Contains(all[d.ResourceName], id) {
						all[d.ResourceName] = append(all[d.ResourceName], id)
					}
				}
			}
		}
	}
	return all, nil
}
