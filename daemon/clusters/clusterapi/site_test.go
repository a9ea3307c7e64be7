package clusterapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// machinesSite gives so many of its four nodes to Cluster API, the first as the control plane, and one to nobody.
func machinesSite(t testing.TB, nodes int) *site.Site {
	var workers []string
	for i := 2; i <= nodes; i++ {
		workers = append(workers, fmt.Sprintf("{node: node-%d}", i))
	}
	text := `name: rack
access: {sshKeys: [ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGZpcnN0bGlnaHQgZXhhbXBsZSBrZXksIG5vIHVzZSEh you@example]}
nodes:
`
	for i := range 4 {
		text += fmt.Sprintf(`- name: node-%[1]d
  bmc: {address: "redfish://10.10.100.1%[1]d/redfish/v1/Systems/1", username: admin, password: secret}
  labels: {rack: "7"}
  overwrite: true
`, i+1)
	}
	text += `clusters:
- {name: edge, by: cluster-api, endpoint: 172.22.0.200, controlPlane: [{node: node-1}], workers: [` + strings.Join(workers, ", ") + `]}
`
	s, problems := site.Load("site.yaml", []byte(text))
	require.Empty(t, problems.String())
	return s.WithDefaults()
}

func stickImage(n site.Node) (Image, error) {
	if n.OS.Image != site.StickImage {
		return Image{}, errors.New("it has no such image")
	}
	return testImage, nil
}

func TestNodesOfTheSiteAreHostsWithoutImage(t *testing.T) {
	all := SiteHosts(machinesSite(t, 2))
	require.Len(t, all, 4)
	secret, host := all[2].(*corev1.Secret), all[3].(*metal3api.BareMetalHost)
	assert.Equal(t, "node-2-bmc-secret", secret.Name)
	assert.Equal(t, map[string][]byte{"username": []byte("admin"), "password": []byte("secret")}, secret.Data)
	assert.Equal(t, "node-2", host.Name)
	assert.Equal(t, map[string]string{label.Cluster: "edge", label.Role: label.RoleWorker, "rack": "7"}, host.Labels)
	assert.Equal(t, map[string]string{label.Overwrite: "true", label.VerifyCertificate: "pin"}, host.Annotations)
	assert.Nil(t, host.Spec.Image)
	assert.Equal(t, metal3api.CleaningModeDisabled, host.Spec.AutomatedCleaningMode)
	assert.Equal(t, "node-2-bmc-secret", host.Spec.BMC.CredentialsName)
	assert.False(t, host.Spec.BMC.DisableCertificateVerification, "the appliance pins it")
	assert.Equal(t, label.RoleControlPlane, all[1].GetLabels()[label.Role])

	for _, check := range []site.CertificateCheck{site.CheckPin, site.CheckCA, site.CheckNone} {
		s := machinesSite(t, 2)
		s.Nodes[1].BMC.VerifyCertificate = check
		host := SiteHosts(s)[3].(*metal3api.BareMetalHost)
		assert.Equal(t, check, metal3.AppliedHost{Host: host}.Node().BMC.VerifyCertificate)
	}
}

func variables(t testing.TB, cluster client.Object) map[string]any {
	all := map[string]any{}
	for _, v := range nested(t, cluster.(*unstructured.Unstructured), "spec.topology.variables").([]any) {
		all[v.(map[string]any)["name"].(string)] = v.(map[string]any)["value"]
	}
	return all
}

func TestAClusterOfTheSiteTakesItsNodes(t *testing.T) {
	all, err := SiteClusters(machinesSite(t, 3), stickImage)
	require.NoError(t, err)
	require.Len(t, all, 1)
	cluster := all[0].(*unstructured.Unstructured)
	assert.EqualValues(t, 1, nested(t, cluster, "spec.topology.controlPlane.replicas"))
	workers := nested(t, cluster, "spec.topology.workers.machineDeployments").([]any)[0].(map[string]any)
	assert.EqualValues(t, 2, workers["replicas"])
	assert.Equal(t, selectorOverrides("edge", label.RoleWorker), workers["variables"])
	got := variables(t, cluster)
	assert.Equal(t, map[string]any{"host": "172.22.0.200", "port": int64(6443)}, got["endpoint"])
	assert.Equal(t, testImage.URL, got["image"].(map[string]any)["url"])
	assert.Len(t, got["sshKeys"], 1)
	assert.Equal(t, false, got["workloadOnControlPlane"])

	alone, err := SiteClusters(machinesSite(t, 1), stickImage)
	require.NoError(t, err)
	assert.Equal(t, true, variables(t, alone[0])["workloadOnControlPlane"], "a cluster of one node runs the workload there")

	_, err = SiteClusters(machinesSite(t, 1), func(site.Node) (Image, error) { return Image{}, errors.New("no image") })
	assert.EqualError(t, err, "cluster edge: node node-1: no image")
}

// A cluster grows with the site. Whatever would install its nodes again stays.
func TestAClusterThatIsThereStaysAsItWasCreated(t *testing.T) {
	made := func(nodes int) *unstructured.Unstructured {
		all, err := SiteClusters(machinesSite(t, nodes), stickImage)
		require.NoError(t, err)
		return all[0].(*unstructured.Unstructured)
	}
	have := made(2)
	require.NoError(t, unstructured.SetNestedField(have.Object, "v1.30.0", "spec", "topology", "version"))
	require.NoError(t, unstructured.SetNestedSlice(have.Object, []any{variableOf("image", "as it was")}, "spec", "topology", "variables"))

	for nodes, workers := range map[int]int64{1: 1, 2: 1, 4: 3} {
		want := made(nodes)
		api := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithObjects(have.DeepCopy()).Build()
		require.NoError(t, keepInstalled(t.Context(), api, []client.Object{want}))
		assert.Equal(t, "v1.30.0", nested(t, want, "spec.topology.version"))
		assert.Equal(t, map[string]any{"image": "as it was"}, variables(t, want))
		got := nested(t, want, "spec.topology.workers.machineDeployments").([]any)[0].(map[string]any)
		assert.Equal(t, workers, got["replicas"], "%d nodes", nodes)
	}

	other := newObject("Cluster")
	other.SetNamespace("metal3")
	other.SetName("edge")
	api := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithObjects(other).Build()
	assert.ErrorContains(t, keepInstalled(t.Context(), api, []client.Object{made(2)}), "not of the appliance's class")
	empty := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).Build()
	assert.NoError(t, keepInstalled(t.Context(), empty, []client.Object{made(2)}))
}

// What the site asks and does not get is told, and nothing else.
func TestWhatAClusterKeepsIsTold(t *testing.T) {
	asked := func(change func(*site.Site)) *clusterv1.Cluster {
		s := machinesSite(t, 3)
		change(s)
		all, err := SiteClusters(s, func(n site.Node) (Image, error) {
			return Image{URL: "http://172.22.0.1/images/" + n.OS.Image, SHA256: testImage.SHA256}, nil
		})
		require.NoError(t, err)
		c, err := readCluster(all[0])
		require.NoError(t, err)
		return c
	}
	have := asked(func(*site.Site) {})
	have.Spec.Topology.Version = "v1.30.0" // of the stick that made it

	for _, c := range []struct {
		name   string
		change func(*site.Site)
		want   string // begins the only sentence; "": none
	}{
		{"nothing", func(*site.Site) {}, ""},
		{"another endpoint", func(s *site.Site) { s.Clusters[0].Endpoint = netip.MustParseAddr("172.22.0.201") },
			"site.yaml: endpoint: it is 172.22.0.201 there, and this cluster keeps 172.22.0.200, because its nodes would be installed again;"},
		{"another network of pods", func(s *site.Site) { s.Clusters[0].PodCIDR = netip.MustParsePrefix("10.99.0.0/16") },
			"site.yaml: podCIDR: it is 10.99.0.0/16 there,"},
		{"another network of Services", func(s *site.Site) { s.Clusters[0].ServiceCIDR = netip.MustParsePrefix("10.99.0.0/16") },
			"site.yaml: serviceCIDR: it is 10.99.0.0/16 there,"},
		{"another image", func(s *site.Site) { s.Nodes[0].OS.Image = "mine" },
			"site.yaml: os of its nodes: it is http://172.22.0.1/images/mine there,"},
		{"no keys", func(s *site.Site) { s.Access.SSHKeys = nil }, "site.yaml: access.sshKeys: it is nothing there,"},
		{"fewer workers", func(s *site.Site) { s.Clusters[0].Workers = s.Clusters[0].Workers[:1] },
			"site.yaml: workers: it names 1 there, and this cluster keeps 2, because nobody says which go;"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := keptDifferences(asked(c.change), have)
			if c.want == "" {
				assert.Empty(t, got)
				return
			}
			require.Len(t, got, 1)
			assert.True(t, strings.HasPrefix(got[0], c.want), got[0])
		})
	}
}

func TestAHostThatTheApplianceInstalledIsNotGivenAway(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, metal3api.AddToScheme(scheme))
	hosts := SiteHosts(machinesSite(t, 2))
	assert.NoError(t, checkNotInstalled(t.Context(), fake.NewClientBuilder().WithScheme(scheme).Build(), hosts))
	have := &metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: "node-2", Labels: map[string]string{label.Site: "rack"}}}
	err := checkNotInstalled(t.Context(), fake.NewClientBuilder().WithScheme(scheme).WithObjects(have).Build(), hosts)
	assert.ErrorContains(t, err, "kubectl -n metal3 delete bmh node-2")
}

// The site's cluster on the real managers: its machines take exactly the hosts that the site names, it is verified, and it
// grows with the site.
func TestAClusterOfTheSiteOnTheRack(t *testing.T) {
	r := newRack(t, 2) // which anybody may have
	r.prepareWorkload("edge")
	r.prepareNodeSetup()
	r.applyClass()

	r.applySite(2)
	r.settles(1, 1)
	assert.Equal(t, map[string]string{"node-1": "control-plane", "node-2": "worker"}, r.roles())
	verifier := &Verifier{Log: slog.New(slog.NewTextHandler(t.Output(), nil)), run: func(
		_ context.Context, _ client.Reader, _ clusterv1.Cluster, nodes []string,
	) contract.Verification {
		return contract.Verification{Time: time.Now(), Nodes: nodes, Passed: true, Checks: []contract.Check{{Name: "DNS", Passed: true}}}
	}}
	r.verified(verifier, "2/2")

	generation := field(r.object("kubeadmcontrolplane", r.in("clusters", "edge", ".spec.controlPlaneRef.name")), ".metadata.generation")
	r.applySite(3)
	r.settles(1, 2)
	assert.Equal(t, map[string]string{"node-1": "control-plane", "node-2": "worker", "node-3": "worker"}, r.roles())
	r.verified(verifier, "3/3")
	assert.Equal(t, generation, field(r.object("kubeadmcontrolplane", r.in("clusters", "edge", ".spec.controlPlaneRef.name")),
		".metadata.generation"), "a worker more is no change of the control plane")

	// Nothing runs pods here: the real verification says so. It is not repeated at once.
	read := r.clusters()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	seen := tryCluster(ctx, r.full, read.clusters[0], nodesOf(&read.clusters[0], read.machines))
	assert.False(t, seen.Passed)
	assert.Contains(t, verificationText(&seen), "checks failed")
	t.Log(verificationText(&seen))

	r.run("delete", "cluster", "edge", "-n", "metal3", "--wait=false")
	r.testNothingIsLeft()
	r.history.assertInvariants()
}

// applySite is the daemon's part, with so many nodes, at the endpoint of the rack.
func (r *rack) applySite(nodes int) {
	s := machinesSite(r.t, nodes)
	hosts, err := apply.New(siteOwner, SiteHosts(s)...)
	require.NoError(r.t, err)
	require.NoError(r.t, hosts.StaleSubset(r.t.Context(), r.full).Apply(r.t.Context(), r.full))
	for _, o := range hosts.Objects {
		h := &metal3api.BareMetalHost{}
		if o.GetKind() != "BareMetalHost" {
			continue
		}
		require.NoError(r.t, r.full.Get(r.t.Context(), client.ObjectKeyFromObject(o), h))
		if h.Labels[label.Verified] == "" {
			r.hosts++
			before := h.DeepCopy()
			h.Labels[label.Verified] = label.VerifiedHardware
			require.NoError(r.t, r.full.Patch(r.t.Context(), h, client.MergeFrom(before)))
			r.setState(r.t.Context(), h, metal3api.StateAvailable)
		}
	}

	clusters, err := SiteClusters(s, stickImage)
	require.NoError(r.t, err)
	u := clusters[0].(*unstructured.Unstructured)
	for _, v := range nested(r.t, u, "spec.topology.variables").([]any) {
		if v := v.(map[string]any); v["name"] == "endpoint" {
			v["value"] = map[string]any{"host": r.host(), "port": r.portNumber()}
		}
	}
	require.NoError(r.t, keepInstalled(r.t.Context(), r.client, clusters))
	set, err := apply.New(siteOwner, clusters...)
	require.NoError(r.t, err)
	r.until("the cluster is applied", func() error { return set.Apply(r.t.Context(), r.client) })
}

func (r *rack) portNumber() (n int64) {
	_, err := fmt.Sscan(r.port(), &n)
	require.NoError(r.t, err)
	return n
}

// roles are the roles of machines by their hosts.
func (r *rack) roles() map[string]string {
	all := map[string]string{}
	var hosts metal3api.BareMetalHostList
	require.NoError(r.t, r.full.List(r.t.Context(), &hosts))
	clusters := r.clusters().Status(hosts.Items, nil)
	require.Len(r.t, clusters, 1)
	for _, n := range clusters[0].Members {
		all[strings.TrimPrefix(n.Host, "metal3/")] = n.Roles[0]
	}
	return all
}

// clusters are those of Cluster API, as they stand.
func (r *rack) clusters() Clusters {
	r.t.Helper()
	all, err := ReadClusters(r.t.Context(), r.full)
	require.NoError(r.t, err)
	return all
}

// verified follows the cluster until it is ready with so many nodes.
func (r *rack) verified(v *Verifier, nodes string) {
	r.until("the cluster is verified", func() error {
		v.Follow(r.t.Context(), r.full, r.clusters())
		v.tasks.Wait()
		if c := r.clusters().Status(nil, nil)[0]; c.State != "ready" || c.Nodes != nodes {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
}
