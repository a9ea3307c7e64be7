package metal3

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/freeport"
	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/appliance/kube"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// startWebhook answers an API server on the loopback, where no Service leads to, until the test ends. It returns the rules
// for hosts with that.
func startWebhook(t *testing.T, server *sandbox.API) []client.Object {
	t.Helper()
	objects, start := newWebhook(t, server)
	t.Cleanup(start())
	return objects
}

// newWebhook is startWebhook where the webhook is answered from a start to an end.
func newWebhook(t *testing.T, server *sandbox.API) (guard []client.Object, start func() (stop func())) {
	t.Helper()
	authority, err := os.ReadFile(server.CAFile)
	require.NoError(t, err)
	port, err := freeport.FindTCP()
	require.NoError(t, err)
	guard = Guard{Daemon: kube.DaemonUser, WebhookCA: authority}.Objects()
	for _, o := range guard {
		configuration, isWebhook := o.(*admissionv1.MutatingWebhookConfiguration)
		if !isWebhook {
			continue
		}
		for i := range configuration.Webhooks {
			c := &configuration.Webhooks[i].ClientConfig
			c.URL, c.Service = ptr.To(fmt.Sprintf("https://127.0.0.1:%d%s", port, *c.Service.Path)), nil
		}
	}

	dir := t.TempDir()
	for from, to := range map[string]string{server.ServerCert: "tls.crt", server.ServerKey: "tls.key"} {
		require.NoError(t, os.Symlink(from, filepath.Join(dir, to)))
	}
	return guard, func() func() {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- serveHold(ctx, "127.0.0.1", port, dir) }()
		return func() {
			cancel()
			assert.NoError(t, <-ended)
		}
	}
}

// TestNoHostEntersWhileNobodyAnswers: without the webhook's server what would be held is refused, and the appliance's own
// hosts and what the operator writes are not.
func TestNoHostEntersWhileNobodyAnswers(t *testing.T) {
	server := sandbox.ForeignAPIServer(t)
	guard, start := newWebhook(t, server)
	stop := start()
	a := newHostAPI(t, server, guard)
	file := filepath.Join(t.TempDir(), "host.yaml")
	write := func(name, with string) {
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `{apiVersion: metal3.io/v1alpha1, kind: BareMetalHost,
metadata: {name: %s, namespace: metal3, annotations: {%s}}, spec: {online: true, automatedCleaningMode: disabled}}`, name, with), 0o600))
	}
	write("before", "")
	a.must("apply", "-f", file)
	require.Equal(t, label.Hold, a.host("before").Annotations[annotationPaused])
	stop()

	write("other", "")
	out, err := a.run(append(a.asRoot, "apply", "-f", file)...)
	require.Error(t, err, "a host enters unchecked: %s", out)
	assert.Contains(t, out, "hold."+HoldPolicyName)
	for _, patch := range []string{
		`{"metadata":{"annotations":{"` + annotationPaused + `":null}},"spec":{"image":{"url":"http://172.22.0.1/a","checksum":"x"}}}`,
		`{"spec":{"automatedCleaningMode":"metadata"}}`,
	} {
		out, err = a.run("-n", "metal3", "patch", "bmh", "before", "--type=merge", "-p", patch)
		require.Error(t, err, "%s is not checked: %s", patch, out)
	}

	write("own", label.Cleared+": "+clearedRegistration)
	a.must("apply", "-f", file)
	assert.NotContains(t, a.host("own").Annotations, annotationPaused)
	a.must("-n", "metal3", "patch", "bmh", "before", "--type=merge", "-p", `{"metadata":{"finalizers":["baremetalhost.metal3.io"]}}`)

	t.Cleanup(start())
	write("other", "")
	require.Eventually(t, func() bool {
		out, err := a.run(append(a.asRoot, "apply", "-f", file)...)
		if err != nil {
			t.Log(out)
		}
		return err == nil
	}, 5*time.Minute, time.Second)
	assert.Equal(t, label.Hold, a.host("other").Annotations[annotationPaused])
}

// TestTheWebhookIsAnsweredInTheOperatorsPod: by the Service that the API server calls, and it fails closed.
func TestTheWebhookIsAnsweredInTheOperatorsPod(t *testing.T) {
	o := testOperator(t)
	o.Holds = true
	objects, err := o.Objects()
	require.NoError(t, err)
	var service *corev1.Service
	for _, object := range objects {
		if s, ok := object.(*corev1.Service); ok {
			service = s
		}
	}
	require.NotNil(t, service)
	deployment := o.deployment()
	assert.Subset(t, deployment.Spec.Template.Labels, service.Spec.Selector)
	containers := deployment.Spec.Template.Spec.Containers
	require.Len(t, containers, 2)
	assert.Equal(t, service.Spec.Ports[0].TargetPort.IntVal, containers[1].Ports[0].ContainerPort)
	for _, m := range containers[1].VolumeMounts {
		assert.True(t, m.ReadOnly, m.Name)
	}

	objects = Guard{Daemon: "daemon", WebhookCA: []byte("root")}.Objects()
	configuration := objects[len(objects)-1].(*admissionv1.MutatingWebhookConfiguration)
	require.Len(t, configuration.Webhooks, 3)
	for _, w := range configuration.Webhooks {
		assert.Equal(t, service.Name, w.ClientConfig.Service.Name)
		assert.Equal(t, service.Namespace, w.ClientConfig.Service.Namespace)
		assert.Equal(t, service.Spec.Ports[0].Port, *w.ClientConfig.Service.Port)
		assert.Equal(t, []byte("root"), w.ClientConfig.CABundle)
		assert.Equal(t, admissionv1.Fail, *w.FailurePolicy)
	}
}
