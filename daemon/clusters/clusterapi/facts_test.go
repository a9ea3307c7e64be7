package clusterapi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stepsOfCluster are the first steps of Metal3's workflow: the parts of the cluster find each other.
func stepsOfCluster(cluster, infra, controlPlane string) []fact {
	return []fact{
		{"1", "metal3clusters", infra, `.metadata.ownerReferences[?(@.kind=="Cluster")].name`, cluster, "2"},
		{"1", "metal3clusters", infra, `.metadata.labels.cluster\.x-k8s\.io/cluster-name`, cluster, "2"},
		{"1", "kubeadmcontrolplanes", controlPlane, `.metadata.ownerReferences[?(@.kind=="Cluster")].name`, cluster, "5"},
		{"2", "metal3clusters", infra, `.metadata.finalizers`, `.*"metal3cluster\.infrastructure\.cluster\.x-k8s\.io".*`, "3"},
		{"2", "metal3clusters", infra, `.status.conditions[?(@.type=="BaremetalInfrastructureReady")].status`, "True", "3"},
		{"2", "metal3clusters", infra, `.status.initialization.provisioned`, "true", "3"},
		{"3", "clusters", cluster, `.spec.controlPlaneEndpoint.host`, ".+", "5"},
		{"3", "clusters", cluster, `.status.initialization.infrastructureProvisioned`, "true", "5"},
	}
}

// stepsOfMachine are those from a Machine to a Node, with its host, the host's UID, and what its data is made from and is.
func stepsOfMachine(machine, host, uid, template, data string) []fact {
	id := fmt.Sprintf("metal3://metal3/%s/%s", host, machine)
	return []fact{
		{"4", "machines", machine, `.metadata.name`, machine, "6"},
		{"5", "metal3machines", machine, `.metadata.ownerReferences[?(@.kind=="Machine")].name`, machine, "8"},
		{"5", "kubeadmconfigs", machine, `.metadata.name`, machine, "6"},
		{"6", "secrets", machine, `.data.value`, "IyMgdGVtcGxhdGU6IGppbmphC.*", "7"},
		{"6", "kubeadmconfigs", machine, `.status.dataSecretName`, machine, "7"},
		{"7", "machines", machine, `.spec.bootstrap.dataSecretName`, machine, "8"},
		{"8", "metal3machines", machine, annotationHost, "metal3/" + host, "8 claim"},
		{"8 claim", "baremetalhosts", host, `.spec.consumerRef.name`, machine, "9"},
		{"8 claim", "baremetalhosts", host, `.metadata.labels.cluster\.x-k8s\.io/cluster-name`, "edge", "9"},
		{"8", "metal3machines", machine, `.status.conditions[?(@.type=="AssociateBareMetalHost")].status`, "True", ""},
		{"9", "metal3dataclaims", machine, `.spec.template.name`, template, "10"},
		{"9", "metal3dataclaims", machine, `.metadata.ownerReferences[?(@.kind=="Metal3Machine")].name`, machine, "10"},
		{"10", "metal3datas", data, `.spec.claim.name`, machine, "11"},
		{"10", "ipaddresses", data + "-edge", `.spec.address`, `10\.9\.0\.1\d`, "11"},
		{"10", "secrets", machine + "-metadata", `.type`, "infrastructure.cluster.x-k8s.io/secret", "11"},
		{"10", "metal3datas", data, `.status.ready`, "true", "11"},
		{"10", "metal3datatemplates", template, `.status.indexes[?(@.name=="` + machine + `")].index`, `\d+`, ""},
		{"11", "baremetalhosts", host, `.spec.image.url`, "http.+", "12"},
		{"11", "baremetalhosts", host, `.spec.userData.name`, machine, "12"},
		{"11", "baremetalhosts", host, `.spec.metaData.name`, machine + "-metadata", "12"},
		{"11", "baremetalhosts", host, `.spec.online`, "true", "12"},
		{"12", "baremetalhosts", host, `.status.provisioning.state`, "provisioning", "13"},
		{"12", "baremetalhosts", host, `.status.provisioning.state`, "provisioned", "13"},
		{"13", "nodes", machine, `.metadata.labels.metal3\.io/uuid`, uid, "13 ID"},
		{"13 ID", "metal3machines", machine, `.spec.providerID`, id, "14"},
		{"13 ID", "nodes", machine, `.spec.providerID`, id, "14"},
		{"13 ID", "metal3machines", machine, `.status.initialization.provisioned`, "true", "14"},
		{"14", "machines", machine, `.spec.providerID`, id, ""},
		{"14", "machines", machine, `.status.initialization.infrastructureProvisioned`, "true", ""},
		{"14", "machines", machine, `.status.nodeRef.name`, machine, ""},
		{"14", "machines", machine, `.status.phase`, "Running", ""},
	}
}

// stepsOfGrowth are what comes once the first control plane is there.
func stepsOfGrowth(cluster, first, worker string) []fact {
	return []fact{
		{"13", "nodes", first, `.metadata.name`, first, "15"},
		{"15", "clusters", cluster, `.status.initialization.controlPlaneInitialized`, "true", "15 worker"},
		{"15 worker", "kubeadmconfigs", worker, `.status.dataSecretName`, worker, ""},
	}
}

// stepsOfDeletion are those of a cluster with one control plane machine and one worker.
func (r *rack) stepsOfDeletion(cluster, first, worker string) []fact {
	host, data, infra, template := r.hostOf(first), r.dataOf(first), r.infra(), r.template
	return []fact{
		{"d1", "machines", worker, `.metadata.deletionTimestamp`, ".+", "d1 gone"},
		{"d1 then", "machines", first, `.metadata.deletionTimestamp`, ".+", "d3"},
		{"d2", "metal3dataclaims", first, gone, "", "d2 then"},
		{"d2 then", "metal3datas", data, gone, "", ""},
		{"d2", "ipaddresses", data + "-edge", gone, "", ""},
		{"d2 then", "metal3datatemplates", template, `.status.indexes`, "", ""},
		{"d3", "baremetalhosts", host, `.spec.image.url`, "", "d3 then"},
		{"d3", "baremetalhosts", host, `.spec.userData.name`, "", "d3 then"},
		{"d3", "baremetalhosts", host, `.spec.online`, "false", "d3 then"},
		{"d3 then", "baremetalhosts", host, `.status.provisioning.state`, "deprovisioning", "d4"},
		{"d4", "metal3machines", first, gone, "", "d6"},
		{"d4", "machines", first, gone, "", "d6"},
		{"d1 gone", "machines", worker, gone, "", "d1 then"},
		{"d5", "secrets", first, gone, "", ""},
		{"d5", "secrets", first + "-metadata", gone, "", ""},
		{"d6", "metal3clusters", infra, gone, "", "d6 last"},
		{"d6 last", "clusters", cluster, gone, "", ""},
	}
}

// infra is the Metal3Cluster.
func (r *rack) infra() string { return r.in("clusters", "edge", ".spec.infrastructureRef.name") }

// hostOf is the host of a machine.
func (r *rack) hostOf(machine string) string {
	for _, e := range slices.Backward(r.history.ordered()) {
		if e.kind == "metal3machines" && e.name == machine {
			return strings.TrimPrefix(e.field(annotationHost), "metal3/")
		}
	}
	return ""
}

// dataOf is the Metal3Data of a machine.
func (r *rack) dataOf(machine string) string {
	for _, e := range r.history.ordered() {
		if e.kind == "metal3datas" && e.field(".spec.claim.name") == machine {
			return e.name
		}
	}
	return ""
}

// machines are the names of all Machines that were ever there, in the order in which they came.
func (h *history) machines() []string {
	var names []string
	for _, e := range h.ordered() {
		if e.kind == "machines" && !slices.Contains(names, e.name) {
			names = append(names, e.name)
		}
	}
	return names
}

// looked are the fields that invariants are of, by kind.
var looked = map[string][]string{
	"nodes":          {".spec.providerID"},
	"clusters":       {".status.initialization.controlPlaneInitialized"},
	"machines":       {".spec.clusterName", ".metadata.deletionTimestamp", ".status.nodeRef.name"},
	"kubeadmconfigs": {".status.dataSecretName"},
	"metal3machines": {annotationHost},
	"metal3datas":    {".metadata.name", ".spec.claim.name"}, // the name is that of the template, with the index
	"ipaddresses":    {".spec.address"},
	"baremetalhosts": {".spec.consumerRef.name", ".spec.image.url", ".status.provisioning.state"},
}

const annotationHost = `.metadata.annotations.metal3\.io/BareMetalHost`

// state is what the API server had at one revision: fields by kind, name and path.
type state map[string]map[string]map[string]string

// assertInvariants checks what must hold at every revision.
func (h *history) assertInvariants() {
	all := h.ordered()
	assert.NotEmpty(h.t, all)
	now := state{}
	for kind := range looked {
		now[kind] = map[string]map[string]string{}
	}
	seen := map[string]bool{}
	for _, e := range all {
		if looked[e.kind] == nil {
			continue
		}
		delete(now[e.kind], e.name)
		if !e.gone {
			fields := map[string]string{}
			for _, path := range looked[e.kind] {
				fields[path] = e.field(path)
			}
			now[e.kind][e.name] = fields
		}
		for _, what := range now.broken() {
			if !seen[what] {
				seen[what] = true
				h.t.Errorf("revision %d, %s %s: %s", e.revision, e.kind, e.name, what)
			}
		}
	}
}

// broken is what does not hold.
func (s state) broken() []string {
	var out []string
	twice := func(what, kind, path string) {
		by := map[string]string{}
		for name, fields := range s[kind] {
			value := fields[path]
			if other := by[value]; other != "" && value != "" {
				out = append(out, fmt.Sprintf("%s %s is that of %s and of %s", what, value, min(other, name), max(other, name)))
			}
			by[value] = name
		}
	}
	twice("host", "metal3machines", annotationHost)
	twice("machine", "baremetalhosts", ".spec.consumerRef.name")
	twice("index", "metal3datas", ".metadata.name")
	twice("claim", "metal3datas", ".spec.claim.name")
	twice("address", "ipaddresses", ".spec.address")
	twice("ID", "nodes", ".spec.providerID")

	for name, fields := range s["baremetalhosts"] {
		consumer, state := fields[".spec.consumerRef.name"], fields[".status.provisioning.state"]
		_, known := s["metal3machines"][consumer]
		switch {
		case consumer == "" && fields[".spec.image.url"] != "":
			out = append(out, "host "+name+" has an image and no machine")
		case consumer == "" && state != "" && state != "available":
			out = append(out, "host "+name+" is "+state+" and has no machine")
		case consumer != "" && consumer != somebody && !known:
			out = append(out, "host "+name+" is claimed by "+consumer+", which is not there")
		}
	}

	return append(out, s.brokenGrowth()...)
}

// brokenGrowth is what does not hold of the order in which machines come.
func (s state) brokenGrowth() (out []string) {
	coming := map[string]int{} // by cluster
	for name, fields := range s["machines"] {
		of := fields[".spec.clusterName"]
		cluster, exists := s["clusters"][of]
		initialized := cluster[".status.initialization.controlPlaneInitialized"] == "true"
		isWorker := strings.Contains(name, "-md-")
		if !isWorker && fields[".metadata.deletionTimestamp"] == "" && fields[".status.nodeRef.name"] == "" {
			coming[of]++
		}
		if isWorker && exists && !initialized && s["kubeadmconfigs"][name][".status.dataSecretName"] != "" {
			out = append(out, "worker "+name+" has its data before there is a control plane")
		}
	}
	for of, n := range coming {
		if n > 1 {
			out = append(out, fmt.Sprintf("%d machines of the control plane of %s come at once", n, of))
		}
	}
	return out
}

// testSteps checks the fifteen steps of every machine, and prints those of the first two.
func (r *rack) testSteps() {
	var first, worker string
	for _, name := range r.history.machines() {
		host, data := r.hostOf(name), r.dataOf(name)
		require.NotEmpty(r.t, host, name)
		facts := stepsOfMachine(name, host, r.in("baremetalhosts", host, ".metadata.uid"), r.template, data)
		isWorker := strings.Contains(name, "-md-")
		switch {
		case isWorker && worker == "":
			worker = name
		case !isWorker && first == "":
			first = name
			facts = append(stepsOfCluster("edge", r.infra(), r.in("clusters", "edge", ".spec.controlPlaneRef.name")), facts...)
		}
		found := r.history.assertOrder(facts, 0, name)
		if name == first || name == worker {
			r.history.print("machine "+name, found)
		}
	}
	r.history.print("the cluster grows", r.history.assertOrder(stepsOfGrowth("edge", first, worker), 0, ""))
}
