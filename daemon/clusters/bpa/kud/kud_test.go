package kud

import (
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/daemon/clusters/contract"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func three() []Node {
	return []Node{
		{Label: "master-1", Master: true, Host: "metal3/node-1", MAC: "52:54:00:00:00:01", Address: addr("172.22.0.11")},
		{Label: "both", Master: true, Worker: true, Host: "metal3/node-2", Address: addr("172.22.0.12")},
		{Label: "worker-1", Worker: true, Host: "metal3/node-3", Address: addr("2001:db8::13")},
	}
}

func TestInventoryGolden(t *testing.T) {
	goldentest.Check(t, "testdata/bare.ini", Inventory(three()))
	goldentest.Check(t, "testdata/virtlet.ini", VirtualInventory(three()))
}

func TestInventoryOfTheContract(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/kud.md")
	require.NoError(t, err)
	members := three()[:2]
	members[1] = Node{Label: "worker-1", Worker: true, Address: addr("172.22.0.12")}
	assert.Contains(t, string(text), "```\n"+string(Inventory(members))+"```\n", "docs/kud.md shows another inventory")
}

// TestICNReadsTheInventory compares with ICN's sections as sets.
func TestICNReadsTheInventory(t *testing.T) {
	sections := map[string][]string{}
	name := ""
	for line := range strings.Lines(string(Inventory(three()))) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "[") {
			name = line
		} else if line != "" {
			sections[name] = append(sections[name], line)
		}
	}
	masters, workers := []string{"master-1", "both"}, []string{"both", "worker-1"}
	for group, want := range map[string][]string{
		"[all]":         {"master-1  ansible_ssh_host=172.22.0.11 ansible_ssh_port=22", "both  ansible_ssh_host=172.22.0.12 ansible_ssh_port=22", "worker-1  ansible_ssh_host=2001:db8::13 ansible_ssh_port=22"},
		"[kube-master]": masters, "[kube-node]": workers, "[etcd]": masters, "[ovn-central]": masters, "[ovn-controller]": workers, "[virtlet]": workers,
		"[k8s-cluster:children]": {"kube-node", "kube-master"},
	} {
		assert.ElementsMatch(t, want, sections[group], group)
	}
}

func TestJobGolden(t *testing.T) {
	w := Want{Members: three(), Plugins: []string{"emco", "nfd"}, PodSubnet: "10.244.64.0/18", ServiceSubnet: "10.244.0.0/18", Image: "example/installer:1"}
	for _, r := range []Run{
		{Want: w, Action: contract.Install, Generation: 1, Attempt: 1, Provisioning: "default/edge", UID: "u-1", Environment: DefaultEnvironment()},
		{Want: Want{Members: three(), Image: assets.InstallerImage}, Action: contract.Add, Generation: 2, Attempt: 1},
		{Want: w, Action: contract.Remove, Nodes: []string{"worker-1"}, Generation: 4, Attempt: 2},
	} {
		job, err := r.Job("bpa", "edge")
		require.NoError(t, err)
		text, err := yaml.Marshal(job)
		require.NoError(t, err)
		goldentest.Check(t, "testdata/job-"+r.Action+".yaml", text)
		back, ours := RunOf(job)
		assert.True(t, ours)
		assert.Equal(t, r, back)
	}
	_, ours := RunOf(&batchv1.Job{})
	assert.False(t, ours)
}

// The rights of the installer are not those of whoever edits a ConfigMap.
func TestTheEnvironmentIsFiltered(t *testing.T) {
	passed, rest := FilterEnvironment(DefaultEnvironment())
	assert.Equal(t, DefaultEnvironment(), passed)
	assert.Empty(t, rest)
	passed, rest = FilterEnvironment(map[string]string{
		"PATH":                      "/opt/kud/multi-cluster/x:/bin",
		"LD_PRELOAD":                "/opt/kud/multi-cluster/x/evil.so",
		"BASH_ENV":                  "/x",
		"ENV":                       "/x",
		"KUD_ACTION":                "remove",
		"KUD_NODES":                 "master-1",
		"kud_debug":                 "true",
		"CONTAINER_RUNTIME":         "containerd",
		"KUD_DEBUG":                 "$(reboot)",
		"KUD_ENABLE_TESTS":          "false; reboot",
		"ENABLE_KATA_WEBHOOK":       "true\nX=1",
		"KATA_WEBHOOK_RUNTIMECLASS": "kata-qemu",
	})
	assert.Equal(t, map[string]string{"CONTAINER_RUNTIME": "containerd", "KATA_WEBHOOK_RUNTIMECLASS": "kata-qemu"}, passed)
	assert.Equal(t, []string{"BASH_ENV", "ENABLE_KATA_WEBHOOK", "ENV", "KUD_ACTION", "KUD_DEBUG", "KUD_ENABLE_TESTS", "KUD_NODES", "LD_PRELOAD", "PATH", "kud_debug"}, rest)
}

// TestCommand is ICN's command line to the letter.
func TestCommand(t *testing.T) {
	const head = "cp -r /.ssh /root/; chmod -R 600 /root/.ssh; ./installer --cluster c"
	for want, r := range map[string]Run{
		head:                           {Action: contract.Install},
		head + " --network 10.0.0.0/8": {Action: contract.Install, Want: Want{PodSubnet: "10.0.0.0/8"}},
		head + " --plugins a b":        {Action: contract.Add, Nodes: []string{"w"}, Want: Want{Plugins: []string{"a", "b"}}},
		head + " --network 10.0.0.0/8 --plugins emco":  {Action: contract.Install, Want: Want{PodSubnet: "10.0.0.0/8", Plugins: []string{"emco"}}},
		head + ` --rotate-authorities "$KUD_ROTATION"`: {Action: contract.Rotate, Want: Want{Rotation: "november; reboot"}},
		head + " --remove w1 w2":                       {Action: contract.Remove, Nodes: []string{"w1", "w2"}, Want: Want{PodSubnet: "10.0.0.0/8", Plugins: []string{"emco"}}},
	} {
		assert.Equal(t, want, r.Command("c"))
	}
}

func edit(m []Node, i int, f func(*Node)) []Node {
	m = append([]Node(nil), m...)
	f(&m[i])
	return m
}

func withRotation(w Want) Want { w.Rotation = "november"; return w }

func TestNext(t *testing.T) {
	record := InstalledCluster{Provisioning: "default/c", Job: "j", Members: three(), Plugins: []string{"a"}, PodSubnet: "10.0.0.0/8"}
	want := func(members []Node) Want {
		return Want{Members: members, Plugins: []string{"a"}, PodSubnet: "10.0.0.0/8"}
	}
	fourth := Node{Label: "worker-2", Worker: true, Host: "metal3/node-4", Address: addr("172.22.0.14")}
	for _, c := range []struct {
		name   string
		have   *InstalledCluster
		want   Want
		action string
		nodes  []string
		reason string
	}{
		{"never installed", nil, want(three()), contract.Install, nil, ""},
		{"as asked", &record, want(three()), "", nil, ""},
		{"another order is the same cluster", &record, want([]Node{three()[2], three()[0], three()[1]}), "", nil, ""},
		{"a worker more", &record, want(append(three(), fourth)), contract.Add, []string{"worker-2"}, ""},
		{"a rotation is due", &record, withRotation(want(three())), contract.Rotate, nil, ""},
		{"a rotation is due, and a worker less", &record, withRotation(want(three()[:2])), contract.Remove, []string{"worker-1"}, ""},
		{"a rotation is due of what is no cluster yet", nil, withRotation(want(three())), contract.Install, nil, ""},
		{"a worker less", &record, want(three()[:2]), contract.Remove, []string{"worker-1"}, ""},
		{"a worker on another host goes first", &record, want(edit(three(), 2, func(m *Node) { m.Host = "metal3/node-4" })), contract.Remove, []string{"worker-1"}, ""},
		{"one more and one less: the one less goes first", &record, want(append(three()[:2:2], fourth)), contract.Remove, []string{"worker-1"}, ""},
		{"another address", &record, want(edit(three(), 0, func(m *Node) { m.Address = addr("172.22.0.99") })), contract.Install, nil, ""},
		{"a master works as well now", &record, want(edit(three(), 0, func(m *Node) { m.Worker = true })), contract.Install, nil, ""},
		{"more plugins", &record, Want{Members: three(), Plugins: []string{"a", "b"}, PodSubnet: "10.0.0.0/8"}, contract.Install, nil, ""},
		{"a master more", &record, want(append(three(), Node{Label: "m3", Master: true, Host: "x"})), "", nil, ControlPlaneFixed},
		{"a master less", &record, want(three()[1:]), "", nil, ControlPlaneFixed},
		{"a master on another host", &record, want(edit(three(), 0, func(m *Node) { m.Host = "x" })), "", nil, ControlPlaneFixed},
		{"a worker becomes a master", &record, want(edit(three(), 2, func(m *Node) { m.Master = true })), "", nil, ControlPlaneFixed},
		{"another pod network", &record, Want{Members: three(), Plugins: []string{"a"}, PodSubnet: "10.1.0.0/16"}, "", nil, SubnetFixed},
		{"another service network", &record, Want{Members: three(), Plugins: []string{"a"}, PodSubnet: "10.0.0.0/8", ServiceSubnet: "10.1.0.0/16"}, "", nil, SubnetFixed},
	} {
		t.Run(c.name, func(t *testing.T) {
			run, err := Next(c.have, c.want)
			if c.reason != "" {
				var f *ImmutableError
				require.ErrorAs(t, err, &f)
				assert.Equal(t, c.reason, f.Reason)
				return
			}
			require.NoError(t, err)
			if c.action == "" {
				assert.Nil(t, run)
				return
			}
			require.NotNil(t, run)
			assert.Equal(t, c.action, run.Action)
			assert.Equal(t, c.nodes, run.Nodes)
		})
	}
}

// TestRunsConverge: from any cluster to any other with the same control plane, each run
// ending well, the next one in the end is none and the record is what was asked.
func TestRunsConverge(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	random := func() Want {
		w := Want{Members: three()[:1]}
		for i := range 5 {
			if r.IntN(2) == 0 {
				w.Members = append(w.Members, Node{Label: string(rune('a' + i)), Worker: true, Host: string(rune('h' + r.IntN(8))), Address: addr("10.0.0.1")})
			}
		}
		if r.IntN(2) == 0 {
			w.Plugins = []string{"p"}
		}
		return w
	}
	for range 2000 {
		first, then := random(), random()
		run, err := Next(nil, first)
		require.NoError(t, err)
		record := run.CompletedRecord("default/c", "0", nil)
		steps := 0
		for ; ; steps++ {
			require.Less(t, steps, 4, "%+v to %+v does not end", first, then)
			run, err = Next(&record, then)
			require.NoError(t, err)
			if run == nil {
				break
			}
			record = run.CompletedRecord("default/c", "0", &record)
		}
		assert.ElementsMatch(t, then.Members, record.Members)
		assert.Equal(t, then.Plugins, record.Plugins)
	}
}

func TestRecordOnDisk(t *testing.T) {
	record := InstalledCluster{Provisioning: "default/c", Job: "j", Members: three(), Plugins: []string{"a"}, PodSubnet: "10.0.0.0/8"}
	back, err := ReadInstalled(record.Encode())
	require.NoError(t, err)
	assert.Equal(t, record, *back)
	for _, text := range []string{"", "{}", string(record.Encode()[:40]), `{"Provisioning":"default/c"}`} {
		_, err := ReadInstalled([]byte(text))
		assert.ErrorContains(t, err, "read record of cluster", text)
	}
}

func TestOutcome(t *testing.T) {
	ended := func(kind batchv1.JobConditionType) batchv1.JobStatus {
		return batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue, Message: "said the Job", LastTransitionTime: metav1.Unix(7, 0)}}}
	}
	pod := func(s corev1.ContainerState) []corev1.Pod {
		return []corev1.Pod{{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: s}}}}}
	}
	exit := func(code int32, text string) []corev1.Pod {
		return pod(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: text}})
	}
	at := time.Unix(7, 0)
	for _, c := range []struct {
		name   string
		status batchv1.JobStatus
		pods   []corev1.Pod
		want   Outcome
	}{
		{"new", batchv1.JobStatus{}, nil, Outcome{}},
		{"it is being made", batchv1.JobStatus{}, pod(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}), Outcome{}},
		{"its image is not there", batchv1.JobStatus{}, pod(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"}}), Outcome{Message: "ErrImagePull no such image"}},
		{"running", batchv1.JobStatus{}, pod(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}), Outcome{Started: true}},
		{"a condition that is not true", batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionFalse}}}, nil, Outcome{}},
		{"done", ended(batchv1.JobComplete), exit(0, ""), Outcome{Ended: true, Started: true, Succeeded: true, At: at, Message: "said the Job"}},
		{"failed", ended(batchv1.JobFailed), exit(1, "a\nb\n\nc\nfatal: no route\n"), Outcome{Ended: true, Started: true, At: at, Message: "exit code 1: b / c / fatal: no route"}},
		{"refused", ended(batchv1.JobFailed), exit(2, "usage\n"), Outcome{Ended: true, Started: true, Refused: true, At: at, Message: "exit code 2: usage"}},
		{"failed, its pod is gone", ended(batchv1.JobFailed), nil, Outcome{Ended: true, Started: true, At: at, Message: "said the Job"}},
	} {
		assert.Equal(t, c.want, OutcomeOf(&batchv1.Job{Status: c.status}, c.pods), c.name)
	}
}

func TestPause(t *testing.T) {
	var got []time.Duration
	for _, n := range []int32{0, 1, 2, 3, 7, 100} {
		got = append(got, RetryDelay(n))
	}
	assert.Equal(t, []time.Duration{10 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, 10 * time.Minute, 10 * time.Minute}, got)
}

func FuzzRecord(f *testing.F) {
	f.Add(InstalledCluster{Provisioning: "a/b", Members: three()}.Encode())
	f.Fuzz(func(t *testing.T, text []byte) {
		if r, err := ReadInstalled(text); err == nil {
			if _, err := Next(r, Want{Members: r.Members, Plugins: r.Plugins, PodSubnet: r.PodSubnet, ServiceSubnet: r.ServiceSubnet}); err != nil {
				t.Error(err)
			}
		}
	})
}
