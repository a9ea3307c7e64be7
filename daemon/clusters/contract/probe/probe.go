// Package probe tries a cluster: a pod on every node, which asks the others, a Service and its name. Whoever makes
// clusters tries them by it, so that all of them are verified by the same questions.
package probe

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"text/template"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/manifest"
	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/engine/apply"
)

//go:embed probe.yaml
var objects string

// Cluster is one that is tried.
type Cluster struct {
	Client client.Client        // of its API
	Set    kubernetes.Interface // the same
	Owner  string               // field manager of what it is tried with
	Nodes  []string             // the names of those that have to be there
	Ready  func(nodes []corev1.Node) error
}

const (
	namespace   = "firstlight-verify"
	serviceName = "probe.firstlight-verify.svc.cluster.local"
)

// question is one thing that a pod is asked to do, and what came of it.
type question struct {
	From string `json:"from"` // node
	What string `json:"what"` // pod NODE, service, name or service by name
	Want string `json:"want,omitempty"`
	Got  string `json:"got,omitempty"`
	Err  string `json:"error,omitempty"`

	pod              string
	verb, key, value string // VERB?KEY=VALUE, see firstlight-node probe
}

// Verification is what came of it: the checks for the status, the questions that they follow from for whoever wants to
// know it exactly.
type Verification struct {
	contract.Verification
	Questions []question `json:"questions"`
}

// checksOf sums up what was seen of so many nodes: why not all are Ready, why not every one has a pod (nil if all
// have), and the questions that the pods were asked.
func checksOf(nodes int, notReady, pods error, asked []question) []contract.Check {
	ready := contract.Check{Name: "nodes Ready", Passed: true, Message: fmt.Sprintf("all %d nodes", nodes)}
	if notReady != nil {
		ready.Passed, ready.Message = false, notReady.Error()
	}

	placed := contract.Check{
		Name:    "a pod on every node",
		Passed:  true,
		Message: fmt.Sprintf("on all %d nodes", nodes),
	}
	if pods != nil {
		return []contract.Check{ready, {Name: placed.Name, Message: pods.Error()}}
	}

	all := []contract.Check{ready, placed}
	for _, c := range []struct {
		name string
		is   func(what string) bool
	}{
		{"pod to pod", func(what string) bool { return strings.HasPrefix(what, "pod ") }},
		{"Service", func(what string) bool { return what == "service" }},
		{"DNS", func(what string) bool { return what == "name" || what == "service by name" }},
	} {
		var of []question
		for _, q := range asked {
			if c.is(q.What) {
				of = append(of, q)
			}
		}

		one := contract.Check{
			Name:    c.name,
			Passed:  true,
			Message: fmt.Sprintf("%d of %d questions answered", len(of), len(of)),
		}
		if len(of) == 0 {
			one.Message = "not asked: there is one node"
		}

		if err := checkAnswers(of); err != nil {
			one.Passed, one.Message = false, err.Error()
		}

		all = append(all, one)
	}

	return all
}

// neighbours is how many other pods each pod asks for: all of a small cluster; in a large one those
// that follow it in a ring, which still is a path from every node to every other.
const neighbours = 9

// questionsFor are all that is asked of the pods, which are sorted by node.
func questionsFor(pods []corev1.Pod, service string) (all []question) {
	to := func(host string) string { return "http://" + host + "/who" }
	for i, from := range pods {
		ask := func(what, want, verb, key, value string) {
			all = append(all, question{
				From:  from.Spec.NodeName,
				What:  what,
				Want:  want,
				pod:   from.Name,
				verb:  verb,
				key:   key,
				value: value,
			})
		}
		for step := range min(len(pods)-1, neighbours) {
			other := pods[(i+1+step)%len(pods)]
			ask("pod "+other.Spec.NodeName, other.Name, "ask", "url", to(net.JoinHostPort(other.Status.PodIP, "8080")))
		}

		ask("service", "", "ask", "url", to(net.JoinHostPort(service, "80")))
		ask("name", service, "resolve", "name", serviceName)
		ask("service by name", "", "ask", "url", to(serviceName))
	}
	return all
}

// judgeAnswer fills in a question from what the pod answered.
func judgeAnswer(q question, answer []byte, err error) question {
	if err != nil {
		q.Err = err.Error()
		return q
	}
	if q.What == "name" {
		var addrs []string
		if err := json.Unmarshal(answer, &addrs); err != nil {
			q.Err = fmt.Sprintf("%.100q is no answer", answer)
		} else if q.Got = strings.Join(addrs, " "); !slices.Contains(addrs, q.Want) {
			q.Err = fmt.Sprintf("%s is %s, not %s", serviceName, q.Got, q.Want)
		}
		return q
	}

	var who struct{ Node, Pod string }
	if err := json.Unmarshal(answer, &who); err != nil || who.Pod == "" {
		q.Err = fmt.Sprintf("%.100q is no answer", answer)
		return q
	}

	if q.Got = who.Pod; q.Want != "" && q.Got != q.Want {
		q.Err = fmt.Sprintf("%s answered in its place", who.Node)
	}

	return q
}

// checkAnswers is nil if every question was answered, else it names the first few that were not.
func checkAnswers(all []question) error {
	var wrong []string
	for _, q := range all {
		if q.Err != "" {
			wrong = append(wrong, fmt.Sprintf("from %s, %s: %s", q.From, q.What, q.Err))
		}
	}

	if len(wrong) == 0 {
		return nil
	}

	more := ""
	if len(wrong) > 3 {
		more = fmt.Sprintf("; and %d more", len(wrong)-3)
	}

	return fmt.Errorf(
		"%d of %d questions were not answered: %s%s", len(wrong), len(all),
		strings.Join(wrong[:min(3, len(wrong))], "; "), more,
	)
}

// Run tries a cluster, and removes what it was tried with if all was well. What it saw is returned whenever the cluster
// answered; the error is what went wrong.
func (c Cluster) Run(ctx context.Context, report func(string)) (*Verification, error) {
	set, err := Objects(c.Owner)
	if err != nil {
		return nil, err
	}

	report("starting a pod on every node")
	if err := set.Apply(ctx, c.Client); err != nil {
		return nil, err
	}

	pods, err := c.waitForPods(ctx, report)
	if err != nil {
		seen, failed := c.sumUp(ctx, err, nil)
		return seen, errors.Join(err, failed)
	}

	service, err := c.Set.CoreV1().Services(namespace).Get(ctx, "probe", metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read service: %w", err)
	}

	report("asking the pods")
	answers, err := c.askAll(ctx, questionsFor(pods, service.Spec.ClusterIP))
	seen, failed := c.sumUp(ctx, nil, answers)
	if err != nil || failed != nil {
		return seen, errors.Join(err, failed)
	}
	if err := c.Set.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}); err != nil {
		return seen, fmt.Errorf("remove what was verified with: %w", err)
	}

	return seen, nil
}

// Objects are what a cluster is tried with, under the name of a field manager.
func Objects(owner string) (apply.Set, error) {
	t, err := template.New("probe").Parse(objects)
	if err != nil {
		return apply.Set{}, fmt.Errorf("parse probe: %w", err)
	}

	var b bytes.Buffer
	if err := t.Execute(&b, struct{ NodeImage string }{manifest.NodeImage}); err != nil {
		return apply.Set{}, fmt.Errorf("render probe: %w", err)
	}

	return apply.Read(owner, b.Bytes())
}

// How long pods may take to run on all nodes, and rules, routes and names to be everywhere: on a slow node, whose
// controller manager starts again under load, they take minutes.
const (
	podsWithin    = 3 * time.Minute
	answersWithin = 3 * time.Minute
)

// waitForPods waits for a ready pod on every node.
func (c Cluster) waitForPods(ctx context.Context, report func(string)) ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, podsWithin)
	defer cancel()
	for {
		list, err := c.Set.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=probe"})
		if err != nil {
			err = fmt.Errorf("list pods: %w", err)
		} else {
			var pods []corev1.Pod
			if pods, err = podsOf(c.Nodes, list.Items); err == nil {
				return pods, nil
			}
			report(err.Error())
		}

		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(time.Second):
		}
	}
}

// podsOf are the ready pods, one for each node, sorted; or what is missing.
func podsOf(nodes []string, have []corev1.Pod) ([]corev1.Pod, error) {
	var pods []corev1.Pod
	for _, n := range nodes {
		i := slices.IndexFunc(have, func(p corev1.Pod) bool {
			return p.Spec.NodeName == n && p.DeletionTimestamp == nil && podReady(&p)
		})
		if i < 0 {
			return nil, fmt.Errorf("no pod of the verification runs on %s yet", n)
		}
		pods = append(pods, have[i])
	}

	slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Spec.NodeName, b.Spec.NodeName) })
	return pods, nil
}

func podReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// askAll asks everything, and again what was not answered, for up to answersWithin.
func (c Cluster) askAll(ctx context.Context, all []question) ([]question, error) {
	var err error
	for began := time.Now(); ; {
		todo := make(chan int)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for i := range todo {
					q := all[i]
					q.Got, q.Err = "", ""
					answer, err := c.Set.CoreV1().RESTClient().Get().Namespace(namespace).Resource("pods").
						Name(q.pod+":8080").SubResource("proxy").Suffix(q.verb).Param(q.key, q.value).DoRaw(ctx)
					all[i] = judgeAnswer(q, answer, err)
				}
			})
		}

		for i, q := range all {
			if q.Err != "" || q.Got == "" {
				todo <- i
			}
		}

		close(todo)
		wg.Wait()
		if err = checkAnswers(all); err == nil || ctx.Err() != nil || time.Since(began) > answersWithin {
			return all, err
		}

		time.Sleep(time.Second)
	}
}

// sumUp is what was seen: pods says why not every node has one, all what they answered.
func (c Cluster) sumUp(ctx context.Context, pods error, all []question) (*Verification, error) {
	list, err := c.Set.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}

	v := &Verification{Questions: all}
	v.Time = time.Now().UTC().Truncate(time.Second)
	v.Checks = checksOf(len(c.Nodes), c.Ready(list.Items), pods, all)
	v.Passed = !slices.ContainsFunc(v.Checks, func(k contract.Check) bool { return !k.Passed })
	v.Nodes = c.Nodes
	return v, nil
}
