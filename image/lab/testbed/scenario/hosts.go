package scenario

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// api is the sandbox's Kubernetes API, spoken to from here: kubectl in the sandbox would cost more than what it
// looks at.
type api struct {
	sandbox *sandbox.Sandbox

	mu     sync.Mutex
	client client.Client
}

func newAPI(appliance *sandbox.Sandbox) *api { return &api{sandbox: appliance} }

func (a *api) get() (client.Client, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.client != nil {
		return a.client, nil
	}

	file, err := clientcmd.LoadFromFile(a.sandbox.Path("/etc/kubernetes/admin.conf"))
	if err != nil {
		return nil, fmt.Errorf("speak to the API: %w", err)
	}

	// Its paths are the sandbox's.
	for _, c := range file.Clusters {
		c.CertificateAuthority = a.sandbox.Path(c.CertificateAuthority)
	}

	for _, u := range file.AuthInfos {
		u.ClientCertificate, u.ClientKey = a.sandbox.Path(u.ClientCertificate), a.sandbox.Path(u.ClientKey)
	}

	config, err := clientcmd.NewDefaultClientConfig(*file, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("speak to the API: %w", err)
	}

	config.Dial = dialerIn(a.sandbox.PID())
	scheme := runtime.NewScheme()
	if err := metal3api.AddToScheme(scheme); err != nil {
		return nil, err
	}

	a.client, err = client.New(config, client.Options{Scheme: scheme})
	return a.client, err
}

// Hosts are the hosts of the API by name.
func (d *Scenario) Hosts(ctx context.Context) (map[string]metal3api.BareMetalHost, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	c, err := d.api.get()
	if err != nil {
		return nil, err
	}

	var list metal3api.BareMetalHostList
	if err := c.List(ctx, &list, client.InNamespace("metal3")); err != nil {
		return nil, fmt.Errorf("list hosts: %w", err)
	}

	hosts := map[string]metal3api.BareMetalHost{}
	for _, h := range list.Items {
		hosts[h.Name] = h
	}

	return hosts, nil
}

// WaitForHosts looks at the hosts once a second until they are as wanted, and writes a line whenever their
// states change. It returns how long after began the last host of all was first seen in each state.
func (d *Scenario) WaitForHosts(
	ctx context.Context,
	began time.Time,
	wanted func(map[string]metal3api.BareMetalHost) bool,
) (map[string]time.Duration, error) {
	phases := map[string]time.Duration{}
	seen := map[string]bool{}
	said := ""
	for {
		hosts, err := d.Hosts(ctx)
		at := time.Since(began)
		text := ""
		if err != nil {
			text = err.Error()
		} else {
			text = SummarizeStates(hosts)
			for name, h := range hosts {
				state := string(h.Status.Provisioning.State)
				if key := name + " " + state; !seen[key] {
					seen[key] = true
					phases[state] = at
				}
			}
		}

		if text != said {
			fmt.Fprintf(d.config.Log, "+%.0fs %s\n", at.Seconds(), text)
			said = text
		}

		if err == nil && wanted(hosts) {
			return phases, nil
		}

		select {
		case <-ctx.Done():
			return phases, fmt.Errorf("follow hosts: %w: %s (%v)", ctx.Err(), said, err)
		case <-time.After(time.Second):
		}
	}
}

// SummarizeStates sums hosts up: "available 3, provisioned 7; node4: the error".
func SummarizeStates(hosts map[string]metal3api.BareMetalHost) string {
	count := map[string]int{}
	var errors []string
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		h := hosts[name]
		state := string(h.Status.Provisioning.State)
		if state == "" {
			state = "new"
		}

		count[state]++
		if h.Status.ErrorMessage != "" {
			errors = append(errors, fmt.Sprintf("%s: %s", name, h.Status.ErrorMessage))
		}
	}

	var parts []string
	for _, state := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%s %d", state, count[state]))
	}

	return strings.Join(append([]string{strings.Join(parts, ", ")}, errors...), "; ")
}

// AllInState tells whether there are n hosts and each is in the state, without an error.
func AllInState(n int, state metal3api.ProvisioningState) func(map[string]metal3api.BareMetalHost) bool {
	return func(hosts map[string]metal3api.BareMetalHost) bool {
		for _, h := range hosts {
			if h.Status.Provisioning.State != state || h.Status.ErrorMessage != "" {
				return false
			}
		}
		return len(hosts) == n
	}
}

// HostInState tells whether a host is in the state.
func HostInState(name string, state metal3api.ProvisioningState) func(map[string]metal3api.BareMetalHost) bool {
	return func(hosts map[string]metal3api.BareMetalHost) bool {
		return hosts[name].Status.Provisioning.State == state
	}
}
