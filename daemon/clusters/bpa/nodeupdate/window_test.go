package nodeupdate

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
)

// 28 November 2026 is a Saturday.
func TestOpens(t *testing.T) {
	at := func(text string) time.Time {
		when, err := time.Parse("2006-01-02 15:04", text)
		require.NoError(t, err)
		return when
	}
	for _, c := range []struct {
		days       []string
		start      string
		hours      int32
		now, opens string
	}{
		{nil, "22:00", 4, "2026-11-28 21:59", "2026-11-28 22:00"},
		{nil, "22:00", 4, "2026-11-28 22:00", "2026-11-28 22:00"},
		{nil, "22:00", 4, "2026-11-29 01:59", "2026-11-29 01:59"},
		{nil, "22:00", 4, "2026-11-29 02:00", "2026-11-29 22:00"},
		{nil, "00:00", 24, "2026-11-29 02:00", "2026-11-29 02:00"},
		{[]string{"Sat"}, "22:00", 4, "2026-11-29 01:00", "2026-11-29 01:00"},
		{[]string{"Sun"}, "22:00", 4, "2026-11-29 01:00", "2026-11-29 22:00"},
		{[]string{"Sat"}, "01:00", 1, "2026-11-28 02:00", "2026-12-05 01:00"},
		{[]string{"Sun", "Wed"}, "01:00", 2, "2026-11-29 03:00", "2026-12-02 01:00"},
	} {
		got, err := Opens(v1alpha1.Window{Days: c.days, Start: c.start, Hours: c.hours}, at(c.now))
		require.NoError(t, err)
		assert.Equal(t, at(c.opens), got, "%+v", c)
	}

	local := time.FixedZone("east", 3600)
	got, err := Opens(v1alpha1.Window{Start: "22:00", Hours: 1}, at("2026-11-28 21:30").In(local))
	require.NoError(t, err)
	assert.Equal(t, at("2026-11-28 22:00"), got, "it is in UTC")

	for want, w := range map[string]v1alpha1.Window{
		`window.start "10pm" is no time of day; write one such as 22:00`:                 {Start: "10pm", Hours: 1},
		"window.hours is 0; write a number from 1 to 24":                                 {Start: "22:00"},
		"window.days [Saturday] names no day; write Mon, Tue, Wed, Thu, Fri, Sat or Sun": {Start: "22:00", Hours: 1, Days: []string{"Saturday"}},
	} {
		_, err := Opens(w, at("2026-11-28 22:00"))
		assert.EqualError(t, err, want)
	}
}

func TestSortPods(t *testing.T) {
	pod := func(namespace, name, owner string, change ...func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		if owner != "" {
			isController := true
			p.OwnerReferences = []metav1.OwnerReference{{Kind: owner, Name: "o", Controller: &isController}}
		}
		for _, f := range change {
			f(&p)
		}
		return p
	}
	static := func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }
	ready := func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	ended := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	deleted := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }
	assert.Equal(t, Pods{
		Movable:   []string{"a/bare-and-deleted", "a/machine", "a/web"},
		Unmovable: []string{"pod a/bare has no controller that would make it again; delete it, or give it one"},
		Unready:   []string{"kube-system/etcd", "kube-system/network"},
	}, SortPods([]corev1.Pod{
		pod("a", "web", "ReplicaSet"), pod("a", "machine", "VirtualMachineInstance"), pod("a", "bare", ""),
		pod("a", "bare-and-deleted", "", deleted), pod("a", "done", "", ended), pod("a", "agent", "DaemonSet"),
		pod("kube-system", "network", "DaemonSet"), pod("kube-system", "proxy", "DaemonSet", ready),
		pod("kube-system", "etcd", "Node", static), pod("kube-system", "scheduler", "Node", static, ready),
	}))
}

// TestMarks: what cannot be read belongs to nobody, and the node is put back into service.
func TestMarks(t *testing.T) {
	m := Mark{Update: "default/november", UID: "u", Since: now, Closed: true, BootID: "b"}
	assert.Equal(t, &m, ReadMark(m.String()))
	assert.Nil(t, ReadMark(""))
	assert.Equal(t, &Mark{}, ReadMark("yes"))
}

func TestThePageExplainsEveryReason(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/clusters.md")
	require.NoError(t, err)
	for _, reason := range []string{
		ReasonUpToDate, ReasonUpdating, ReasonPaused, ReasonOutsideWindow, ReasonChanging, ReasonOtherUpdate,
		ReasonNodeSilent, ReasonNodeNotReady, ReasonNotMovable, ReasonDrainBlocked, ReasonPackagesUnknown,
		ReasonNotInstalled, ReasonNotRebooted, ReasonTooNew,
	} {
		assert.True(t, strings.Contains(string(text), "`"+reason+"`"), "docs/clusters.md does not explain %s", reason)
	}
}
