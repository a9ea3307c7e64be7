package nodes_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/manifest"
)

// tenantsOnCluster are two Tenants. ann may do all in the namespaces of alpha, bob in that of beta.
const tenantsOnCluster = `
{apiVersion: tenant.akraino.org/v1alpha1, kind: Tenant, metadata: {name: alpha}, spec: {
namespaces: [alpha-dev, alpha-prod, alpha-old], owners: [{kind: User, name: ann}], viewers: [{kind: Group, name: auditors}],
quota: {hard: {pods: "2", requests.cpu: "1", limits.memory: 2Gi}}}}
---
{apiVersion: tenant.akraino.org/v1alpha1, kind: Tenant, metadata: {name: beta}, spec: {
namespaces: [beta-dev], owners: [{kind: User, name: bob}], reclaim: Delete}}
`

// tenantPod is a pod that answers questions, without a word about what it wants of the node.
func tenantPod(namespace, name string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s}, spec: {terminationGracePeriodSeconds: 0,
tolerations: [{operator: Exists}], containers: [{name: probe, image: '%s', imagePullPolicy: IfNotPresent,
command: [/usr/bin/firstlight-node, probe, '--listen=:8080'], env: [{name: POD, value: %[1]s}]}]}}
---
`, name, namespace, manifest.NodeImage)
}

// tenancy is a cluster of one node with the add-ons tenants and network-policy.
type tenancy struct {
	*bench
}

// as runs kubectl on the node; who is "" for the administrator.
func (c tenancy) as(who, args string) (string, error) {
	command := "kubectl --kubeconfig /etc/kubernetes/admin.conf "
	if who != "" {
		command += "--as=" + who + " "
	}
	return c.Servers[0].Run(c.ctx, "sh", "-euc", command+args)
}

func (c tenancy) run(who, args string) string {
	c.t.Helper()
	out, err := c.as(who, args)
	require.NoError(c.t, err)
	return out
}

func (c tenancy) create(who, text string) error {
	_, err := c.as(who, "apply -f - <<'END'\n"+text+"\nEND")
	return err
}

// refused runs what must not be done, and logs why not.
func (c tenancy) refused(who, args, says string) {
	c.t.Helper()
	_, err := c.as(who, args)
	if assert.ErrorContains(c.t, err, says, "%s: kubectl %s", who, args) {
		c.t.Logf("%s: kubectl %s\n%v", who, strings.SplitN(args, "\n", 2)[0], err)
	}
}

// ask has the pod of a namespace ask something. The API's way to the pod is the node's own, which no policy closes.
func (c tenancy) ask(namespace, verb, key, value string) (string, error) {
	return c.as("", fmt.Sprintf(
		"get --raw '/api/v1/namespaces/%s/pods/one:8080/proxy/%s?%s=%s'", namespace, verb, key, url.QueryEscape(value),
	))
}

// reaches waits until the pod of one namespace reaches, or does not, that of another.
func (c tenancy) reaches(from, to string, want bool) {
	c.t.Helper()
	address := c.run("", "-n "+to+" get pod one -o jsonpath={.status.podIP}")
	var err error
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
		_, err = c.ask(from, "ask", "url", "http://"+address+":8080/who")
		if (err == nil) == want {
			c.t.Logf("the pod of %s reaches that of %s: %v", from, to, want)
			return
		}
	}
	assert.Fail(c.t, "the network is another", "the pod of %s reaches that of %s: %v, %v", from, to, !want, err)
}

func (c tenancy) waitReady(tenants ...string) {
	c.t.Helper()
	for _, name := range tenants {
		c.run("", "wait tenant/"+name+" --for=condition=Ready --timeout=3m")
	}
}

// TestTenants: two tenants share a cluster. Each does what it likes in its own namespaces and nothing in the other's, is
// held to its quota, reaches its own pods alone, and cannot change any of that. What somebody else changes is repaired;
// what is no longer asked for is retained or deleted; and without the add-on all namespaces stay.
func TestTenants(t *testing.T) {
	long(t)
	b := newWhole(t, "tenants", 1)
	b.host(1, b.Servers[0])
	b.apply(`{apiVersion: bpa.akraino.org/v1alpha1, kind: Provisioning, metadata: {name: edge, namespace: default, labels: {cluster: edge, owner: alpha}},
spec: {masters: [{master-1: {mac-address: '52:54:00:00:00:01'}}]}}`)
	b.until("bpa", "edge")
	for _, name := range []string{"network-policy", "tenants"} {
		b.apply(`{apiVersion: kpa.akraino.org/v1alpha1, kind: Component, metadata: {name: ` + name + `, namespace: default},
spec: {clusters: [edge], source: {folder: ` + name + `}}}`)
	}
	for _, name := range []string{"network-policy", "tenants"} {
		b.appliance("kubectl", "wait", "kc/"+name, "--for=condition=Ready", "--timeout=10m")
	}
	t.Log("\n" + b.appliance("kubectl", "get", "kc", "-o", "wide"))

	c := tenancy{b}
	require.NoError(t, c.create("", tenantsOnCluster))
	c.waitReady("alpha", "beta")
	t.Log("\n" + c.run("", "get tenants -o wide"))
	t.Log("\n" + c.run("", "-n alpha-dev get rolebindings,resourcequotas,limitranges,networkpolicies"))

	c.checkRights()
	c.checkPodsAndNetwork()
	c.checkFixtures()
	c.checkNamespaces()
	c.checkRepair()
	c.checkReclaim()
	c.checkRemoval()
}

func (c tenancy) checkRights() {
	c.t.Helper()
	for _, q := range []struct{ who, can, want string }{
		{"ann", "create deployments -n alpha-dev", "yes"},
		{"ann", "create rolebindings -n alpha-prod", "yes"},
		{"ann", "create deployments -n beta-dev", "no"},
		{"ann", "get pods -n beta-dev", "no"},
		{"ann", "get secrets -n kube-system", "no"},
		{"ann", "patch resourcequotas -n alpha-dev", "no"},
		{"ann", "delete limitranges -n alpha-dev", "no"},
		{"ann", "patch namespaces -n alpha-dev", "no"},
		{"ann", "update tenants", "no"},
		{"bob", "create deployments -n beta-dev", "yes"},
		{"bob", "get pods -n alpha-dev", "no"},
		{"eve --as-group=auditors", "get pods -n alpha-dev", "yes"},
		{"eve --as-group=auditors", "delete pods -n alpha-dev", "no"},
		{"eve --as-group=auditors", "get pods -n beta-dev", "no"},
	} {
		out := c.run(q.who, "auth can-i "+q.can+" 2>/dev/null || true")
		c.t.Logf("%s: can I %s? %s", q.who, q.can, out)
		assert.Equal(c.t, q.want, strings.TrimSpace(out), "%s: %s", q.who, q.can)
	}
}

func (c tenancy) checkPodsAndNetwork() {
	c.t.Helper()
	require.NoError(c.t, c.create("ann", tenantPod("alpha-dev", "one")+tenantPod("alpha-prod", "one")+tenantPod("alpha-dev", "two")))
	require.NoError(c.t, c.create("bob", tenantPod("beta-dev", "one")))
	assert.ErrorContains(c.t, c.create("bob", tenantPod("alpha-dev", "spy")), "forbidden")
	err := c.create("ann", tenantPod("alpha-dev", "three"))
	if assert.ErrorContains(c.t, err, "exceeded quota: tenant-quota") {
		c.t.Log(err)
	}
	assert.Equal(c.t, "100m", c.run("", "-n alpha-dev get pod one -o jsonpath={.spec.containers[0].resources.requests.cpu}"))
	privileged := strings.Replace(tenantPod("beta-dev", "host"), "spec: {", "spec: {hostNetwork: true, ", 1)
	assert.ErrorContains(c.t, c.create("bob", privileged), `violates PodSecurity "baseline:latest"`)

	for _, namespace := range []string{"alpha-dev", "alpha-prod", "beta-dev"} {
		c.run("", "-n "+namespace+" wait pod/one --for=condition=Ready --timeout=3m")
	}
	c.reaches("alpha-dev", "alpha-prod", true)
	c.reaches("alpha-dev", "beta-dev", false)
	c.reaches("beta-dev", "alpha-dev", false)
	out, err := c.ask("alpha-dev", "resolve", "name", "kubernetes.default.svc.cluster.local")
	require.NoError(c.t, err, "DNS")
	c.t.Logf("DNS: %s", out)
}

// checkFixtures has an owner try to change what holds the tenant.
func (c tenancy) checkFixtures() {
	c.t.Helper()
	const tenants = "is of a Tenant and is changed by its spec alone"
	c.refused("ann", "-n alpha-dev delete networkpolicy tenant-isolation", tenants)
	c.refused("ann", "-n alpha-dev delete networkpolicy --all", tenants)
	c.refused("ann", "-n alpha-dev label networkpolicy tenant-isolation tenant.akraino.org/name-", "ValidatingAdmissionPolicy 'firstlight-tenants-")
	c.refused("ann", "-n alpha-dev delete rolebinding tenant-viewers", tenants)
	c.refused("ann", "-n alpha-dev delete resourcequota tenant-quota", "forbidden")
	c.refused("ann", "label namespace alpha-dev pod-security.kubernetes.io/enforce=privileged --overwrite", "forbidden")
	c.refused("ann", "apply -f - <<'END'\n"+
		`{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: open, namespace: alpha-dev},
spec: {podSelector: {}, ingress: [{}], egress: [{}], policyTypes: [Ingress, Egress]}}`+"\nEND", "the namespace is isolated")
	c.run("ann", "-n alpha-dev create rolebinding friends --clusterrole=view --user=carl") // its own, in its own namespace

	const controller = "system:serviceaccount:kube-system:firstlight-tenants"
	c.refused(controller, "-n kube-system create rolebinding ann --clusterrole=admin --user=ann", "writes in namespaces of Tenants alone")
	c.refused(controller, "delete namespace kpa-system", "changes namespaces of Tenants")
	c.refused(controller, "-n alpha-dev create rolebinding root --clusterrole=cluster-admin --user=ann", "attempting to grant RBAC permissions")
}

// checkNamespaces tries names that a Tenant does not get.
func (c tenancy) checkNamespaces() {
	c.t.Helper()
	const tenant = "apply -f - <<'END'\n{apiVersion: tenant.akraino.org/v1alpha1, kind: Tenant, metadata: {name: gamma}, spec: {namespaces: [%s]}}\nEND"
	for _, name := range []string{"kube-system", "default", "kpa-system", "firstlight-verify"} {
		c.refused("", fmt.Sprintf(tenant, name), "choose another name")
	}

	c.run("", "create namespace legacy")
	c.run("", fmt.Sprintf(tenant, "gamma-dev, legacy, alpha-dev"))
	const reason = `kubectl --kubeconfig /etc/kubernetes/admin.conf get tenant gamma -o jsonpath='{.status.conditions[0].reason} {.status.namespaces} {.status.message}'`
	c.await(c.Servers[0], reason, `^NamespaceForeign \["gamma-dev"\] .*belongs to Tenant alpha`)
	c.t.Log(c.on(c.Servers[0], reason))
	c.run("", fmt.Sprintf(tenant, "gamma-dev, legacy"))
	c.run("", "annotate namespace legacy tenant.akraino.org/adopt=gamma")
	c.waitReady("gamma")
	assert.Equal(c.t, "gamma", c.run("", "get namespace legacy -o jsonpath='{.metadata.labels.tenant\\.akraino\\.org/name}'"))
	assert.Equal(c.t, "alpha", c.run("", "get namespace alpha-dev -o jsonpath='{.metadata.labels.tenant\\.akraino\\.org/name}'"))
}

func (c tenancy) checkRepair() {
	c.t.Helper()
	const get = "kubectl --kubeconfig /etc/kubernetes/admin.conf -n alpha-dev get "
	c.run("", "-n alpha-dev delete networkpolicy tenant-isolation")
	c.await(c.Servers[0], get+"networkpolicy tenant-isolation -o name", "tenant-isolation")
	c.run("", `-n alpha-dev patch resourcequota tenant-quota --type=merge -p '{"spec":{"hard":{"pods":"99"}}}'`)
	c.await(c.Servers[0], get+"resourcequota tenant-quota -o jsonpath={.spec.hard.pods}", "^2$")
	c.run("", "label namespace alpha-dev pod-security.kubernetes.io/enforce=privileged --overwrite")
	c.await(c.Servers[0], get+`namespace alpha-dev -o jsonpath='{.metadata.labels.pod-security\.kubernetes\.io/enforce}'`, "^baseline$")
}

func (c tenancy) checkReclaim() {
	c.t.Helper()
	const fixtures = "get rolebindings,resourcequotas,limitranges,networkpolicies -l tenant.akraino.org/name -o name"
	c.run("ann", "-n alpha-old create configmap kept --from-literal=a=b")
	c.run("", `patch tenant alpha --type=merge -p '{"spec":{"namespaces":["alpha-dev","alpha-prod"]}}'`)
	c.await(c.Servers[0], "kubectl --kubeconfig /etc/kubernetes/admin.conf get namespaces -l tenant.akraino.org/name=alpha -o name",
		"^namespace/alpha-dev\nnamespace/alpha-prod\n$")
	assert.Empty(c.t, c.run("", "-n alpha-old "+fixtures))
	assert.Equal(c.t, "b", c.run("", "-n alpha-old get configmap kept -o jsonpath={.data.a}"))
	c.refused("ann", "-n alpha-old get pods", "forbidden")

	c.run("", "delete tenant beta --timeout=3m")
	assert.Empty(c.t, c.run("", "get namespace beta-dev --ignore-not-found -o name"), "it was to be deleted")

	// Without isolation the same pods reach each other: it was the policy that kept them apart.
	require.NoError(c.t, c.create("", tenantPod("default", "one")))
	c.run("", "wait pod/one --for=condition=Ready --timeout=3m")
	c.reaches("alpha-dev", "default", false)
	c.reaches("default", "alpha-dev", false)
	c.run("", `patch tenant alpha --type=merge -p '{"spec":{"isolation":false}}'`)
	c.reaches("alpha-dev", "default", true)
	c.reaches("default", "alpha-dev", true)
}

// checkRemoval takes the add-on away while a Tenant is there that would have its namespaces deleted.
func (c tenancy) checkRemoval() {
	c.t.Helper()
	c.run("", `patch tenant alpha --type=merge -p '{"spec":{"reclaim":"Delete","isolation":true}}'`)
	c.waitReady("alpha")
	pod := c.run("", "-n alpha-dev get pod one -o jsonpath={.metadata.uid}")
	began := time.Now()
	c.appliance("kubectl", "delete", "kc", "tenants", "--timeout=5m")
	c.t.Logf("the add-on was removed in %s", time.Since(began).Round(time.Second))

	assert.Empty(c.t, c.run("", "get customresourcedefinition tenants.tenant.akraino.org --ignore-not-found -o name"))
	assert.Empty(c.t, c.run("", "get clusterrole,serviceaccount,deployment,job,validatingadmissionpolicy -A -o name --ignore-not-found -l kpa.akraino.org/name=tenants"))
	for _, name := range []string{"alpha-dev", "alpha-prod", "gamma-dev", "legacy"} {
		assert.Equal(c.t, "Active", c.run("", "get namespace "+name+" -o jsonpath={.status.phase}"))
		assert.Empty(c.t, c.run("", "-n "+name+" get rolebindings,resourcequotas,limitranges,networkpolicies -l tenant.akraino.org/name -o name"))
	}
	assert.Equal(c.t, pod, c.run("", "-n alpha-dev get pod one -o jsonpath={.metadata.uid}"))
	c.t.Log("\n" + c.run("", "get namespaces -o custom-columns='NAME:.metadata.name,PHASE:.status.phase,ANNOTATIONS:.metadata.annotations'"))

	// Installed again, the same Tenant has its namespaces again.
	c.apply(`{apiVersion: kpa.akraino.org/v1alpha1, kind: Component, metadata: {name: tenants, namespace: default}, spec: {clusters: [edge], source: {folder: tenants}}}`)
	c.appliance("kubectl", "wait", "kc/tenants", "--for=condition=Ready", "--timeout=5m")
	require.NoError(c.t, c.create("", `{apiVersion: tenant.akraino.org/v1alpha1, kind: Tenant, metadata: {name: alpha}, spec: {namespaces: [alpha-dev, alpha-prod]}}`))
	c.waitReady("alpha")
}
