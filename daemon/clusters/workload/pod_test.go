package workload

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podServer answers about one pod, default/web.
type podServer struct {
	*apiServer
	pod     corev1.Pod
	log     io.Reader
	refuses string // why there is no log; "": there is
	queries map[string]url.Values
}

func newPodServer(t *testing.T) *podServer {
	s := &podServer{apiServer: newAPIServer(t), queries: map[string]url.Values{}}
	s.pod = corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u-1"}}
	others := s.Config.Handler
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, isOfPod := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/default/")
		s.queries[path] = r.URL.Query()
		w.Header().Set("Content-Type", "application/json")
		switch {
		case !isOfPod:
			others.ServeHTTP(w, r)
		case path == "pods/web":
			_ = json.NewEncoder(w).Encode(s.pod)
		case path == "events":
			_ = json.NewEncoder(w).Encode(s.events)
		case path == "pods/web/log" && s.refuses != "":
			w.WriteHeader(http.StatusBadRequest)
			_ = json.NewEncoder(w).Encode(metav1.Status{
				TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
				Reason: metav1.StatusReasonBadRequest, Code: http.StatusBadRequest, Message: s.refuses,
			})
		case path == "pods/web/log":
			w.Header().Set("Content-Type", "text/plain")
			_, _ = io.Copy(w, s.log)
		default:
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(metav1.Status{
				TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
				Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound, Message: "no",
			})
		}
	})
	return s
}

var web = PodRef{"default", "web"}

func TestAPodIsAskedWithItsEvents(t *testing.T) {
	s := newPodServer(t)
	s.pod.Spec.InitContainers = []corev1.Container{{Name: "migrate", Image: "docker.io/library/migrate:1"}}
	s.pod.Spec.Containers = []corev1.Container{{Name: "web"}, {Name: "proxy"}}
	s.pod.Status.Phase = corev1.PodRunning
	s.pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{
		Name: "migrate", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}},
	}}
	s.pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "web", RestartCount: 3,
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 40s"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Reason: "Error", ExitCode: 2, Message: "no such file",
		}},
	}}
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	s.events.Items = []corev1.Event{
		{Reason: "Pulled", LastTimestamp: metav1.NewTime(at)},
		{Reason: "BackOff", LastTimestamp: metav1.NewTime(at.Add(time.Minute))},
	}

	d, err := asker().AskPod(t.Context(), newKubeconfig(t, s.apiServer), web)
	require.NoError(t, err)
	assert.Equal(t, "CrashLoopBackOff", d.Pod.State)
	assert.Equal(t, []Container{
		{Name: "migrate", Image: "docker.io/library/migrate:1", State: "Terminated", IsInit: true,
			Reason: "it ended last with Completed, exit code 0"},
		{Name: "web", State: "CrashLoopBackOff", Restarts: 3, HasPrevious: true,
			Reason: "back-off 40s; it ended last with Error, exit code 2: no such file"},
		{Name: "proxy", State: "Waiting"},
	}, d.Containers)
	assert.Equal(t, []string{"BackOff", "Pulled"}, []string{d.Events[0].Reason, d.Events[1].Reason}, "the newest first")
	assert.Equal(t, "involvedObject.kind=Pod,involvedObject.name=web,involvedObject.uid=u-1",
		s.queries["events"].Get("fieldSelector"), "of this pod, and not of one of its name before it")

	_, err = asker().AskPod(t.Context(), newKubeconfig(t, s.apiServer), PodRef{"default", "gone"})
	assert.ErrorContains(t, err, "pod default/gone is not there any more")

	s.pod.Annotations = map[string]string{"x": strings.Repeat("0", maxObject)}
	_, err = asker().AskPod(t.Context(), newKubeconfig(t, s.apiServer), web)
	assert.ErrorContains(t, err, "one object is longer than 512 KiB")
}

// TestTheEndOfALogIsNoReason: viewers see reasons, and no logs.
func TestTheEndOfALogIsNoReason(t *testing.T) {
	ended := func(reason string) *corev1.ContainerStateTerminated {
		return &corev1.ContainerStateTerminated{Reason: reason, ExitCode: 2, Message: "token=abc"}
	}
	for _, c := range []struct {
		name        string
		policy      corev1.TerminationMessagePolicy
		reason      string
		isInit, say bool
	}{
		{"its log", corev1.TerminationMessageFallbackToLogsOnError, "Error", false, false},
		{"the log of one that runs before the others", corev1.TerminationMessageFallbackToLogsOnError, "OOMKilled", true, false},
		{"what the kubelet says", corev1.TerminationMessageFallbackToLogsOnError, "StartError", false, true},
		{"what it wrote for this", corev1.TerminationMessageReadFile, "Error", false, true},
	} {
		s := newPodServer(t)
		specs, states := &s.pod.Spec.Containers, &s.pod.Status.ContainerStatuses
		if c.isInit {
			specs, states = &s.pod.Spec.InitContainers, &s.pod.Status.InitContainerStatuses
		}
		*specs = []corev1.Container{{Name: "one", TerminationMessagePolicy: c.policy}}
		*states = []corev1.ContainerStatus{{
			Name: "one", State: corev1.ContainerState{Terminated: ended(c.reason)},
			LastTerminationState: corev1.ContainerState{Terminated: ended(c.reason)},
		}}
		s.pods.Items = []corev1.Pod{s.pod}

		d, err := asker().AskPod(t.Context(), newKubeconfig(t, s.apiServer), web)
		require.NoError(t, err)
		all, err := asker().Ask(t.Context(), newKubeconfig(t, s.apiServer))
		require.NoError(t, err)
		for _, text := range []string{d.Pod.Reason, d.Containers[0].Reason, all.Pods[0].Reason} {
			assert.Equal(t, c.say, strings.Contains(text, "token=abc"), "%s: %s", c.name, text)
		}
	}
}

func TestALogIsItsLastLines(t *testing.T) {
	s := newPodServer(t)
	ask := func(of LogRef, log string) Log {
		s.log = strings.NewReader(log)
		l, err := asker().AskLog(t.Context(), newKubeconfig(t, s.apiServer), of)
		require.NoError(t, err)
		return l
	}
	of := LogRef{Pod: web, Container: "proxy"}
	assert.Equal(t, Log{Text: "one\ntwo\n", Lines: 2}, ask(of, "one\ntwo\n"))
	assert.Equal(t, url.Values{"container": {"proxy"}, "tailLines": {"500"}}, s.queries["pods/web/log"])
	assert.Equal(t, Log{}, ask(of, ""))
	of.IsPrevious = true
	assert.Equal(t, Log{Text: "last", Lines: 1}, ask(of, "last"))
	assert.Equal(t, "true", s.queries["pods/web/log"].Get("previous"))

	whole := ask(of, strings.Repeat("0123456789\n", maxLogLines))
	assert.True(t, whole.IsCut, "as many lines as were asked for: there may be more before them")
	long := ask(of, "first "+strings.Repeat("x", keptLog)+"\n"+strings.Repeat("y", 100)+"\n")
	assert.Equal(t, Log{Text: strings.Repeat("y", 100) + "\n", Lines: 1, IsCut: true}, long, "the newest, and no half line")
	assert.LessOrEqual(t, len(ask(of, strings.Repeat("z", 3*keptLog)).Text), keptLog)
}

// TestALogObeysNobody: it is text, whatever whoever wrote it wants of a terminal.
func TestALogObeysNobody(t *testing.T) {
	for _, c := range []struct{ log, want string }{
		{"\x1b[31mred\x1b[0m\tplain\r\n", "red\tplain\n"},
		{"\x1b]0;title\x07rest", "0;titlerest"},
		{"a\x00b\x1b", "ab"},
		{"\x1b[12\nnext", "\nnext"},
		{"over\u202ewritten", "overwritten"},
		{"bad \xff byte", "bad \ufffd byte"},
		{"<script>", "<script>"}, // what shows it escapes it
	} {
		assert.Equal(t, c.want, cleanLog(c.log), "%q", c.log)
	}
}

func TestALogThatIsNotThereSaysWhy(t *testing.T) {
	s := newPodServer(t)
	s.refuses = `previous terminated container "web" in pod "web" not found`
	_, err := asker().AskLog(t.Context(), newKubeconfig(t, s.apiServer), LogRef{web, "web", true})
	assert.ErrorContains(t, err, s.refuses)
	s.refuses, s.log = "", io.LimitReader(zeros{}, maxAnswer+1)
	_, err = asker().AskLog(t.Context(), newKubeconfig(t, s.apiServer), LogRef{web, "web", false})
	assert.ErrorContains(t, err, "the answer is longer than 16 MiB")
}

func TestNamesOfPodsAreNames(t *testing.T) {
	for ref, isValid := range map[LogRef]bool{
		{PodRef{"default", "web-0.a"}, "web", false}: true,
		{PodRef{"default", "web/log"}, "web", false}: false,
		{PodRef{"..", "web"}, "web", false}:          false,
		{PodRef{"default", ""}, "web", false}:        false,
		{PodRef{"default", "web"}, "we b", false}:    false,
		{PodRef{"default", "web"}, "", false}:        false,
	} {
		assert.Equal(t, isValid, ref.IsValid(), "%+v", ref)
	}
}
