package nodes_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/manifest"
	"firstlight.dev/firstlight/daemon/clusters/kpa/plan"
	"firstlight.dev/firstlight/daemon/clusters/kpa/v1alpha1"
)

// quickJob is the spec of a Job whose one pod ends at once, on the node whose power is not cut: there, a second pod could
// only come from a second Job.
const quickJob = "{backoffLimit: 0, template: {spec: {nodeName: master-1, restartPolicy: Never, tolerations: [{operator: Exists}], " +
	"containers: [{name: job, image: '%s', imagePullPolicy: IfNotPresent, command: [/usr/bin/firstlight-addons, --help]}]}}}"

// lampKind and lamp are files of a folder that was brought to the appliance: a kind, and an object of it.
const (
	lampKind = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lamps.power.example}
spec:
  group: power.example
  scope: Namespaced
  names: {kind: Lamp, listKind: LampList, plural: lamps, singular: lamp}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {lit: {type: boolean}}}}}}
`
	lamp = "{apiVersion: power.example/v1, kind: Lamp, metadata: {name: red}, spec: {lit: true}}\n"
)

// webPods is a Deployment with a pod on each node, and its Service.
const webPods = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      tolerations: [{operator: Exists}]
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: kubernetes.io/hostname
        whenUnsatisfiable: DoNotSchedule
        labelSelector: {matchLabels: {app: web}}
      containers:
      - name: web
        image: %s
        imagePullPolicy: IfNotPresent
        command: [/usr/bin/firstlight-node, probe, "--listen=:8080"]
        readinessProbe: {httpGet: {port: 8080, path: /who}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
`

func settingsMap(name string) string {
	return "{apiVersion: v1, kind: ConfigMap, metadata: {name: " + name + "}, data: {value: '1'}}\n"
}

// hookJob is a Job that runs once, at a moment of the installation.
func hookJob(name, event string) string {
	return fmt.Sprintf("---\n{apiVersion: batch/v1, kind: Job, metadata: {name: %s, annotations: {helm.sh/hook: %s}}, spec: %s}\n",
		name, event, fmt.Sprintf(quickJob, manifest.NodeImage))
}

// tenComponents are five add-ons of the stick and five of an operator's own, each with the others that it depends on. Each
// is looked at every twenty seconds.
func tenComponents() string {
	spec := func(name, more string, after ...string) string {
		var list []string
		for _, d := range after {
			list = append(list, "{name: "+d+"}")
		}
		return "---\napiVersion: kpa.akraino.org/v1alpha1\nkind: Component\nmetadata: {namespace: default, name: " + name +
			"}\nspec:\n  clusters: [edge]\n  interval: 20s\n  dependsOn: [" + strings.Join(list, ", ") + "]\n" + more
	}
	folder := func(name string) string { return "  source: {folder: " + name + "}\n" }
	inline := func(text string) string {
		return "  targetNamespace: power\n  source:\n    inline: |\n      " + strings.ReplaceAll(text, "\n", "\n      ") + "\n"
	}
	test := "  selfTest: {job: " + fmt.Sprintf(quickJob, manifest.NodeImage) + "}\n"
	return spec("nfd", folder("nfd")) +
		spec("network-policy", folder("network-policy")) +
		spec("tenants", folder("tenants"), "network-policy") +
		spec("multus", folder("multus")) +
		spec("service-chain", folder("service-chain"), "multus") +
		spec("settings", inline(settingsMap("settings")+hookJob("prepare", "pre-install"))) +
		spec("web", inline(fmt.Sprintf(webPods, manifest.NodeImage)), "settings") +
		spec("lamps", "  targetNamespace: power\n"+folder("lamps"), "nfd") +
		spec("checked", test+inline(settingsMap("checked")), "web", "lamps") +
		spec("last", inline(settingsMap("last")+hookJob("announce", "post-install")), "tenants", "service-chain", "checked")
}

const components = 10

// TestPowerIsCutWhileComponentsInstall: ten Components, in the order of what they depend on, are on their way to a cluster
// of two nodes. The appliance loses its power, and when it goes on with what was left, a node does. Afterwards all ten are
// Ready: each by one operation, each object once, no Job a second time, and nothing told twice.
func TestPowerIsCutWhileComponentsInstall(t *testing.T) {
	long(t)
	b := newWhole(t, "power", 2)
	for i, s := range b.Servers {
		b.host(i+1, s)
	}
	b.provisionPlugins("")
	for name, text := range map[string]string{"kind.yaml": lampKind, "lamp.yaml": lamp} {
		require.NoError(t, b.Appliance.WriteFile("/var/lib/firstlight/components/lamps/"+name, []byte(text), 0o644))
	}

	// The appliance, while they install.
	b.apply(tenComponents())
	before := b.untilComponents("some are Ready", func(all []v1alpha1.Component) bool {
		return countPhase(all, v1alpha1.PhaseReady) >= 2
	})
	done := countPhase(before, v1alpha1.PhaseReady)
	require.Less(t, done, components, "all are Ready: there is nothing to interrupt")
	require.NoError(t, b.CutAppliance())
	t.Logf("the appliance has no power; %d of %d Components are Ready", done, components)
	require.NoError(t, b.PowerOnAppliance(b.ctx))

	// A node, when the appliance has come further with them.
	between := b.untilComponents("more are Ready", func(all []v1alpha1.Component) bool {
		return countPhase(all, v1alpha1.PhaseReady) > done
	})
	done = countPhase(between, v1alpha1.PhaseReady)
	assert.Less(t, done, components, "all are Ready: the node is cut too late to interrupt anything")
	first, worker := b.Servers[0], b.Servers[1]
	b.cut(worker)
	t.Logf("worker-2 has no power; %d of %d Components are Ready", done, components)
	const condition = onNode + `get node worker-2 -o jsonpath='{.status.conditions[?(@.type=="Ready")].status}'`
	b.await(first, condition, "^Unknown$")
	t.Log("\n" + b.on(first, onNode+"get nodes"))
	b.power(worker)
	b.await(first, condition, "^True$")

	since := time.Now()
	b.untilComponents("all are Ready", func(all []v1alpha1.Component) bool {
		return len(all) == components && countPhase(all, v1alpha1.PhaseReady) == components &&
			!slices.ContainsFunc(all, func(c v1alpha1.Component) bool {
				checked := c.Status.Clusters[0].Checked
				return checked == nil || checked.Time.Before(since)
			})
	})
	t.Log("\n" + b.appliance("kubectl", "get", "components", "-A", "-o", "wide"))
	t.Log("\n" + b.kubectl("get", "pods", "-A", "-o", "wide"))
	b.checkInventories()
	b.checkJobs()
	b.checkEvents()
}

// inventoried is an object by what tells it from others, whatever the version of its kind.
type inventoried struct{ Kind, Namespace, Name string }

// checkInventories compares what Components say that they have with what is on the cluster: each object is one Component's
// and is there once, and nothing is there that is in no inventory.
func (b *bench) checkInventories() {
	b.t.Helper()
	var records struct {
		Items []struct {
			Metadata struct{ Annotations map[string]string }
			Data     struct{ Objects, Release string }
		}
	}
	out := b.kubectl("-n", "kpa-system", "get", "configmaps", "-o", "json")
	require.NoError(b.t, json.Unmarshal([]byte(out), &records))

	has := map[inventoried]string{}   // by Component
	mayHave := map[inventoried]bool{} // objects of hooks: some are deleted when they have run
	var installed []string            // Components
	for _, r := range records.Items {
		name := r.Metadata.Annotations["kpa.akraino.org/component"]
		if name == "" {
			continue // the cluster's own
		}
		installed = append(installed, name)
		var objects []inventoried
		require.NoError(b.t, json.Unmarshal([]byte(r.Data.Objects), &objects))
		for _, o := range objects {
			assert.Empty(b.t, has[o], "%v is in two inventories, or twice in that of %s", o, name)
			has[o] = name
		}
		var release struct {
			plan.Release
			Hooks []inventoried
		}
		require.NoError(b.t, json.Unmarshal([]byte(r.Data.Release), &release))
		for _, o := range release.Hooks {
			mayHave[o] = true
		}
		assert.Equal(b.t, 1, release.Serial, "%s was installed by more than one operation", name)
		assert.Nil(b.t, release.Operation, "the installation of %s is not complete", name)
		assert.Len(b.t, release.Installed, 1, name)
		b.t.Logf("%-24s %2d objects, %d of hooks, operation %d", name, len(objects), len(release.Hooks), release.Serial)
	}
	assert.Len(b.t, installed, components)
	assert.Len(b.t, slices.Compact(slices.Sorted(slices.Values(installed))), components, "a Component has two inventories")

	var there struct {
		Items []struct {
			Kind     string
			Metadata struct {
				Namespace, Name string
				Labels          map[string]string
			}
		}
	}
	require.NoError(b.t, json.Unmarshal([]byte(b.on(b.Servers[0], labelled+"-o json")), &there))
	seen := map[inventoried]bool{}
	for _, o := range there.Items {
		key := inventoried{o.Kind, o.Metadata.Namespace, o.Metadata.Name}
		assert.False(b.t, seen[key], "%v is there twice", key)
		seen[key] = true
		owner := o.Metadata.Labels["kpa.akraino.org/namespace"] + "/" + o.Metadata.Labels["kpa.akraino.org/name"]
		if !mayHave[key] {
			assert.Equal(b.t, owner, has[key], "%v is not in the inventory of whom it belongs to", key)
		}
	}
	for o, name := range has {
		assert.True(b.t, seen[o], "%v of %s is not there", o, name)
	}
}

// checkJobs: the cluster's controller of Jobs made one pod for each of the three, and each ended well.
func (b *bench) checkJobs() {
	b.t.Helper()
	var events struct {
		Items []struct{ InvolvedObject struct{ Name string } }
	}
	const made = "reason=SuccessfulCreate,involvedObject.kind=Job"
	out := b.kubectl("-n", "power", "get", "events", "--field-selector", made, "-o", "json")
	require.NoError(b.t, json.Unmarshal([]byte(out), &events))
	pods := map[string]int{}
	for _, e := range events.Items {
		name := e.InvolvedObject.Name
		if strings.HasPrefix(name, "checked-test-") {
			name = "checked-test"
		}
		pods[name]++
	}
	b.t.Logf("pods of Jobs: %v", pods)
	assert.Equal(b.t, map[string]int{"prepare": 1, "announce": 1, "checked-test": 1}, pods)

	const jobs = `jsonpath={range .items[*]}{.metadata.name} {.status.succeeded} {.status.failed}{"\n"}{end}`
	assert.Equal(b.t, "announce 1 \nprepare 1 \n", b.kubectl("-n", "power", "get", "jobs", "-o", jobs),
		"that of a test goes when it has passed")
}

// checkEvents: that a Component is Ready is told once, and once more only after it was told that it is not. An Event that
// was never written, since the power went in between, is not missed: the status has it all.
func (b *bench) checkEvents() {
	b.t.Helper()
	b.t.Log("\n" + b.appliance("kubectl", "-n", "default", "get", "events", "--field-selector", "involvedObject.kind=Component",
		"--sort-by=.metadata.creationTimestamp", "-o", "custom-columns=AT:.metadata.creationTimestamp,COMPONENT:.involvedObject.name,"+
			"PHASE:.action,REASON:.reason,TOLD-BY:.reportingInstance,SENTENCE:.message"))
	var events struct {
		Items []struct {
			InvolvedObject struct{ Kind, Name string }
			Action         string // the phase
		}
	}
	out := b.appliance("kubectl", "-n", "default", "get", "events", "-o", "json")
	require.NoError(b.t, json.Unmarshal([]byte(out), &events))
	ready, sick := map[string]int{}, map[string]int{}
	for _, e := range events.Items {
		switch {
		case e.InvolvedObject.Kind != "Component":
		case e.Action == v1alpha1.PhaseReady:
			ready[e.InvolvedObject.Name]++
		case e.Action == v1alpha1.PhaseDegraded, e.Action == v1alpha1.PhaseFailed:
			sick[e.InvolvedObject.Name]++
		}
	}
	assert.NotEmpty(b.t, ready)
	for _, name := range slices.Sorted(maps.Keys(ready)) {
		b.t.Logf("%-16s Ready told %d times, Degraded or Failed %d times", name, ready[name], sick[name])
		assert.LessOrEqual(b.t, ready[name], 1+sick[name], "%s was told to be Ready twice", name)
	}
}
