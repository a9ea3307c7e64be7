package metal3

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/appliance/kube"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// hostAPI is a real API server with BareMetalHosts and the appliance's policies, without an operator.
type hostAPI struct {
	t          *testing.T
	client     client.Client
	kubectl    string
	kubeconfig string   // of the daemon
	asRoot     []string // flags by which kubectl is root's on the appliance
	transcript strings.Builder
}

// onEach runs a test where a policy holds hosts, and where a webhook does because the API server knows no such policy.
func onEach(t *testing.T, test func(a *hostAPI)) {
	t.Run("policy", func(t *testing.T) {
		test(newHostAPI(t, sandbox.APIServer(t), Guard{Daemon: kube.DaemonUser}.Objects()))
	})
	t.Run("webhook", func(t *testing.T) {
		server := sandbox.ForeignAPIServer(t)
		test(newHostAPI(t, server, startWebhook(t, server)))
	})
}

func newHostAPI(t *testing.T, server *sandbox.API, guard []client.Object) *hostAPI {
	t.Helper()
	kubectl, err := sandbox.BuildProgram(t.Context(), "kubernetes")
	require.NoError(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", server.Kubeconfig)
	require.NoError(t, err)
	scheme, err := Scheme()
	require.NoError(t, err)
	a := &hostAPI{t: t, kubectl: kubectl, kubeconfig: server.Kubeconfig}
	a.asRoot = []string{"--client-certificate=" + server.OwnerCert, "--client-key=" + server.OwnerKey}
	a.client, err = client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)

	crd, err := sandbox.HostDefinition(t.Context())
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "crd.yaml")
	require.NoError(t, os.WriteFile(file, crd, 0o600))
	a.must("create", "-f", file)
	a.must("wait", "--for=condition=Established", "crd/baremetalhosts.metal3.io", "--timeout=60s")
	a.must("create", "namespace", Namespace)

	set, err := apply.New("test", guard...)
	require.NoError(t, err)
	require.NoError(t, set.Apply(t.Context(), a.client))
	// The policies hold some moments after they were written.
	probe := filepath.Join(t.TempDir(), "probe.yaml")
	require.NoError(t, os.WriteFile(probe, []byte(`{apiVersion: metal3.io/v1alpha1, kind: BareMetalHost,
metadata: {name: probe, namespace: metal3}, spec: {online: true}}`), 0o600))
	last := ""
	require.Eventually(t, func() bool {
		out, err := a.run("apply", "--dry-run=server", "-o", "yaml", "-f", probe)
		elsewhere, refused := a.run("apply", "--dry-run=server", "-n", "default", "-f", "document.yaml")
		if said := out + elsewhere; said != last {
			t.Log(said)
			last = said
		}
		return err == nil && strings.Contains(out, label.Hold) && refused != nil
	}, 5*time.Minute, time.Second)
	return a
}

func (a *hostAPI) run(args ...string) (string, error) {
	cmd := exec.CommandContext(a.t.Context(), a.kubectl, append([]string{"kubectl", "--kubeconfig", a.kubeconfig}, args...)...)
	cmd.Dir = "testdata"
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (a *hostAPI) must(args ...string) string {
	a.t.Helper()
	out, err := a.run(args...)
	require.NoError(a.t, err, "%s", out)
	return out
}

// record runs kubectl as the page shows it.
func (a *hostAPI) record(args ...string) string {
	out, _ := a.run(args...)
	a.transcript.WriteString("$ kubectl " + strings.Join(args, " ") + "\n" + out)
	return out
}

func (a *hostAPI) host(name string) metal3api.BareMetalHost {
	a.t.Helper()
	var h metal3api.BareMetalHost
	require.NoError(a.t, a.client.Get(a.t.Context(), client.ObjectKey{Namespace: Namespace, Name: name}, &h))
	return h
}

// TestTheDocumentsObjectsAreAcceptedAndHeld applies the document's Secret and BareMetalHost with kubectl: refused with
// a way out in a namespace that nobody looks at, accepted in the other, and paused until it was checked.
func TestTheDocumentsObjectsAreAcceptedAndHeld(t *testing.T) { onEach(t, testDocument) }

func testDocument(a *hostAPI) {
	t := a.t
	out := a.record("apply", "-f", "document.yaml")
	assert.Contains(t, out, "kubectl -n metal3 apply", "no way out")
	out = a.record("-n", "metal3", "apply", "-f", "document.yaml")
	assert.Contains(t, out, "baremetalhost.metal3.io/compute-1 created")

	h := a.host("compute-1")
	assert.Equal(t, label.Hold, h.Annotations[annotationPaused], "it would be powered on unchecked")
	assert.Equal(t, metal3api.CleaningModeDisabled, h.Spec.AutomatedCleaningMode, "its disks would be cleaned")
	assert.NotNil(t, h.Spec.Image)
	goldentest.CheckBlock(t, "../../../docs/metal.md", "applied", a.transcript.String())

	// Taking the annotation away by hand does not switch it on.
	a.must("-n", "metal3", "annotate", "bmh", "compute-1", annotationPaused+"-")
	assert.Equal(t, label.Hold, a.host("compute-1").Annotations[annotationPaused])
}

// TestAnImageIsCheckedHoweverItComes: a host that is registered and gets an image later is held as well, whoever gives
// it and in however many requests; what was cleared, installed or is being restored is not.
func TestAnImageIsCheckedHoweverItComes(t *testing.T) { onEach(t, testImages) }

func testImages(a *hostAPI) {
	t := a.t
	const url = "http://172.22.0.1:6180/images/debian-13.raw"
	file := filepath.Join(t.TempDir(), "host.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`{apiVersion: metal3.io/v1alpha1, kind: BareMetalHost,
metadata: {name: later, annotations: {firstlight.dev/cleared: registration}},
spec: {online: true, automatedCleaningMode: metadata}}`), 0o600))
	a.must("-n", "metal3", "apply", "-f", file)
	h := a.host("later")
	require.NotContains(t, h.Annotations, annotationPaused, "its registration was cleared")
	require.Equal(t, metal3api.CleaningModeDisabled, h.Spec.AutomatedCleaningMode)

	setStatus := func(state metal3api.ProvisioningState, image string) {
		h := a.host("later")
		h.Status.Provisioning.State = state
		h.Status.Provisioning.Image.URL = image
		h.Status.OperationalStatus, h.Status.ErrorType = "OK", ""
		require.NoError(t, a.client.Status().Update(t.Context(), &h))
	}
	patch := func(text string) {
		t.Helper()
		a.must("-n", "metal3", "patch", "bmh", "later", "--type=merge", "-p", text)
	}
	held := func() bool { return a.host("later").Annotations[annotationPaused] == label.Hold }
	image := `{"spec":{"image":{"url":"` + url + `","checksum":"x"}}}`
	release := `{"metadata":{"annotations":{"` + annotationPaused + `":null}}}`

	setStatus(metal3api.StateAvailable, "")
	patch(image)
	assert.True(t, held(), "an image that came later is installed unchecked")
	patch(release)
	assert.True(t, held(), "released before it was cleared")
	asOwner := []string{"--as=ann@laptop", "--as-group=system:masters"}
	clear := `{"metadata":{"annotations":{"` + annotationPaused + `":null,"` + label.Cleared + `":"` +
		ClearedImage(a.host("later").Spec.Image) + `"}}}`
	var out string
	var err error
	for who, flags := range map[string][]string{"a person": asOwner, "root": a.asRoot} {
		out, err = a.run(append(flags, "-n", "metal3", "patch", "bmh", "later", "--type=merge", "-p", clear)...)
		require.Error(t, err, "%s clears a host: %s", who, out)
		assert.Contains(t, out, "the appliance alone sets it")
	}
	patch(`{"metadata":{"annotations":{"` + annotationPaused + `":null,"` + label.Cleared + `":"` + url + `"}}}`)
	assert.True(t, held(), "cleared for a URL, whatever is there")
	patch(clear)
	assert.False(t, held(), "held although it was cleared")
	a.must(append(asOwner, "-n", "metal3", "patch", "bmh", "later", "--type=merge", "-p", `{"spec":{"description":"w"}}`)...)
	assert.False(t, held(), "held by an edit of something else")

	for state, changes := range map[metal3api.ProvisioningState][]string{
		metal3api.StateAvailable: {
			`{"spec":{"image":{"checksum":"y"}}}`,
			`{"spec":{"image":{"checksumType":"sha256"}}}`,
			`{"spec":{"image":{"format":"live-iso"}}}`,
			`{"spec":{"image":{"checksum":"y"}},"metadata":{"annotations":{"` + annotationStatus + `":"{}"}}}`,
			`{"metadata":{"annotations":{"` + label.Cleared + `":null}}}`,
		},
		metal3api.StateProvisioning: {`{"spec":{"image":{"checksum":"y"}}}`},
	} {
		setStatus(state, "")
		for _, change := range changes {
			before := a.host("later").Spec.Image
			a.must(append(asOwner, "-n", "metal3", "patch", "bmh", "later", "--type=merge", "-p", change)...)
			assert.True(t, held(), "%s: %s is not checked", state, change)
			text, err := json.Marshal(fields{
				"metadata": fields{"annotations": fields{
					annotationPaused: nil, annotationStatus: nil, label.Cleared: ClearedImage(before),
				}},
				"spec": fields{"image": imageFields(before)},
			})
			require.NoError(t, err)
			patch(string(text))
			require.False(t, held(), "as it was before")
		}
	}

	setStatus(metal3api.StateProvisioned, url)
	patch(`{"spec":{"description":"y"}}`)
	assert.False(t, held(), "held although that image is on its disk")

	out, err = a.run("-n", "metal3", "patch", "bmh", "later", "--type=merge", "-p", `{"spec":{"image":{"url":"http://172.22.0.1/other"}}}`)
	assert.Error(t, err, out)
	a.must("-n", "metal3", "annotate", "bmh", "later", AllowWipe+"=http://172.22.0.1/other")
	patch(`{"spec":{"image":{"url":"http://172.22.0.1/other"}}}`)
	assert.True(t, held(), "another image is installed unchecked")

	// A host that somebody saved, or moves here, comes without what was said of it elsewhere.
	require.NoError(t, os.WriteFile(file, []byte(`{apiVersion: metal3.io/v1alpha1, kind: BareMetalHost,
metadata: {name: saved, annotations: {firstlight.dev/cleared: registration}}, spec: {online: true}}`), 0o600))
	a.must(append(a.asRoot, "-n", "metal3", "apply", "-f", file)...)
	h = a.host("saved")
	assert.NotContains(t, h.Annotations, label.Cleared)
	assert.Equal(t, label.Hold, h.Annotations[annotationPaused], "powered on unchecked")
}

// TestAHostWithoutImageIsNotPoweredOnUnchecked: a host whose image is missing is held until its registration is cleared,
// whoever takes the pause away, of whatever value; and from then on it is not held.
func TestAHostWithoutImageIsNotPoweredOnUnchecked(t *testing.T) { onEach(t, testPauses) }

func testPauses(a *hostAPI) {
	t := a.t
	file := filepath.Join(t.TempDir(), "host.yaml")
	pause := func(name string) string { return a.host(name).Annotations[annotationPaused] }
	patch := func(name, value string, flags ...string) {
		t.Helper()
		a.must(append(flags, "-n", "metal3", "patch", "bmh", name, "--type=merge", "-p",
			`{"metadata":{"annotations":{"`+annotationPaused+`":`+value+`}}}`)...)
	}
	asOwner := []string{"--as=ann@laptop", "--as-group=system:masters"}
	for name, annotations := range map[string]string{
		"bare":  "",
		"owned": annotationPaused + `: "rack 7 is being cabled"`,
	} {
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `{apiVersion: metal3.io/v1alpha1, kind: BareMetalHost,
metadata: {name: %s, namespace: metal3, annotations: {%s}}, spec: {online: true}}`, name, annotations), 0o600))
		a.must("apply", "-f", file)
	}
	require.Equal(t, label.Hold, pause("bare"))
	require.Equal(t, "rack 7 is being cabled", pause("owned"))

	for _, name := range []string{"bare", "owned"} {
		for who, flags := range map[string][]string{"a person": asOwner, "root": a.asRoot, "the daemon": nil} {
			patch(name, "null", flags...)
			assert.Equal(t, label.Hold, pause(name), "%s has %s powered on unchecked", who, name)
		}
		patch(name, `"mine"`)
		assert.Equal(t, "mine", pause(name), "its owner may pause it")
		patch(name, "null")
		assert.Equal(t, label.Hold, pause(name), "powered on unchecked by way of another pause")
		a.must("-n", "metal3", "annotate", "bmh", name, annotationPaused+"-", annotationStatus+"={}")
		assert.Equal(t, label.Hold, pause(name), "powered on unchecked as if it were restored")
		a.must("-n", "metal3", "annotate", "bmh", name, annotationStatus+"-")

		h := a.host(name)
		require.NoError(t, Reconciler{Client: a.client}.patchApplied(
			t.Context(), StepRegister, NodeObjects{Applied: true, Host: h.DeepCopy()}, &h,
		))
		h = a.host(name)
		require.Equal(t, clearedRegistration, h.Annotations[label.Cleared])
		assert.NotContains(t, h.Annotations, annotationPaused, "held although it was cleared")
		patch(name, `"mine"`)
		patch(name, "null", asOwner...)
		assert.Empty(t, pause(name), "held although it was cleared")
		a.must("-n", "metal3", "annotate", "bmh", name, label.Cleared+"-")
		assert.Equal(t, label.Hold, pause(name), "no longer cleared, and not powered on yet")
	}

	// One that the operator has acted on has been powered on; what was said of it may have been lost with a backup.
	h := a.host("bare")
	h.Status.Provisioning.State, h.Status.OperationalStatus, h.Status.ErrorType = metal3api.StateAvailable, "OK", ""
	require.NoError(t, a.client.Status().Update(t.Context(), &h))
	patch("bare", "null")
	assert.Empty(t, pause("bare"), "held although nothing is left to clear")
}

// TestNoDiskIsErasedPastTheQuestion: what would write to disks without asking is refused, as it comes and later, and
// says what to do instead; all else of a host may be edited.
func TestNoDiskIsErasedPastTheQuestion(t *testing.T) { onEach(t, testDisks) }

func testDisks(a *hostAPI) {
	t := a.t
	const host = `{apiVersion: metal3.io/v1alpha1, kind: BareMetalHost, metadata: {name: disks, namespace: metal3}, spec: {online: true%s}}`
	file := filepath.Join(t.TempDir(), "host.yaml")
	apply := func(with string) (string, error) {
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, host, with), 0o600))
		return a.run("apply", "-f", file)
	}
	bad := map[string]string{
		`, raid: {softwareRAIDVolumes: [{level: "1"}]}`: "configure it with the controller's own tool",
		`, raid: {hardwareRAIDVolumes: []}`:             "configure it with the controller's own tool",
		`, customDeploy: {method: install_other}`:       "remove customDeploy and name an image",
	}
	for with, want := range bad {
		out, err := apply(with)
		require.Error(t, err, "%s: a new host", with)
		assert.Contains(t, out, want)
	}

	out, err := apply("")
	require.NoError(t, err, out)
	for with, want := range bad {
		out, err := apply(with)
		require.Error(t, err, "%s: a host that is there", with)
		assert.Contains(t, out, want)
	}

	out, err = apply(`, description: "x", rootDeviceHints: {deviceName: /dev/sda}`)
	assert.NoError(t, err, out)
}
