package workload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"

	"firstlight.dev/firstlight/assets/excerpt"
)

// Bounds of what is asked of one pod, and kept for people.
const (
	maxLogLines    = 500
	keptLog        = 128 << 10 // bytes: the newest
	keptContainers = 50
)

// PodRef names a pod of a cluster.
type PodRef struct{ Namespace, Name string }

// IsValid reports whether a pod can be called so.
func (p PodRef) IsValid() bool {
	return len(validation.IsDNS1123Label(p.Namespace)) == 0 && len(validation.IsDNS1123Subdomain(p.Name)) == 0
}

// String is the pod as pages name it: namespace/name.
func (p PodRef) String() string { return p.Namespace + "/" + p.Name }

// PodDetails are what is known of one pod. They are not changed.
type PodDetails struct {
	Pod        Pod
	Containers []Container // those of the start first
	Events     []Event     // of this pod, the newest first
	MoreEvents bool        // than were asked for
}

// Container is one container of a pod.
type Container struct {
	Name, Image string
	State       string // Waiting, Running or Terminated, or the reason
	Reason      string // why it does not run, or ended
	Restarts    int32
	IsReady     bool
	IsInit      bool // it runs before the others
	HasPrevious bool // it ran before, and that log may be there
}

// LogRef names a log of a cluster.
type LogRef struct {
	Pod        PodRef
	Container  string
	IsPrevious bool // of the container before its last restart
}

// IsValid reports whether a container can be called so.
func (l LogRef) IsValid() bool {
	return l.Pod.IsValid() && len(validation.IsDNS1123Label(l.Container)) == 0
}

// Log is the end of what a program printed.
type Log struct {
	Text  string // whole lines, without control characters
	Lines int
	IsCut bool // there is more before it
}

// AskPod reads one pod of the cluster of a kubeconfig, and what happened to it. The error is for people.
func (a Asker) AskPod(ctx context.Context, text []byte, pod PodRef) (d PodDetails, err error) {
	_, _, err = a.reach(ctx, text, func(set *kubernetes.Clientset) error {
		d, err = a.readPod(ctx, set, pod)
		return err
	})
	return d, err
}

func (a Asker) readPod(ctx context.Context, set *kubernetes.Clientset, pod PodRef) (d PodDetails, err error) {
	core := set.CoreV1().RESTClient()
	body, err := core.Get().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).
		SetHeader("Accept", runtime.ContentTypeJSON).Stream(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return d, fmt.Errorf("pod %s is not there any more", pod)
	case err != nil:
		return d, err
	}
	defer body.Close()
	p, err := decodeObject[corev1.Pod](body)
	if err != nil {
		return d, fmt.Errorf("read pod %s: %w", pod, err)
	}
	hideLogs(p)
	d.Pod, d.Containers = describePod(p, a.now()), describeContainers(p)

	of := fields.Set{"involvedObject.kind": "Pod", "involvedObject.name": pod.Name, "involvedObject.uid": string(p.UID)}
	request := core.Get().Namespace(pod.Namespace).Param("fieldSelector", of.String())
	d.MoreEvents, err = list(ctx, request, "events", maxEvents, func(e *corev1.Event) {
		d.Events = append(d.Events, describeEvent(e))
	})
	if err != nil {
		return PodDetails{}, err
	}
	d.Events = newestEvents(d.Events)
	return d, nil
}

// describeContainers are the containers of a pod, those that run before the others first.
func describeContainers(p *corev1.Pod) (all []Container) {
	add := func(specs []corev1.Container, states []corev1.ContainerStatus, isInit bool) {
		for _, c := range specs {
			if len(all) == keptContainers {
				return
			}
			d := Container{Name: clipName(c.Name), Image: clipName(c.Image), State: "Waiting", IsInit: isInit}
			if i := slices.IndexFunc(states, func(s corev1.ContainerStatus) bool { return s.Name == c.Name }); i >= 0 {
				d.setState(states[i])
			}
			all = append(all, d)
		}
	}
	add(p.Spec.InitContainers, p.Status.InitContainerStatuses, true)
	add(p.Spec.Containers, p.Status.ContainerStatuses, false)
	return all
}

func (d *Container) setState(s corev1.ContainerStatus) {
	d.Restarts, d.IsReady, d.HasPrevious = s.RestartCount, s.Ready, s.RestartCount > 0 || s.LastTerminationState.Terminated != nil
	ended := s.State.Terminated
	if ended == nil && s.State.Running == nil {
		ended = s.LastTerminationState.Terminated // why it waits to run again
	}
	switch {
	case s.State.Running != nil:
		d.State = "Running"
	case s.State.Waiting != nil && s.State.Waiting.Reason != "":
		d.State, d.Reason = clipName(s.State.Waiting.Reason), clip(s.State.Waiting.Message)
	case s.State.Terminated != nil:
		d.State = "Terminated"
	}
	if ended != nil {
		text := fmt.Sprintf("%s, exit code %d", ended.Reason, ended.ExitCode)
		if ended.Message != "" {
			text += ": " + ended.Message
		}
		d.Reason = clip(strings.TrimPrefix(strings.TrimSpace(d.Reason+"; it ended last with "+text), "; "))
	}
}

// AskLog reads the last lines that a container printed. The error is for people.
func (a Asker) AskLog(ctx context.Context, text []byte, of LogRef) (l Log, err error) {
	_, _, err = a.reach(ctx, text, func(set *kubernetes.Clientset) error {
		lines := int64(maxLogLines)
		body, err := set.CoreV1().Pods(of.Pod.Namespace).GetLogs(of.Pod.Name, &corev1.PodLogOptions{
			Container: of.Container,
			Previous:  of.IsPrevious,
			TailLines: &lines,
		}).Stream(ctx)
		var answered apierrors.APIStatus
		switch {
		case apierrors.IsNotFound(err):
			return fmt.Errorf("pod %s is not there any more", of.Pod)
		case errors.As(err, &answered):
			return errors.New(excerpt.Line(answered.Status().Message))
		case err != nil:
			return err
		}
		defer body.Close()

		l, err = ReadLog(body)
		l.IsCut = l.IsCut || l.Lines >= maxLogLines
		return err
	})
	return l, err
}

// ReadLog keeps the newest of a log, 128 KiB at most.
func ReadLog(from io.Reader) (Log, error) {
	kept, isCut, piece := []byte(nil), false, make([]byte, 32<<10)
	for {
		n, err := from.Read(piece)
		kept = append(kept, piece[:n]...)
		if over := len(kept) - keptLog; over > 0 {
			kept, isCut = append(kept[:0], kept[over:]...), true
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Log{}, err
		}
	}

	text := string(kept)
	if isCut {
		if _, whole, ok := strings.Cut(text, "\n"); ok {
			text = whole
		}
	}
	text = cleanLog(text)
	l := Log{Text: text, IsCut: isCut}
	if text != "" {
		l.Lines = strings.Count(strings.TrimSuffix(text, "\n"), "\n") + 1
	}
	return l, nil
}

// cleanLog removes what a terminal would obey: colours, and characters that are no text.
func cleanLog(text string) string {
	var b strings.Builder
	escaped := 0 // 1: after ESC; 2: in its sequence (ECMA-48, 5.4)
	for _, r := range text {
		switch {
		case r == '\x1b':
			escaped = 1
		case escaped == 1 && r == '[':
			escaped = 2
		case escaped == 1 && r != '\n':
			escaped = 0
		case escaped == 2 && r != '\n':
			if r >= '@' && r <= '~' {
				escaped = 0
			}
		case r == '\n', r == '\t':
			escaped = 0
			b.WriteRune(r)
		case !unicode.IsControl(r) && !unicode.Is(unicode.Bidi_Control, r):
			b.WriteRune(r)
		}
	}
	return b.String()
}
