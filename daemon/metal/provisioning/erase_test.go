package provisioning

import (
	"context"
	"encoding/pem"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"
	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"firstlight.dev/firstlight/assets/inspection"
	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/appliance/kube"
	"firstlight.dev/firstlight/daemon/metal/agentgate"
	"firstlight.dev/firstlight/daemon/metal/ironic"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/daemon/metal/standinbmc"
)

// TestAnErasureIsWrittenDownBeforeTheFirstByte, ends with the word of the ramdisk, and is refused once and for all.
func TestAnErasureIsWrittenDownBeforeTheFirstByte(t *testing.T) {
	p := New(Deps{
		Log:  slog.New(slog.DiscardHandler),
		Site: func() *site.Site { return &site.Site{} },
		Kube: &kube.Cluster{},
	})
	dir := t.TempDir()
	p.erasures.Dir = dir
	p.Hosts.Backups = metal3.Backups{Dir: t.TempDir(), Log: p.Log}
	h := metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{
		Namespace: metal3.Namespace, Name: "node-1", UID: "uid-1",
		Annotations: map[string]string{metal3api.PausedAnnotation: label.Erasing},
	}}
	h.Status.Provisioning.State = metal3api.StateAvailable
	require.NoError(t, p.Hosts.Set([]metal3api.BareMetalHost{h}))

	question := func(serial string, kinds ...string) agentgate.WriteRequest {
		var q agentgate.WriteRequest
		q.Disk.Name, q.Disk.Serial = "/dev/sda", serial
		q.Holds = inspection.Disk{Kinds: kinds}
		if len(kinds) > 0 {
			q.Holds.Fingerprint = "data-" + kinds[0]
		}
		return q
	}
	report := func(serial string, kinds ...string) agentgate.EraseReport {
		q := question(serial, kinds...)
		return agentgate.EraseReport{Disk: q.Disk, Holds: q.Holds, Method: metal3.MethodATA, Compared: 500, Unattached: 1}
	}
	refusal, err := p.mayErase(t.Context(), "node-1", question("A", "gpt"))
	require.NoError(t, err)
	assert.Contains(t, refusal, "nothing of that kind is being done with it")
	_, err = p.mayErase(t.Context(), "node-2", question("A", "gpt"))
	require.Error(t, err, "a host that is not known yet is no answer")

	begin := func() {
		require.NoError(t, p.erasures.Begin("node-1", metal3.Erasure{Host: "uid-1", Asked: time.Now(), Disks: []metal3.ErasedDisk{
			{WriteDisk: metal3.WriteDisk{Name: "/dev/sda", Serial: "A"}, Holds: inspection.Disk{Kinds: []string{"gpt"}, Fingerprint: "data-gpt"}},
		}}))
	}
	onDisk := func() metal3.Erasure {
		e, err := (&metal3.Ledger[metal3.Erasure]{Dir: dir}).Last("node-1")
		require.NoError(t, err)
		return e
	}
	begin()
	assert.Contains(t, p.describeErasure("node-1"), "is being erased, 0 of 1 disks done")
	refusal, err = p.noteErased(t.Context(), "node-1", report("A", "half"))
	require.NoError(t, err)
	assert.NotEmpty(t, refusal, "a disk that was never let be erased")
	assert.NotEmpty(t, onDisk().Refused)
	require.NoError(t, p.endErasure("node-1", ""))
	assert.Equal(t, onDisk().Refused, onDisk().Failure)

	begin()
	refusal, err = p.mayErase(t.Context(), "node-1", question("A", "gpt"))
	require.NoError(t, err)
	assert.Empty(t, refusal)
	assert.False(t, onDisk().Disks[0].Begun.IsZero())
	refusal, err = p.mayErase(t.Context(), "node-1", question("A", "half"))
	require.NoError(t, err)
	assert.Empty(t, refusal, "it begins again after a power cut")
	for range 2 { // the answer to the first is lost
		refusal, err = p.noteErased(t.Context(), "node-1", report("A"))
		require.NoError(t, err)
		assert.Empty(t, refusal)
	}
	assert.Equal(t, metal3.MethodATA, onDisk().Disks[0].Method)
	assert.Equal(t, 500, onDisk().Disks[0].Compared)
	assert.Equal(t, 1, onDisk().Disks[0].Unattached)
	require.NoError(t, p.endErasure("node-1", ""))
	assert.Empty(t, onDisk().Failure)
	assert.Empty(t, p.describeErasure("node-1"))
	assert.Contains(t, p.Erasure("node-1").Sentence(), "was erased: /dev/sda serialNumber A")
	assert.Nil(t, p.Erasure("node-2"))
}

// TestANodeIsRegisteredWhenIronicKnowsWhatItBoots: Ironic has its name and its BMC before.
func TestANodeIsRegisteredWhenIronicKnowsWhatItBoots(t *testing.T) {
	for _, c := range []struct {
		state, key string
		registered bool
	}{
		{"enroll", "", false},
		{"enroll", "deploy_kernel", false}, // its BMC was refused
		{"verifying", "", false},
		{"manageable", "redfish_address", false},
		{"manageable", "deploy_kernel", true},
		{"available", "deploy_iso", true},
		{"clean failed", "deploy_kernel", true},
	} {
		n := &nodes.Node{ProvisionState: c.state, DriverInfo: map[string]any{c.key: "x"}}
		assert.Equal(t, !c.registered, eraseNodeOf(n).Unregistered, "%+v", c)
	}
}

// TestAnErasureThatEndsLeavesNoPause, also of an object that came with one: it was made from a copy of the old one.
func TestAnErasureThatEndsLeavesNoPause(t *testing.T) {
	p := New(Deps{
		Log:  slog.New(slog.DiscardHandler),
		Site: func() *site.Site { return &site.Site{} },
		Kube: &kube.Cluster{},
	})
	p.erasures.Dir = t.TempDir()
	scheme := runtime.NewScheme()
	require.NoError(t, metal3api.AddToScheme(scheme))
	for name, pause := range map[string]string{"node-1": label.Erasing, "node-2": "me"} {
		h := &metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{
			Namespace: metal3.Namespace, Name: name, UID: "uid-2",
			Annotations: map[string]string{metal3api.PausedAnnotation: pause},
		}}
		api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(h).Build()
		e := metal3.Erasure{Host: "uid-1", Asked: time.Now(), Disks: []metal3.ErasedDisk{{WriteDisk: metal3.WriteDisk{Name: "/dev/sda"}}}}
		require.NoError(t, p.erasures.Begin(name, e))
		step, sentence := metal3.NextErase(e, h, nil)
		require.Equal(t, metal3.EraseEnd, step)
		require.NoError(t, p.doErase(t.Context(), api, name, h, "", step, sentence))

		require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(h), h))
		_, paused := h.Annotations[metal3api.PausedAnnotation]
		assert.Equal(t, pause == "me", paused, name)
		last, err := p.erasures.Last(name)
		require.NoError(t, err)
		assert.False(t, last.IsOpen())
	}
}

// TestACancelledErasureWritesNothing: the ramdisk that comes up all the same is refused.
func TestACancelledErasureWritesNothing(t *testing.T) {
	p := New(Deps{Log: slog.New(slog.DiscardHandler), Site: func() *site.Site { return &site.Site{} }, Kube: &kube.Cluster{}})
	p.erasures.Dir = t.TempDir()
	p.Hosts.Backups = metal3.Backups{Dir: t.TempDir(), Log: p.Log}
	h := metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{
		Namespace: metal3.Namespace, Name: "node-1", UID: "uid-1",
		Annotations: map[string]string{metal3api.PausedAnnotation: label.Erasing},
	}}
	h.Status.Provisioning.State = metal3api.StateAvailable
	require.NoError(t, p.Hosts.Set([]metal3api.BareMetalHost{h}))
	_, err := p.CancelErase("node-1")
	require.EqualError(t, err, "no disks of node-1 are to be erased: there is nothing to cancel")

	blank := metal3.Erasure{Host: "uid-1", Disks: []metal3.ErasedDisk{{WriteDisk: metal3.WriteDisk{Name: "/dev/sda", Serial: "A"}}}}
	var question agentgate.WriteRequest
	question.Disk.Name, question.Disk.Serial = "/dev/sda", "A"
	require.NoError(t, p.erasures.Begin("node-1", blank))
	answer, err := p.CancelErase("node-1")
	require.NoError(t, err)
	assert.True(t, answer.Cancelled)
	refusal, err := p.mayErase(t.Context(), "node-1", question)
	require.NoError(t, err)
	assert.Contains(t, refusal, "has cancelled its erasure")
	require.NoError(t, p.endErasure("node-1", ""))
	assert.Contains(t, p.Erasure("node-1").Sentence(), "was not erased: its owner cancelled that on ")
	assert.Empty(t, p.Erasure("node-1").Failure)

	// Once the ramdisk was let write, it is too late.
	require.NoError(t, p.erasures.Begin("node-1", blank))
	refusal, err = p.mayErase(t.Context(), "node-1", question)
	require.NoError(t, err)
	assert.Empty(t, refusal)
	_, err = p.CancelErase("node-1")
	require.ErrorContains(t, err, "the erasure of node-1 is not cancelled: disk /dev/sda serialNumber A is being erased since")
}

// TestAHostIsNotPausedForEver: DATA was lost while its disks were erased.
func TestAHostIsNotPausedForEver(t *testing.T) {
	p := New(Deps{Log: slog.New(slog.DiscardHandler), Site: func() *site.Site { return &site.Site{} }, Kube: &kube.Cluster{}})
	p.erasures.Dir = t.TempDir()
	p.Hosts.Backups = metal3.Backups{Dir: t.TempDir(), Log: p.Log}
	var hosts []metal3api.BareMetalHost
	for _, name := range []string{"lost", "open", "ended", "torn", "owners", "free"} {
		h := metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{
			Namespace: metal3.Namespace, Name: name, UID: types.UID("uid-" + name),
			Annotations: map[string]string{metal3api.PausedAnnotation: label.Erasing},
		}}
		h.Status.Provisioning.State = metal3api.StateAvailable
		hosts = append(hosts, h)
	}
	hosts[4].Annotations[metal3api.PausedAnnotation] = "me"
	delete(hosts[5].Annotations, metal3api.PausedAnnotation)
	require.NoError(t, p.Hosts.Set(hosts))
	for _, name := range []string{"open", "ended"} {
		require.NoError(t, p.erasures.Begin(name, metal3.Erasure{Host: "uid-" + name, Disks: []metal3.ErasedDisk{{}}}))
	}
	require.NoError(t, p.endErasure("ended", "x"))
	require.NoError(t, os.WriteFile(filepath.Join(p.erasures.Dir, "torn.json"), []byte("[{"), 0o600))
	p.erasures = &metal3.Ledger[metal3.Erasure]{Dir: p.erasures.Dir}

	read := func(_ context.Context, name string) (*metal3api.BareMetalHost, error) {
		i := slices.IndexFunc(hosts, func(h metal3api.BareMetalHost) bool { return h.Name == name })
		h := hosts[i].DeepCopy()
		if name == "ended" { // the watch has not said yet that its pause was taken off
			delete(h.Annotations, metal3api.PausedAnnotation)
		}
		return h, nil
	}
	for range 2 {
		require.NoError(t, p.beginLost(t.Context(), read))
		open, err := p.erasures.Open()
		require.NoError(t, err)
		assert.ElementsMatch(t, []string{"lost", "open"}, slices.Collect(maps.Keys(open)))
		assert.True(t, open["lost"].Lost)
		assert.Equal(t, "uid-lost", open["lost"].Host)
		assert.False(t, open["open"].Lost)
	}
	assert.Contains(t, p.describeErasure("lost"), "the record of that was lost; it is made available again")

	// No disk is erased for it; the pause goes.
	refusal, err := p.mayErase(t.Context(), "lost", agentgate.WriteRequest{})
	require.NoError(t, err)
	assert.Contains(t, refusal, "is not one that is to be erased")
	scheme := runtime.NewScheme()
	require.NoError(t, metal3api.AddToScheme(scheme))
	h, err := read(t.Context(), "lost")
	require.NoError(t, err)
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(h).Build()
	last, err := p.erasures.Last("lost")
	require.NoError(t, err)
	step, sentence := metal3.NextErase(last, h, &metal3.EraseNode{State: "available"})
	require.Equal(t, metal3.EraseRelease, step, sentence)
	require.NoError(t, p.doErase(t.Context(), api, "lost", h, "", step, sentence))
	require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(h), h))
	assert.NotContains(t, h.Annotations, metal3api.PausedAnnotation)
	assert.Contains(t, h.Annotations, metal3api.InspectAnnotationPrefix)
	assert.Contains(t, p.Erasure("lost").Sentence(), "which of its disks were erased is not known")
}

// TestAPauseOfTheOwnerIsNotTakenAway: it came after the host was read.
func TestAPauseOfTheOwnerIsNotTakenAway(t *testing.T) {
	p := New(Deps{Log: slog.New(slog.DiscardHandler)})
	p.erasures.Dir = t.TempDir()
	scheme := runtime.NewScheme()
	require.NoError(t, metal3api.AddToScheme(scheme))
	h := &metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{
		Namespace: metal3.Namespace, Name: "node-1", UID: "uid-1",
		Annotations: map[string]string{metal3api.PausedAnnotation: label.Erasing},
	}}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(h).Build()
	require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(h), h))
	read := h.DeepCopy()
	h.Annotations[metal3api.PausedAnnotation] = "me"
	require.NoError(t, api.Update(t.Context(), h))

	require.NoError(t, p.erasures.Begin("node-1", metal3.Erasure{Host: "uid-1", Disks: []metal3.ErasedDisk{{}}}))
	for _, step := range []metal3.EraseStep{metal3.EraseRelease, metal3.EraseEnd, metal3.EraseResume} {
		require.Error(t, p.doErase(t.Context(), api, "node-1", read.DeepCopy(), "", step, "x"), "%s", step)
		require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(h), h))
		assert.Equal(t, "me", h.Annotations[metal3api.PausedAnnotation], "%s", step)
	}
	last, err := p.erasures.Last("node-1")
	require.NoError(t, err)
	assert.True(t, last.IsOpen(), "it is asked again with the host as it is now")
}

// TestANodeThatIsReplacedIsNotErased, and the other way round.
func TestANodeThatIsReplacedIsNotErased(t *testing.T) {
	p := New(Deps{Log: slog.New(slog.DiscardHandler)})
	p.erasures.Dir, p.replacements.Dir = t.TempDir(), t.TempDir()
	p.Hosts.Backups = metal3.Backups{Dir: t.TempDir(), Log: p.Log}
	_, err := p.eraseRequest(t.Context(), "node-1", nil)
	require.NoError(t, err)

	require.NoError(t, p.replacements.Begin("node-1", metal3.Replacement{Host: "uid-1"}))
	_, err = p.eraseRequest(t.Context(), "node-1", nil)
	require.ErrorContains(t, err, "it is replaced: ")
	require.ErrorContains(t, err, "try again when that has ended")
	_, err = p.eraseRequest(t.Context(), "node-2", nil)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(p.replacements.Dir, "node-3.json"), []byte("[{"), 0o600))
	p.replacements = &metal3.Ledger[metal3.Replacement]{Dir: p.replacements.Dir}
	_, err = p.eraseRequest(t.Context(), "node-3", nil)
	require.ErrorContains(t, err, "may be in the middle of being replaced")

	require.NoError(t, p.erasures.Begin("node-4", metal3.Erasure{Host: "uid-4", Disks: []metal3.ErasedDisk{{}}}))
	_, err = p.prepareReplacement("node-4", nil)
	require.ErrorContains(t, err, "it is being erased")
}

// TestABusyIronicCostsNoTry: nothing was started on the server. What Ironic refuses for good comes to its end.
func TestABusyIronicCostsNoTry(t *testing.T) {
	code := http.StatusConflict
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
	t.Cleanup(server.Close)
	p := New(Deps{Log: slog.New(slog.DiscardHandler)})
	p.erasures.Dir = t.TempDir()
	endpoint := server.URL
	p.api = &ironic.Client{Access: func() (ironic.Access, error) {
		root := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
		return ironic.Access{Endpoint: endpoint, Username: "firstlight", Password: "secret", CA: root}, nil
	}}
	require.NoError(t, p.erasures.Begin("node-1", metal3.Erasure{Host: "uid-1", Disks: []metal3.ErasedDisk{{}}}))
	for _, c := range []struct {
		code  int
		tries int
	}{
		{http.StatusConflict, 0},
		{http.StatusServiceUnavailable, 0},
		{http.StatusBadRequest, 1},
		{http.StatusAccepted, 2},
		{0, 2}, // it does not answer
	} {
		if code = c.code; code == 0 {
			endpoint = "https://127.0.0.1:1"
		}
		err := p.doErase(t.Context(), nil, "node-1", nil, "u-1", metal3.EraseClean, "")
		assert.Equal(t, c.code != http.StatusAccepted, err != nil, "%d", c.code)
		e, err := p.erasures.Last("node-1")
		require.NoError(t, err)
		assert.Equal(t, c.tries, e.Tries, "%d", c.code)
		assert.Contains(t, e.Failure, "ask Ironic to clean node u-1")
	}
}

// TestAStandInIsNoBMC: a server that nobody can switch on is not erased, also after it was taken out of site.yaml.
func TestAStandInIsNoBMC(t *testing.T) {
	standIn := &standinbmc.Server{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	bmc, err := standIn.BMC("node-1")
	require.NoError(t, err)
	h := &metal3api.BareMetalHost{}
	h.Spec.BMC.Address = string(bmc.Address)
	assert.False(t, hasBMC(h))
	h.Spec.BMC.Address = "redfish+http://127.0.0.1:61870/redfish/v1/Systems/1"
	assert.True(t, hasBMC(h))
}

// TestAnAnswerSaysWhichHostAndInspectionItIsOf: a new host may have the name of the old one, and disks of its names.
func TestAnAnswerSaysWhichHostAndInspectionItIsOf(t *testing.T) {
	h := &metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "uid-1"}}
	h.Status.HardwareDetails = &metal3api.HardwareDetails{Storage: []metal3api.Storage{{Name: "/dev/sda"}}}
	assert.True(t, describeErase(h, nil).Inspected.IsZero())

	ended := time.Date(2026, 11, 29, 12, 0, 1, 0, time.UTC)
	h.Status.OperationHistory.Inspect.End = metav1.NewTime(ended.In(time.FixedZone("", 3600)))
	got := describeErase(h, nil)
	assert.Equal(t, "uid-1", got.Host)
	assert.Equal(t, ended, got.Inspected)
}
