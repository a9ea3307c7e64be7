package nodes_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/manifest"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox/nodes"
)

// twoWebPods is a Deployment of which one pod at least must serve, and which gives traffic time to go elsewhere when a pod
// is told to end; and its Service.
const twoWebPods = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 15
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: web}}}
      containers:
      - name: web
        image: %s
        imagePullPolicy: IfNotPresent
        command: [/usr/bin/firstlight-node, probe, "--listen=:8080"]
        readinessProbe: {httpGet: {port: 8080, path: /who}, periodSeconds: 1}
        lifecycle: {preStop: {sleep: {seconds: 5}}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: default}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
`

// askForever asks a Service every 100 ms, until a file is there, and prints how often it did and how often in vain.
const askForever = `asked=0 failed=0
while [ ! -e /run/client-ends ]; do
	asked=$((asked + 1))
	curl --silent --fail --max-time 2 --output /dev/null http://%s/who || { failed=$((failed + 1)); date +%%T.%%N >&2; }
	sleep 0.1
done
echo $asked $failed`

// TestNodesAreUpdatedWhileTheyServe: a package is uploaded in a newer version. A NodeUpdate brings it to a control plane and
// two workers, of which one must restart, and the appliance's power is cut in the middle. Somebody who asks a Service all
// the time notices nothing, and nothing is done twice.
func TestNodesAreUpdatedWhileTheyServe(t *testing.T) {
	long(t)
	b := newWhole(t, "update", 3)
	for i, s := range b.Servers {
		b.host(i+1, s)
		b.on(s, "rm -f /boot/vmlinuz-*") // a sandbox runs this machine's kernel, and was not started by another one
	}
	uploader, err := sandbox.NewUploader(b.ctx, b.Appliance, t.TempDir(), "alpha")
	require.NoError(t, err)
	push := func(version string) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "greeting.deb")
		b.greeting(file, version)
		_, err := uploader.Artifact(b.ctx, "push", file, "binary/greeting_"+version+"_all.deb")
		require.NoError(t, err)
	}
	b.apply(`{apiVersion: bpa.akraino.org/v1alpha1, kind: Provisioning, metadata: {name: edge, namespace: default, labels: {cluster: edge, owner: alpha}},
spec: {masters: [{master-1: {mac-address: '52:54:00:00:00:01'}}], workers: [{worker-2: {mac-address: '52:54:00:00:00:02'}}, {worker-3: {mac-address: '52:54:00:00:00:03'}}]}}`)
	b.until("bpa", "edge")
	push("1.0")
	b.apply(`{apiVersion: bpa.akraino.org/v1alpha1, kind: Software, metadata: {name: greeting, namespace: default, labels: {cluster: edge}},
spec: {masterSoftware: [curl, greeting: {version: '1.0'}], workerSoftware: [greeting: {version: '1.0'}]}}`)
	b.until("sw", "greeting")
	b.appliance("kubectl", "delete", "sw", "greeting")

	b.applyToCluster(fmt.Sprintf(twoWebPods, manifest.NodeImage))
	b.kubectl("rollout", "status", "deployment/web", "--timeout=5m")
	client := b.startClient(b.Servers[0], b.kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"))
	boots := b.boots()
	restarted := b.followRestarts(b.Servers[1])

	push("1.1")
	b.await(b.Servers[0], "apt-get -qq update; apt-cache madison greeting", "1[.]1")
	b.on(b.Servers[1], "touch /run/reboot-required")
	b.apply(`{apiVersion: bpa.akraino.org/v1alpha1, kind: NodeUpdate, metadata: {name: november, namespace: default, labels: {cluster: edge}}, spec: {}}`)
	b.awaitNodePhase("worker-2", v1alpha1.NodeDraining)
	t.Log("\n" + b.appliance("kubectl", "get", "nu", "-o", "wide"))
	require.NoError(t, b.CutAppliance())
	t.Log("the appliance has no power")
	require.NoError(t, b.PowerOnAppliance(b.ctx))
	b.until("nu", "november")
	b.appliance("kubectl", "wait", "nu/november", "--for=condition=Ready", "--timeout=1m")
	t.Log("\n" + b.appliance("kubectl", "get", "nu", "-o", "wide") + b.appliance("kubectl", "describe", "nu", "november"))

	asked, failed := client()
	t.Logf("the Service was asked %d times, and did not answer %d times", asked, failed)
	assert.Greater(t, asked, 50, "it was not asked all the time")
	assert.Zero(t, failed)
	require.NoError(t, <-restarted)
	after := b.boots()
	assert.NotEqual(t, boots[1], after[1], "the worker did not restart")
	assert.Equal(t, []string{boots[0], boots[2]}, []string{after[0], after[2]}, "a node restarted that need not")
	for _, s := range b.Servers {
		assert.Equal(t, "1.1\n", b.on(s, `dpkg-query --show --showformat='${Version}\n' greeting`))
		assert.Equal(t, "1\n", b.on(s, "grep -c ' upgrade greeting' /var/log/dpkg.log"), "it was installed more than once")
	}
	assert.Equal(t, "master-1 \nworker-2 \nworker-3 \n", b.kubectl("get", "nodes", "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.spec.unschedulable}{.metadata.annotations.bpa\.akraino\.org/node-update}{"\n"}{end}`))
}

// applyToCluster applies objects to the cluster.
func (b *bench) applyToCluster(text string) {
	b.t.Helper()
	require.NoError(b.t, b.Servers[0].WriteFile("/root/objects.yaml", []byte(text), 0o644))
	b.t.Log(b.on(b.Servers[0], onNode+"apply -f /root/objects.yaml"))
}

// startClient asks a Service from a server until the returned function is called, which says how often, and how often it
// did not answer.
func (b *bench) startClient(s *nodes.Server, address string) (end func() (asked, failed int)) {
	b.t.Helper()
	cmd := s.Command(b.ctx, "sh", "-c", fmt.Sprintf(askForever, address))
	cmd.Stderr = b.t.Output()
	var out strings.Builder
	cmd.Stdout = &out
	require.NoError(b.t, cmd.Start())
	return func() (asked, failed int) {
		b.t.Helper()
		require.NoError(b.t, s.WriteFile("/run/client-ends", nil, 0o644))
		require.NoError(b.t, cmd.Wait())
		_, err := fmt.Sscan(out.String(), &asked, &failed)
		require.NoError(b.t, err)
		return asked, failed
	}
}

// boots are the boot IDs of all servers.
func (b *bench) boots() (all []string) {
	b.t.Helper()
	for _, s := range b.Servers {
		id, err := s.Boot(b.ctx)
		require.NoError(b.t, err)
		all = append(all, id)
	}
	return all
}

// followRestarts switches a server on when it restarts, once. Until then nothing else may use it.
func (b *bench) followRestarts(s *nodes.Server) <-chan error {
	result := make(chan error, 1)
	running := s.Sandbox
	go func() {
		if err := running.AwaitEnd(b.ctx); err != nil {
			result <- err
			return
		}
		b.t.Logf("%s restarts", s.Label())
		if err := s.CutPower(); err != nil {
			result <- err
			return
		}
		result <- s.PowerOn(b.ctx)
	}()
	return result
}

// awaitNodePhase waits until the NodeUpdate november says that a node is in a phase.
func (b *bench) awaitNodePhase(node, phase string) {
	b.t.Helper()
	var o v1alpha1.NodeUpdate
	for b.ctx.Err() == nil {
		out, err := b.Appliance.Run(b.ctx, "kubectl", "get", "nu", "november", "-o", "json")
		if err == nil && json.Unmarshal([]byte(out), &o) == nil {
			for _, n := range o.Status.Nodes {
				if n.Name == node && n.Phase == phase {
					return
				}
			}
		}
		time.Sleep(200 * time.Millisecond)
	}
	require.Fail(b.t, "never "+phase, "%+v", o.Status)
}
