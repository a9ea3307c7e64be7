package sandbox_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/process"
)

// Asks this test's own program to be the storm instead of a test.
const (
	stormServer = "FIRSTLIGHT_STORM_SERVER"
	stormToken  = "FIRSTLIGHT_STORM_TOKEN"
)

func TestMain(m *testing.M) {
	if server := os.Getenv(stormServer); server != "" {
		storm(server, os.Getenv(stormToken))
	}
	os.Exit(m.Run())
}

// storm is two hundred clients without manners: each lists all secrets and pods on a connection of
// its own, and again at once, whatever the answer is. It lasts until it is killed.
func storm(server, token string) {
	for i := range 200 {
		go func() {
			client := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
				DisableKeepAlives: true,
				TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // it has nothing to lose
			}}
			for {
				request, err := http.NewRequest(http.MethodGet, server+[]string{"/api/v1/secrets", "/api/v1/pods"}[i%2], nil)
				if err != nil {
					panic(err)
				}
				request.Header.Set("Authorization", "Bearer "+token)
				response, err := client.Do(request)
				if err != nil {
					time.Sleep(100 * time.Millisecond)
					continue
				}
				_, _ = io.Copy(io.Discard, response.Body)
				response.Body.Close()
			}
		}()
	}
	select {}
}

// TestAStormOnASlowAPIServer kills an API server that has a twentieth of a processor, while two hundred
// clients ask it for all they can. It comes back under them, by one start; the daemon does nothing but
// wait; and when the storm is over everything is as it was.
func TestAStormOnASlowAPIServer(t *testing.T) {
	b := newBox(t, "storm")
	b.ready()
	b.write("before")
	identity, attempts := b.identity(), b.attempts()

	b.run("kubectl", "create", "serviceaccount", "storm")
	b.run("kubectl", "create", "clusterrolebinding", "storm", "--clusterrole=cluster-admin", "--serviceaccount=default:storm")
	token := strings.TrimSpace(b.run("kubectl", "create", "token", "storm"))
	restarts := b.restarts()

	calm := b.storm(token)
	free := b.throttle("kube-apiserver", 0.05)
	b.run("pkill", "-KILL", "-f", "^kube-apiserver")
	began := time.Now()
	b.answers()
	t.Logf("the API server is ready %s after it was killed, under the storm", time.Since(began).Round(time.Second))
	b.write("within")
	time.Sleep(30 * time.Second) // in which everybody else comes back to it

	calm()
	free()
	began = time.Now()
	b.ready()
	t.Logf("all is ready %s after the storm", time.Since(began).Round(time.Second))
	b.holds("before", "within")
	assert.Equal(t, restarts+1, b.restarts(), "the API server was started more than once")
	assert.Equal(t, identity, b.identity(), "certificates, keys or manifests changed")
	assert.Equal(t, attempts, b.attempts(), "a stage did its work again")
}

// attempts are those of the stages that a busy API server is no reason to act for.
func (b *box) attempts() map[string]int {
	all := map[string]int{}
	for _, s := range b.stages() {
		all[s.Name] = s.Attempts
	}
	maps.DeleteFunc(all, func(name string, _ int) bool {
		switch name {
		case "container-runtime", "images-present", "control-plane":
			return false
		}
		return true
	})
	return all
}

// restarts is how often the kubelet started the API server anew.
func (b *box) restarts() int {
	b.t.Helper()
	var text string
	require.Eventually(b.t, func() bool { // the kubelet tells the API of it a little later than it runs it
		text = b.run(
			"kubectl", "get", "pod", "-n", "kube-system", "kube-apiserver-appliance", "--ignore-not-found",
			"-o", "jsonpath={.status.containerStatuses[0].restartCount}",
		)
		return text != ""
	}, 5*time.Minute, time.Second)
	n, err := strconv.Atoi(text)
	require.NoError(b.t, err)
	return n
}

// answers waits until the API server says that it is ready.
func (b *box) answers() {
	b.t.Helper()
	for b.ctx.Err() == nil {
		if _, err := b.appliance.Run(b.ctx, "kubectl", "get", "--raw=/readyz", "--request-timeout=30s"); err == nil {
			return
		}
		time.Sleep(time.Second)
	}
	require.NoError(b.t, b.ctx.Err(), "the API server does not answer")
}

// storm begins the storm inside the sandbox; calm ends it.
func (b *box) storm(token string) (calm func()) {
	b.t.Helper()
	self, err := os.Executable()
	require.NoError(b.t, err)
	program := b.appliance.DataPath("/var/lib/firstlight/storm")
	text, err := os.ReadFile(self)
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(program, text, 0o755))

	ctx, cancel := context.WithCancel(b.ctx)
	cmd := b.appliance.Command(ctx, "env", stormServer+"=https://172.22.0.1:6443", stormToken+"="+token, "/var/lib/firstlight/storm")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(b.t, cmd.Start())
	return sync.OnceFunc(func() {
		assert.Nil(b.t, cmd.ProcessState, "the storm ended by itself: %s", &out)
		b.run("pkill", "-KILL", "-f", "^/var/lib/firstlight/storm")
		cancel()
		_ = cmd.Wait()
	})
}

// throttle holds a program of the sandbox to a share of a processor, also when it is started anew.
func (b *box) throttle(name string, share float64) (free func()) {
	b.t.Helper()
	network := strings.TrimSpace(b.run("readlink", "/proc/self/ns/net"))
	ctx, cancel := context.WithCancel(b.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if p := findProcess(name, network); p != nil {
				assert.NoError(b.t, process.Throttle(ctx, p, share))
			}
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// findProcess finds a program by its name in a network namespace; nil if it does not run there.
func findProcess(name, network string) *os.Process {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		line, _ := os.ReadFile(dir + "/cmdline")
		program, _, _ := strings.Cut(string(line), "\x00")
		if filepath.Base(program) != name {
			continue
		}
		if at, _ := os.Readlink(dir + "/ns/net"); at != network {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if p, err := os.FindProcess(pid); err == nil {
			return p
		}
	}
	return nil
}
