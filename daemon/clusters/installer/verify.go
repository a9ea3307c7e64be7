package installer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

const (
	probeNamespace = "firstlight-verify"
	probeName      = "probe.firstlight-verify.svc.cluster.local"
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

// verification is what is kept of the last one: the checks for the status, the questions that they follow from for
// whoever wants to know it exactly.
type verification struct {
	contract.Verification
	Questions []question `json:"questions"`
}

// checksOf sums up what was seen: the nodes as the API knows them, why not every node has a pod (nil if
// all have), and the questions that the pods were asked.
func checksOf(nodes []*node, have []corev1.Node, pods error, asked []question) []contract.Check {
	ready := contract.Check{Name: "nodes Ready", Passed: true, Message: fmt.Sprintf("all %d nodes", len(nodes))}
	if err := nodesVerdict(nodes, have); err != nil {
		ready.Passed, ready.Message = false, err.Error()
	}

	placed := contract.Check{
		Name:    "a pod on every node",
		Passed:  true,
		Message: fmt.Sprintf("on all %d nodes", len(nodes)),
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
		ask("name", service, "resolve", "name", probeName)
		ask("service by name", "", "ask", "url", to(probeName))
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
			q.Err = fmt.Sprintf("%s is %s, not %s", probeName, q.Got, q.Want)
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

// verifyDone holds that this run verified the cluster: what an earlier run saw may have changed since.
func (c *cluster) verifyDone(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.verified {
		return fmt.Errorf("it was not verified yet")
	}

	return nil
}

func (c *cluster) verifyDo(ctx context.Context, report bringup.Report) error {
	a, err := c.connect(ctx)
	if err != nil {
		return err
	}

	set, err := c.renderObjects("probe.yaml", "firstlight-installer")
	if err != nil {
		return err
	}

	report("starting a pod on every node")
	if err := set.Apply(ctx, a.client); err != nil {
		return err
	}

	pods, err := c.waitForProbes(ctx, a, report)
	if err != nil {
		return errors.Join(err, c.saveVerification(ctx, a, err, nil))
	}

	service, err := a.set.CoreV1().Services(probeNamespace).Get(ctx, "probe", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read service: %w", err)
	}

	report("asking the pods")
	answers, err := c.askAll(ctx, a, questionsFor(pods, service.Spec.ClusterIP))
	if kept := c.saveVerification(ctx, a, nil, answers); kept != nil {
		return kept
	}
	if err != nil {
		return err
	}
	if err := a.set.CoreV1().Namespaces().Delete(ctx, probeNamespace, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("remove what was verified with: %w", err)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.verified = true
	return nil
}

// waitForProbes waits for a ready pod on every node of the inventory.
func (c *cluster) waitForProbes(ctx context.Context, a *api, report bringup.Report) ([]corev1.Pod, error) {
	var pods []corev1.Pod
	err := c.firstControlPlane().waitFor(ctx, 3*time.Minute, func(ctx context.Context) error {
		list, err := a.set.CoreV1().Pods(probeNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app=probe"})
		if err != nil {
			return fmt.Errorf("list pods: %w", err)
		}

		var missing error
		pods, missing = probesVerdict(c.nodes, list.Items)
		if missing != nil {
			report(missing.Error())
		}

		return missing
	})
	return pods, err
}

// probesVerdict are the ready pods, one for each node, sorted; or what is missing.
func probesVerdict(nodes []*node, have []corev1.Pod) ([]corev1.Pod, error) {
	var pods []corev1.Pod
	for _, n := range nodes {
		i := slices.IndexFunc(have, func(p corev1.Pod) bool {
			return p.Spec.NodeName == n.Label && p.DeletionTimestamp == nil && podReady(&p)
		})
		if i < 0 {
			return nil, fmt.Errorf("no pod of the verification runs on %s yet", n.Label)
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

// askAll asks everything, and again what was not answered, for up to a minute: rules and routes of a
// pod that has just started take a moment to be everywhere.
func (c *cluster) askAll(ctx context.Context, a *api, all []question) ([]question, error) {
	var err error
	for began := time.Now(); ; {
		todo := make(chan int)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for i := range todo {
					q := all[i]
					q.Got, q.Err = "", ""
					answer, err := a.set.CoreV1().RESTClient().Get().Namespace(probeNamespace).Resource("pods").
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
		if err = checkAnswers(all); err == nil || ctx.Err() != nil || time.Since(began) > time.Minute {
			return all, err
		}

		time.Sleep(time.Second)
	}
}

// saveVerification writes down what was seen: pods says why not every node has one, all what they answered.
func (c *cluster) saveVerification(ctx context.Context, a *api, pods error, all []question) error {
	list, err := a.set.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}

	v := verification{Questions: all}
	v.Time = time.Now().UTC().Truncate(time.Second)
	v.Checks = checksOf(c.nodes, list.Items, pods, all)
	v.Passed = !slices.ContainsFunc(v.Checks, func(k contract.Check) bool { return !k.Passed })
	for _, n := range c.nodes {
		v.Nodes = append(v.Nodes, n.Label)
	}

	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return fmt.Errorf("encode verification: %w", err)
	}

	return writeFile(filepath.Join(c.dir, contract.FileVerification), append(text, '\n'), 0o644)
}
