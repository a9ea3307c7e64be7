package ovn4nfv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/addons/ovn"
)

// chainProtocol marks routes of chains among a pod's (rtm_protocol of rtnetlink(7); above 0 to 8, which the kernel has).
const chainProtocol = 144

// routePods gives the node's pods the routes that their annotation has.
func (a *Agent) routePods(ctx context.Context) error {
	list, err := a.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", a.Node).String(),
	})
	if err != nil {
		return fmt.Errorf("list the node's pods: %w", err)
	}
	settings, err := readSettings(a.Dirs)
	if err != nil {
		return err
	}
	var failed []error
	for i := range list.Items {
		pod := &list.Items[i]
		text, isRouted := pod.Annotations[label.Routes]
		if !isRouted || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		if err := routePod(pod, text, settings.Keep); err != nil {
			failed = append(failed, fmt.Errorf("routes of pod %s/%s: %w", pod.Namespace, pod.Name, err))
		}
	}
	return errors.Join(failed...)
}

func routePod(pod *corev1.Pod, text string, keep []netip.Prefix) error {
	var wanted []PodRoute
	if err := json.Unmarshal([]byte(text), &wanted); err != nil {
		return fmt.Errorf("read annotation %s: %w", label.Routes, err)
	}
	interfaces, err := ParseInterfaces(pod.Annotations[InterfacesKey])
	if err != nil || len(interfaces) == 0 {
		return err
	}
	path, err := findPodNamespace(filepath.Dir(ovn.Namespace), interfaces[0])
	if err != nil {
		return err
	}
	return inNamespace(path, func(h *netlink.Handle, _ netns.NsHandle) error { return setRoutes(h, wanted, keep) })
}

// findPodNamespace returns the network namespace that has an interface.
func findPodNamespace(dir string, i Interface) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("list network namespaces: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if !ovn.HasNamespace(path) {
			continue
		}
		isIt := false
		err := inNamespace(path, func(h *netlink.Handle, _ netns.NsHandle) error {
			link, err := h.LinkByName(i.Interface)
			isIt = err == nil && link.Attrs().HardwareAddr.String() == i.MAC
			return nil
		})
		if err == nil && isIt {
			return path, nil
		}
	}
	return "", fmt.Errorf("no network namespace of the node has interface %s with %s", i.Interface, i.MAC)
}

// setRoutes makes a pod's routes of chains those that are wanted. The pod's own default route stays; the cluster's networks
// are reached by it.
func setRoutes(h *netlink.Handle, wanted []PodRoute, keep []netip.Prefix) error {
	all, err := h.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("read them: %w", err)
	}
	var routes []netlink.Route
	for _, r := range all {
		if isDefault(r) && len(wanted) > 0 {
			for _, k := range keep {
				one := r
				one.Dst = toIPNet(k)
				routes = append(routes, one)
			}
		}
	}
	for _, w := range wanted {
		routes = append(routes, netlink.Route{Dst: toIPNet(w.To), Gw: net.IP(w.Gateway.AsSlice())})
	}

	isWanted := map[string]bool{}
	var failed []error
	for _, r := range routes {
		r.Protocol = chainProtocol
		isWanted[r.Dst.String()] = true
		if err := h.RouteReplace(&r); err != nil {
			failed = append(failed, fmt.Errorf("add the route to %s: %w", r.Dst, err))
		}
	}
	for _, r := range all {
		if r.Protocol == chainProtocol && r.Dst != nil && !isWanted[r.Dst.String()] {
			if err := h.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
				failed = append(failed, fmt.Errorf("remove the route to %s: %w", r.Dst, err))
			}
		}
	}
	return errors.Join(failed...)
}

// isDefault reports whether a route is for everything that has no other.
func isDefault(r netlink.Route) bool {
	if r.Dst == nil {
		return true
	}
	ones, _ := r.Dst.Mask.Size()
	return ones == 0
}
