package provisioning

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// eventTimeout is how long the API may take for an event.
const eventTimeout = 30 * time.Second

// hostEvent is what a host's owner should know of it.
type hostEvent struct {
	Host    string
	Name    string // behind the host's: the same one is not written twice while the API keeps it, for an hour
	Reason  string // one word, for programs
	Message string
	At      time.Time

	IsNormal bool // it is no warning
}

// addEvent puts an event on its host. Before there is a host, and while the API is away, there is none: the status says
// the same.
func (p *Provisioner) addEvent(e hostEvent) {
	ctx, cancel := context.WithTimeout(context.Background(), eventTimeout)
	defer cancel()
	h := p.Hosts.FindHost(func(h *metal3api.BareMetalHost) bool { return h.Name == e.Host })
	if h == nil {
		return
	}

	api, err := p.Client()
	if err == nil {
		err = api.Create(ctx, e.object(h))
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		p.Log.Error("event of a host not written", "host", e.Host, "reason", e.Reason, "error", err)
	}
}

// object is the event in the API. It is pure.
func (e hostEvent) object(h *metal3api.BareMetalHost) *corev1.Event {
	at, kind := metav1.NewTime(e.At), corev1.EventTypeWarning
	if e.IsNormal {
		kind = corev1.EventTypeNormal
	}
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: metal3.Namespace, Name: h.Name + "." + e.Name},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "metal3.io/v1alpha1",
			Kind:       "BareMetalHost",
			Namespace:  h.Namespace,
			Name:       h.Name,
			UID:        h.UID,
		},
		Type:           kind,
		Reason:         e.Reason,
		Message:        e.Message,
		Source:         corev1.EventSource{Component: "firstlightd"},
		FirstTimestamp: at,
		LastTimestamp:  at,
		Count:          1,
	}
}

// reportRefusal puts an event on a host in whose name something called that was refused.
func (p *Provisioner) reportRefusal(host, sentence string) {
	go p.addEvent(refusalEvent(host, sentence, time.Now()))
}

// refusalEvent is once for each sentence.
func refusalEvent(host, sentence string, at time.Time) hostEvent {
	sum := sha256.Sum256([]byte(sentence))
	return hostEvent{
		Host:    host,
		Name:    fmt.Sprintf("agent-%x", sum[:8]),
		Reason:  "AgentRefused",
		Message: sentence,
		At:      at,
	}
}
