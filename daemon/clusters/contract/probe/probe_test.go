package probe

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/assets/manifest"
	"firstlight.dev/firstlight/daemon/clusters/contract"
)

func pod(node, name, ip string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.NodeName, p.Status.PodIP = node, ip
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return p
}

func TestQuestions(t *testing.T) {
	all := questionsFor([]corev1.Pod{pod("a", "probe-a", "10.0.0.2"), pod("b", "probe-b", "fd00::2")}, "10.1.0.9")
	require.Len(t, all, 8)
	assert.Equal(t, question{From: "a", What: "pod b", Want: "probe-b", pod: "probe-a", verb: "ask", key: "url", value: "http://[fd00::2]:8080/who"}, all[0])
	assert.Equal(t, question{From: "a", What: "name", Want: "10.1.0.9", pod: "probe-a", verb: "resolve", key: "name", value: serviceName}, all[2])
	assert.Len(t, questionsFor([]corev1.Pod{pod("a", "probe-a", "10.0.0.2")}, "10.1.0.9"), 3, "a cluster of one has a Service and names too")

	var many []corev1.Pod
	for i := range 40 {
		many = append(many, pod(fmt.Sprint("n", i), fmt.Sprint("p", i), "10.0.0.2"))
	}
	all = questionsFor(many, "10.1.0.9")
	assert.Len(t, all, 40*(neighbours+3))
	for _, q := range all {
		assert.NotEqual(t, q.pod, q.Want, "a pod asks itself")
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		q         question
		answer    string
		err       error
		got, says string
	}{
		{question{What: "pod b", Want: "probe-b"}, `{"node":"b","pod":"probe-b"}`, nil, "probe-b", ""},
		{question{What: "pod b", Want: "probe-b"}, `{"node":"c","pod":"probe-c"}`, nil, "probe-c", "c answered in its place"},
		{question{What: "service"}, `{"node":"c","pod":"probe-c"}`, nil, "probe-c", ""},
		{question{What: "service"}, `{}`, nil, "", `"{}" is no answer`},
		{question{What: "service"}, `<html>`, nil, "", "is no answer"},
		{question{What: "service"}, "", errors.New("no route to host"), "", "no route to host"},
		{question{What: "name", Want: "10.1.0.9"}, `["10.1.0.9"]`, nil, "10.1.0.9", ""},
		{question{What: "name", Want: "10.1.0.9"}, `["10.1.0.8"]`, nil, "10.1.0.8", "is 10.1.0.8, not 10.1.0.9"},
		{question{What: "name", Want: "10.1.0.9"}, `[]`, nil, "", "is , not 10.1.0.9"},
		{question{What: "name", Want: "10.1.0.9"}, `{}`, nil, "", "is no answer"},
	} {
		q := judgeAnswer(c.q, []byte(c.answer), c.err)
		assert.Equal(t, c.got, q.Got, c.answer)
		if c.says == "" {
			assert.Empty(t, q.Err, c.answer)
		} else {
			assert.Contains(t, q.Err, c.says)
		}
	}
}

func TestVerdict(t *testing.T) {
	assert.NoError(t, checkAnswers(nil))
	all := []question{{From: "a", What: "pod b", Got: "probe-b"}, {From: "b", What: "pod a", Err: "no route to host"}}
	assert.EqualError(t, checkAnswers(all), "1 of 2 questions were not answered: from b, pod a: no route to host")
	for range 4 {
		all = append(all, question{From: "c", What: "name", Err: "timeout"})
	}
	assert.ErrorContains(t, checkAnswers(all), "5 of 6 questions were not answered")
	assert.ErrorContains(t, checkAnswers(all), "; and 2 more")
}

func TestProbesOfEveryNode(t *testing.T) {
	nodes := []string{"b", "a"}
	old := pod("a", "probe-old", "10.0.0.1")
	old.DeletionTimestamp = &metav1.Time{}
	starting := pod("b", "probe-b", "")
	starting.Status.Conditions[0].Status = corev1.ConditionFalse
	_, err := podsOf(nodes, []corev1.Pod{old, pod("a", "probe-a", "10.0.0.2"), starting})
	assert.EqualError(t, err, "no pod of the verification runs on b yet")
	pods, err := podsOf(nodes, []corev1.Pod{old, pod("b", "probe-b", "10.0.1.2"), pod("a", "probe-a", "10.0.0.2"), pod("c", "probe-c", "10.0.2.2")})
	require.NoError(t, err)
	require.Len(t, pods, 2)
	assert.Equal(t, "probe-a", pods[0].Name)
}

func TestChecksOfAVerification(t *testing.T) {
	lines := func(all []contract.Check) (text []string) {
		for _, k := range all {
			text = append(text, fmt.Sprintf("%s %t: %s", k.Name, k.Passed, k.Message))
		}
		return text
	}
	asked := []question{{From: "a", What: "pod b", Got: "p"}, {From: "a", What: "service", Got: "p"}, {From: "a", What: "name", Got: "1"}, {From: "a", What: "service by name", Err: "timeout"}}
	for _, c := range []struct {
		what  string
		ready error
		pods  error
		asked []question
		want  []string
	}{
		{"all but one name", nil, nil, asked, []string{"nodes Ready true: all 2 nodes", "a pod on every node true: on all 2 nodes", "pod to pod true: 1 of 1 questions answered",
			"Service true: 1 of 1 questions answered", "DNS false: 1 of 2 questions were not answered: from a, service by name: timeout"}},
		{"no pod on b, which is not Ready", errors.New("b is not Ready: container network is not ready"), errors.New("no pod of the verification runs on b yet"), nil,
			[]string{"nodes Ready false: b is not Ready: container network is not ready", "a pod on every node false: no pod of the verification runs on b yet"}},
		{"one node has no other", nil, nil, asked[1:3], []string{"nodes Ready true: all 2 nodes", "a pod on every node true: on all 2 nodes", "pod to pod true: not asked: there is one node",
			"Service true: 1 of 1 questions answered", "DNS true: 1 of 1 questions answered"}},
	} {
		assert.Equal(t, c.want, lines(checksOf(2, c.ready, c.pods, c.asked)), c.what)
	}
}

func TestWhatAClusterIsTriedWith(t *testing.T) {
	set, err := Objects("test")
	require.NoError(t, err)
	var kinds []string
	for _, o := range set.Objects {
		kinds = append(kinds, o.GetKind())
	}
	assert.Equal(t, []string{"Namespace", "Service", "DaemonSet"}, kinds)
	text, err := json.Marshal(set.Objects[2])
	require.NoError(t, err)
	assert.Contains(t, string(text), `"image":"`+manifest.NodeImage+`"`)
}
