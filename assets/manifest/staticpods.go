package manifest

import "fmt"

// StaticPods are the parts of a control plane that kubeadm writes manifests for.
func StaticPods() []string {
	return []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
}

// shares are what parts get of a processor that is not enough for all: first etcd, because the API server
// waits for it, then the API server, because everything else does. kubeadm gives etcd a tenth and the
// controller manager two.
var shares = map[string]string{
	"etcd":                    "350m",
	"kube-apiserver":          "300m",
	"kube-controller-manager": "25m",
	"kube-scheduler":          "25m",
}

// On a node with so many processors or fewer, services have this weight against the pods, which want the processors at the
// same time (CPUWeight, systemd.resource-control(5)).
const (
	SmallNode     = 2
	ServiceWeight = "20"
)

// PatientKubelet is what is changed in a kubelet's configuration on a node of a cluster: a pod that ended is started again
// within ten seconds, and a runtime that is slow is not lost.
const PatientKubelet = `crashLoopBackOff: {maxContainerRestartPeriod: 10s}
runtimeRequestTimeout: 15m0s
evictionHard: {memory.available: 100Mi, nodefs.available: 5%, imagefs.available: 5%, nodefs.inodesFree: 5%}
`

// StaticPodPatch is what is changed in kubeadm's manifest of a part: the name and the text of a file for
// the directory of patches of kubeadm's configuration (kubeadm.k8s.io/v1beta4, Patches).
//
// kubeadm asks most parts every second whether they are ready; every question is a process's wake-up, a
// TLS handshake and a look at the store behind. Once in five seconds is little, and not so seldom that
// the first answer, which comes a period after the start, is waited for.
//
// It ends a part that does not answer after 80 seconds, and one that takes more than four minutes to
// start. On a machine that is only overloaded that makes things worse: what was ended starts again from
// nothing, under the same load. A part has half an hour to start, and half an hour to answer.
//
// threads is on how many its Go code runs at a time (GOMAXPROCS of package runtime); 0 leaves that to Go.
func StaticPodPatch(part string, threads int) (name string, text []byte) {
	readiness := ""
	if part != "kube-controller-manager" { // has none
		readiness = "      readinessProbe: {periodSeconds: 5}\n"
	}

	security := ""
	if part == "etcd" { // which puts its writes before those of others
		security = "      securityContext: {capabilities: {add: [SYS_NICE]}}\n"
	}

	env := ""
	for _, variable := range environment(part, threads) {
		env += fmt.Sprintf("        - {name: %s, value: %q}\n", variable.name, variable.value)
	}

	if env != "" {
		env = "      env:\n" + env
	}

	resources := ""
	if cpu := shares[part]; cpu != "" {
		resources = "      resources: {requests: {cpu: " + cpu + "}}\n"
	}

	return part + "+strategic.yaml", fmt.Appendf(nil, `spec:
  containers:
    - name: %s
      startupProbe: {periodSeconds: 10, timeoutSeconds: 30, failureThreshold: 180}
      livenessProbe: {periodSeconds: 60, timeoutSeconds: 30, failureThreshold: 30}
%s%s%s%s`, part, env, readiness, resources, security)
}

type variable struct{ name, value string }

// environment is what a part's Go runtime is told. The API server makes most of its garbage while it starts; to
// collect it half as often takes a tenth less of the processor, and some 16 MiB. The controllers wait nearly all
// the time and have much less to do than one processor can: with more, the runtime wakes a second thread for every
// event, which costs more than the event.
func environment(part string, threads int) []variable {
	var all []variable
	switch part {
	case "kube-apiserver":
		all = append(all, variable{"GOGC", "200"})
	case "kube-controller-manager", "kube-scheduler":
		threads = 1
	}

	if threads > 0 {
		all = append(all, variable{"GOMAXPROCS", fmt.Sprint(threads)})
	}

	return all
}
