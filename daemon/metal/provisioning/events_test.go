package provisioning

import (
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/daemon/metal/bmctrust"
)

// TestEventsOfAHostAreItsOwn: each is about one host, and the same one has the same name.
func TestEventsOfAHostAreItsOwn(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	h := &metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: "node1", UID: "uid-1"}}
	refused := refusalEvent("node1", "172.22.0.66 called in its name", at).object(h)
	assert.Equal(t, refused.Name, refusalEvent("node1", "172.22.0.66 called in its name", at.Add(time.Minute)).object(h).Name)
	assert.NotEqual(t, refused.Name, refusalEvent("node1", "172.22.0.67 called in its name", at).object(h).Name)
	assert.Equal(t, "AgentRefused", refused.Reason)
	assert.Equal(t, "172.22.0.66 called in its name", refused.Message)

	changed := certificateEvent("node1", bmctrust.Change{Pinned: "aa", Other: "0123456789abcdef0123", At: at}).object(h)
	assert.Equal(t, "node1.bmc-0123456789abcdef", changed.Name)
	assert.Equal(t, "BMCCertificateChanged", changed.Reason)
	for _, e := range []*corev1.Event{refused, changed} {
		assert.Equal(t, "metal3", e.Namespace)
		assert.EqualValues(t, "uid-1", e.InvolvedObject.UID)
		assert.Equal(t, corev1.EventTypeWarning, e.Type)
		assert.Equal(t, at, e.FirstTimestamp.Time)
	}
}
