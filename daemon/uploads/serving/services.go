package serving

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/artifact"
)

// Names of ICN's Services, in ICN's namespace. Its scripts ask them for the address.
const (
	ServiceName      = "bpa-api-service"
	StoreServiceName = "minio-service"
	ServiceNamespace = "default"
)

// managedBy is Kubernetes' label for what made an object.
const managedBy = "app.kubernetes.io/managed-by"

// ServiceHost is the host part of ServiceName's address in the network of services: in the range that Kubernetes gives
// out last, next to the resolver's 10.
const ServiceHost = 15

// S3Host is that of StoreServiceName, if it leads to the appliance's own uploads.
const S3Host = 16

// ServiceNames are the DNS names by which pods reach the API, and uploads by S3.
func ServiceNames() (all []string) {
	for _, short := range []string{ServiceName, StoreServiceName} {
		name := short + "." + ServiceNamespace
		all = append(all, short, name, name+".svc", name+".svc.cluster.local")
	}
	return all
}

// services are those of ICN's names: the API's, and the S3 server's, which is the appliance's own or that of the site,
// if there is one.
func (p Pod) services() []client.Object {
	all := newService(ServiceName, p.ServiceAddr.String(), p.Addr.String(), artifact.Port)
	if p.S3 {
		all = append(all, newService(StoreServiceName, p.S3Addr.String(), p.Addr.String(), artifact.PortS3)...)
	}
	if p.Store == nil {
		return all
	}

	host, port, err := storeAddress(p.Store.Endpoint)
	if err != nil {
		return all // the agent says so
	}
	if a, err := netip.ParseAddr(host); err == nil {
		if a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsUnspecified() {
			return all // it is another machine's for whoever asks
		}
		return append(all, newService(StoreServiceName, "", a.String(), port)...)
	}

	return append(all, &corev1.Service{
		TypeMeta:   typeMeta("v1", "Service"),
		ObjectMeta: serviceMeta(StoreServiceName),
		Spec: corev1.ServiceSpec{
			Type:         corev1.ServiceTypeExternalName,
			ExternalName: host,
			Ports:        []corev1.ServicePort{{Name: "api", Port: port, Protocol: corev1.ProtocolTCP}},
		},
	})
}

func serviceMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: ServiceNamespace,
		Name:      name,
		Labels:    map[string]string{managedBy: owner},
	}
}

// newService is a Service without a selector and its one endpoint: what it stands for is no pod of its namespace. The
// API server chooses its address if addr is "".
func newService(name, addr, endpoint string, port int32) []client.Object {
	slice := serviceMeta(name)
	slice.Labels[discoveryv1.LabelServiceName] = name
	slice.Labels[discoveryv1.LabelManagedBy] = owner // or a controller of Kubernetes' would take it for its own
	family := discoveryv1.AddressTypeIPv4
	if a, err := netip.ParseAddr(endpoint); err == nil && a.Is6() {
		family = discoveryv1.AddressTypeIPv6
	}

	return []client.Object{
		&corev1.Service{
			TypeMeta:   typeMeta("v1", "Service"),
			ObjectMeta: serviceMeta(name),
			Spec: corev1.ServiceSpec{
				ClusterIP: addr,
				Ports:     []corev1.ServicePort{{Name: "api", Port: port, Protocol: corev1.ProtocolTCP}},
			},
		},
		&discoveryv1.EndpointSlice{
			TypeMeta:    typeMeta("discovery.k8s.io/v1", "EndpointSlice"),
			ObjectMeta:  slice,
			AddressType: family,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{endpoint}}},
			Ports: []discoveryv1.EndpointPort{{
				Name:     ptr.To("api"),
				Port:     ptr.To(port),
				Protocol: ptr.To(corev1.ProtocolTCP),
			}},
		},
	}
}

// storeAddress is where an endpoint, an http(s) URL, is reached.
func storeAddress(endpoint string) (host string, port int32, err error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "", 0, fmt.Errorf("endpoint of the store: %w", err)
	}

	text := u.Port()
	if text == "" {
		text = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || u.Hostname() == "" {
		return "", 0, fmt.Errorf("endpoint of the store: %w", &net.AddrError{Err: "no host and port", Addr: endpoint})
	}

	return u.Hostname(), int32(n), nil
}

// removeStoreService removes the Service of a store that the site names no more, or names elsewhere: a Service does not
// change from one kind to the other. One of someone else's stays.
func removeStoreService(ctx context.Context, c client.Client) error {
	for _, o := range []client.Object{&corev1.Service{}, &discoveryv1.EndpointSlice{}} {
		key := client.ObjectKey{Namespace: ServiceNamespace, Name: StoreServiceName}
		if err := c.Get(ctx, key, o); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read %s: %w", key, err)
		} else if err != nil || o.GetLabels()[managedBy] != owner {
			continue
		}
		if err := c.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("remove %s: %w", key, err)
		}
	}
	return nil
}
