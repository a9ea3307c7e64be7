package operator

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/engine/remote/sshtest"
)

// access is the appliance's log-in, which an agent signs with, as the daemon's does.
func (r *fixture) access() ssh.Signer {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(r.t, err)
	signer, err := ssh.NewSignerFromKey(key)
	require.NoError(r.t, err)
	dir, err := os.MkdirTemp("", "agent-") // a socket's path is short
	require.NoError(r.t, err)
	r.t.Cleanup(func() { os.RemoveAll(dir) })
	r.Agent = filepath.Join(dir, "ssh.sock")
	keys := agent.NewKeyring()
	require.NoError(r.t, keys.Add(agent.AddedKey{PrivateKey: key}))
	l, err := net.Listen("unix", r.Agent)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); agent.ServeAgent(keys, c) }()
		}
	}()
	return signer
}

// clusterKey is what is let in on the nodes of a cluster.
func (r *fixture) clusterKey(cluster string) *corev1.Secret {
	s := &corev1.Secret{}
	err := r.api.Get(r.t.Context(), client.ObjectKey{Namespace: "bpa", Name: kud.KeySecret(cluster)}, s)
	require.NoError(r.t, client.IgnoreNotFound(err))
	return s
}

// machines are hosts 1 to n that can be logged in to.
func (r *fixture) machines(count int) []*sshtest.Node {
	var all []*sshtest.Node
	port := uint16(0)
	for n := 1; n <= count; n++ {
		m := sshtest.NewAt(r.t, fmt.Sprintf("127.0.7.%d:%d", n, port)).SimulateDebian()
		port, r.SSHPort = m.Port, m.Port
		r.host(n, func(b *host) { b.Status.HardwareDetails.NIC[0].IP = m.Addr })
		all = append(all, m)
	}
	return all
}

// testCredentials: an image with a default user and password.
func testCredentials(t *testing.T, r *fixture) {
	machines := r.machines(2)
	spec := "masters:\n- m: {cpu: 1}\nworkers:\n- w: {cpu: 2}\ncredentialsSecret: login"
	r.apply(provisioning("edge", spec))
	p := r.settle("edge")
	assert.Equal(t, NoCredentials, ready(p).Reason)
	assert.Contains(t, p.Status.Message, "there is no Secret default/login with username and password")
	r.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "login"}, Data: map[string][]byte{"username": []byte("ubuntu"), "password": []byte("wrong")}})
	p = r.settle("edge")
	assert.Equal(t, LoginFailed, ready(p).Reason)
	assert.Contains(t, p.Status.Message, "node m: host metal3/h1: log in to 127.0.7.1 as ubuntu")
	assert.Contains(t, p.Status.Message, "node w: host metal3/h2", "only the first was tried")
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "login"}}
	require.NoError(t, r.api.Get(t.Context(), client.ObjectKeyFromObject(s), s))
	s.Data["password"] = []byte("ubuntu")
	require.NoError(t, r.api.Update(t.Context(), s))
	p = r.settle("edge")
	require.Equal(t, v1alpha1.PhaseInstalling, p.Status.Phase, p.Status.Message)
	for i, m := range machines {
		assert.Equal(t, "*", m.Get("shadow"), "the default password still opens it")
		public := strings.Fields(string(r.clusterKey("edge").Data["id_rsa.pub"]))
		assert.Contains(t, m.Get("root/.ssh/authorized_keys"), public[1])
		assert.Contains(t, r.file("edge", contract.FileKnownHosts), m.Addr+" "+m.HostKey()+"\n")
		host, _, _, _, err := ssh.ParseAuthorizedKey([]byte(m.HostKey()))
		require.NoError(t, err)
		assert.Equal(t, "by the cluster's key; host key "+ssh.FingerprintSHA256(host)+" pinned at first contact, password of ubuntu taken away", p.Status.Nodes[i].Login)
	}
	r.end("edge", 0, "")
	p = r.settle("edge")
	assert.Equal(t, v1alpha1.PhaseReady, p.Status.Phase)
	assert.Contains(t, p.Status.Nodes[1].Login, "password of ubuntu taken away", "the status forgot it")
	assert.Contains(t, r.file("edge", contract.FileKnownHosts), machines[1].HostKey(), "the pin was lost")
}

// testKeyOfTheNamespace: host keys and addresses that the site gave come to the installer, and somebody's own log-in
// too; what an operator of before gave away does not.
func testKeyOfTheNamespace(t *testing.T, r *fixture) {
	user, err := yaml.Marshal(map[string]any{"ssh_keys": map[string]string{"ed25519_public": "ssh-ed25519 AAAAkey h1"}})
	require.NoError(t, err)
	r.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: "h1-user-data"}, Data: map[string][]byte{"userData": append([]byte("#cloud-config\n"), user...)}})
	r.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: "h1-network-data"}, Data: map[string][]byte{"networkData": []byte(
		`{"links":[{"id":"a","ethernet_mac_address":"` + mac(1, 0) + `"}],"networks":[{"link":"a","type":"ipv4","ip_address":"10.5.5.5"}]}`)}})
	r.host(1, func(b *host) {
		b.Spec.UserData = &corev1.SecretReference{Name: "h1-user-data"}
		b.Spec.NetworkData = &corev1.SecretReference{Name: "h1-network-data", Namespace: "metal3"}
	})
	r.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: kud.SSHSecret, Labels: managedLabels()}, Data: map[string][]byte{"id_rsa": []byte("the appliance's")}})
	r.Agent = "/nonexistent/agent.sock"
	r.apply(provisioning("edge", "masters:\n- m: {mac-address: '"+mac(1, 0)+"'}"))
	p := r.settle("edge")
	assert.Equal(t, NoSSHKey, ready(p).Reason)
	assert.Contains(t, p.Status.Message, "wait until the daemon serves it, or put a Secret ssh-key-secret with id_rsa and id_rsa.pub into namespace default")
	r.Agent = ""
	p = r.settle("edge")
	require.Equal(t, v1alpha1.PhaseInstalling, p.Status.Phase, p.Status.Message)
	assert.Equal(t, "site", p.Status.Nodes[0].AddressFrom)
	assert.Equal(t, "10.5.5.5 ssh-ed25519 AAAAkey\n", r.file("edge", contract.FileKnownHosts))
	first := r.clusterKey("edge")
	_, err = ssh.ParsePrivateKey(first.Data["id_rsa"])
	require.NoError(t, err, "the cluster has no key of its own")
	assert.Equal(t, kud.KeySecret("edge"), r.job("edge").Spec.Template.Spec.Volumes[1].Secret.SecretName)

	own := &corev1.Secret{}
	require.NoError(t, r.api.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: kud.SSHSecret}, own))
	own.Labels, own.Data = nil, map[string][]byte{"id_rsa": []byte("mine")}
	require.NoError(t, r.api.Update(t.Context(), own))
	r.end("edge", 1, "")
	r.settle("edge")
	r.now = r.now.Add(time.Hour)
	r.settle("edge")
	assert.Equal(t, int32(2), r.run("edge").Attempt)
	assert.Equal(t, "mine", string(r.clusterKey("edge").Data["id_rsa"]), "somebody's own log-in is not used")
	require.NoError(t, r.api.Get(t.Context(), client.ObjectKeyFromObject(own), own))
	assert.Equal(t, "mine", string(own.Data["id_rsa"]), "somebody's own log-in was overwritten")
}

// testKeysOfClusters: nodes let in a key of their cluster, and no longer that of the cluster before. The appliance's is
// in no object, and a namespace with a Provisioning has no key at all.
func testKeysOfClusters(t *testing.T, r *fixture) {
	key, machines := r.access(), r.machines(2)
	for _, m := range machines {
		m.AuthorizeKey(key)
		require.NoError(t, r.clusterDir("edge").addHostKey(netip.MustParseAddr(m.Addr), m.HostKey()))
	}
	r.installed("edge", "masters:\n- m: {host: h1}")
	edge := strings.TrimSpace(string(r.clusterKey("edge").Data["id_rsa.pub"]))
	require.NotEmpty(t, edge)
	assert.Equal(t, sshtest.AuthorizedKey(key)+"\n"+edge, machines[0].Get("root/.ssh/authorized_keys"))
	assert.Equal(t, sshtest.AuthorizedKey(key), machines[1].Get("root/.ssh/authorized_keys"), "the key of a cluster is on a host that it has not")

	logins := machines[0].Logins.Load()
	r.settle("edge")
	assert.Equal(t, logins, machines[0].Logins.Load(), "it logs in at every look")

	r.installed("rim", "masters:\n- m: {host: h2}")
	rim := strings.TrimSpace(string(r.clusterKey("rim").Data["id_rsa.pub"]))
	assert.NotEqual(t, strings.Fields(edge)[1], strings.Fields(rim)[1], "two clusters have one key")

	var secrets corev1.SecretList
	require.NoError(t, r.api.List(t.Context(), &secrets))
	for _, s := range secrets.Items {
		for name, value := range s.Data {
			private, err := ssh.ParsePrivateKey(value)
			if err != nil {
				continue
			}
			assert.Equal(t, "bpa", s.Namespace, "%s: %s", s.Name, name)
			assert.NotEqual(t, key.PublicKey().Marshal(), private.PublicKey().Marshal(), "the appliance's log-in is in Secret %s", s.Name)
		}
	}

	require.NoError(t, r.api.Delete(t.Context(), r.get("edge")))
	for range 3 {
		r.settle("edge")
	}
	assert.Empty(t, r.clusterKey("edge").Data, "the key of a cluster that is no more is kept")
	r.changeHost(1, func(b *host) { delete(b.Annotations, label.Installed) })
	r.installed("hub", "masters:\n- m: {host: h1}")
	assert.NotContains(t, machines[0].Get("root/.ssh/authorized_keys"), edge, "the cluster before still gets in")
	assert.Contains(t, machines[0].Get("root/.ssh/authorized_keys"), sshtest.AuthorizedKey(key), "the appliance is locked out")
}

// testInstallerNotAllowed: what runs as root on the appliance is not for whoever may write a Provisioning to say.
func testInstallerNotAllowed(t *testing.T, r *fixture) {
	r.host(1)
	r.apply(provisioning("edge", "masters:\n- m: {cpu: 1}\ninstallerImage: mallory/shell:1"))
	p := r.settle("edge")
	assert.Equal(t, v1alpha1.PhaseRefused, p.Status.Phase)
	assert.Equal(t, InstallerNotAllowed, ready(p).Reason)
	assert.Contains(t, p.Status.Message, `installerImage "mallory/shell:1" may not run here, as root on the appliance; besides the stick's own the site allows: example/kud:1 (appliance.installerImages)`)
	assert.Empty(t, r.holder(1))
	r.apply(provisioning("edge", "masters:\n- m: {cpu: 1}\ninstallerImage: "+r.Installer))
	assert.Equal(t, v1alpha1.PhaseInstalling, r.settle("edge").Status.Phase, "the stick's own by its name")
}

// testKubeconfigOfANode: what a node made for whoever uses its cluster is handed to nobody if it has programs run.
func testKubeconfigOfANode(t *testing.T, r *fixture) {
	r.host(1)
	r.left = `{apiVersion: v1, kind: Config, users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, interactiveMode: Never}}}]}`
	r.apply(provisioning("edge", "masters:\n- m: {cpu: 1}"))
	require.Equal(t, v1alpha1.PhaseInstalling, r.settle("edge").Status.Phase)
	r.end("edge", 0, "")
	p := r.settle("edge")
	assert.Contains(t, p.Status.Message, "the kubeconfig that the installer left is not handed out: it names a program (exec)")
	assert.Empty(t, p.Status.Kubeconfig)
	err := r.api.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: kubeconfigName("edge")}, &corev1.Secret{})
	assert.True(t, apierrors.IsNotFound(err), "%v", err)
}

// testJobOfNoProvisioning: an installer does not outlive its Provisioning, whoever took the finalizer away, and one
// that is created again under that name does not take the Job for its own.
func testJobOfNoProvisioning(t *testing.T, r *fixture) {
	r.host(1)
	for _, again := range []bool{true, false} {
		r.apply(provisioning("edge", "masters:\n- m: {cpu: 1}"))
		require.Equal(t, v1alpha1.PhaseInstalling, r.settle("edge").Status.Phase)
		old := r.job("edge").UID
		p := r.get("edge")
		p.Finalizers = nil
		require.NoError(t, r.api.Update(t.Context(), p))
		require.NoError(t, r.api.Delete(t.Context(), p))
		if again {
			r.apply(provisioning("edge", "masters:\n- m: {cpu: 1}"))
			r.settle("edge")
			assert.NotEqual(t, old, r.job("edge").UID)
			assert.Equal(t, string(r.get("edge").UID), r.run("edge").UID)
			require.NoError(t, r.api.Delete(t.Context(), r.get("edge")))
			for range 3 {
				r.settle("edge")
			}
			continue
		}
		_, err := r.step("edge")
		require.NoError(t, err)
		var jobs batchv1.JobList
		require.NoError(t, r.api.List(t.Context(), &jobs))
		assert.Empty(t, jobs.Items)
	}
}

// testProposal: clusters without being told, applied once when all hosts are proven.
func testProposal(t *testing.T, r *fixture) {
	for n := 2; n <= 6; n++ {
		r.host(n)
	}
	r.host(7, func(b *host) { b.Labels = nil })
	c := r.Config
	c.Site, c.Proposal = "rack-7", ProposalShow
	none, err := readLaunch(t.Context(), r.Reader)
	require.NoError(t, err, "an API without that kind")
	assert.Zero(t, none)
	launch := launchState{Nodes: 6, Verified: 5}
	p := &Proposals{Config: c, Client: r.Client, Reader: r.Reader, Now: r.Now, Log: r.Log,
		launch: func(context.Context) (launchState, error) { return launch, nil }}
	shown := func() map[string]string {
		require.NoError(t, p.Propose(t.Context()))
		m := &corev1.ConfigMap{}
		require.NoError(t, r.api.Get(t.Context(), client.ObjectKey{Namespace: "bpa", Name: ProposalName}, m))
		return m.Data
	}
	count := func() int {
		var l v1alpha1.ProvisioningList
		require.NoError(t, r.api.List(t.Context(), &l))
		return len(l.Items)
	}
	data := shown()
	assert.Equal(t, "of 6 hosts: cluster rack-7 with 3 control planes, which work as well, and 2 workers; 1 are waited for, 0 are left out", data["proposal"])
	assert.Contains(t, data["waiting"], "metal3/h7 is provisioned, but not proven")
	p.Proposal = ProposalApply
	shown()
	assert.Zero(t, count(), "applied while a host was waited for")
	launch.Held = []string{"h7"}
	data = shown()
	assert.Zero(t, count(), "applied as soon as a host needed a person")
	assert.Contains(t, data[proposalDecision], "without the nodes that need a person until then: h7")
	r.changeHost(7, func(b *host) { b.Labels = map[string]string{label.Verified: "true"} })
	launch = launchState{Nodes: 6, Verified: 6}
	p.Proposal = ProposalShow
	data = shown()
	assert.Zero(t, count(), "applied, though only to be shown")
	r.apply(data["provisionings.yaml"]) // as a person would
	require.Equal(t, v1alpha1.PhaseInstalling, r.settle("rack-7").Status.Phase)
	require.NoError(t, r.api.Delete(t.Context(), r.get("rack-7")))
	for range 3 {
		r.settle("rack-7")
	}
	for n := 2; n <= 7; n++ {
		r.changeHost(n, func(b *host) { delete(b.Annotations, label.Installed) })
	}
	p.Proposal = ProposalApply
	data = shown()
	assert.Equal(t, 1, count())
	assert.NotEmpty(t, data[proposalApplied])
	got := r.settle("rack-7")
	assert.Equal(t, "0/6", got.Status.NodesReady)
	require.NoError(t, r.api.Delete(t.Context(), got))
	for range 3 {
		r.settle("rack-7")
	}
	shown()
	assert.Zero(t, count(), "what its owner deleted came back")
	var jobs batchv1.JobList
	require.NoError(t, r.api.List(t.Context(), &jobs))
	assert.Empty(t, jobs.Items)
}

// icnSamples applies what both of ICN's samples ask for: first without the packages that no stick has, then as if they
// had been uploaded.
func (r *fixture) icnSamples(machines []*sshtest.Node) {
	t := r.t
	for _, m := range machines {
		_ = os.Remove(filepath.Join(m.Dir, "broken"))
		for _, name := range []string{"expect", "curl", "tmux"} {
			m.Put("repo/"+name, "1\n")
		}
	}
	const samples = "masterSoftware: [expect, htop, jq: {version: 1.5+dfsg-1ubuntu0.1}, maven, nautilus]\nworkerSoftware: [curl, python, tmux, htop, jq]"
	r.apply(softwareText(samples))
	sw := r.software("tools")
	assert.Equal(t, v1alpha1.PhaseFailed, sw.Status.Phase)
	assert.Contains(t, sw.Status.Message, "not in the nodes' repositories: jq=1.5+dfsg-1ubuntu0.1, maven, nautilus, python: upload them (docs/artifacts.md), or take them out here; node m: ")
	for _, m := range machines {
		for _, name := range []string{"maven", "nautilus", "python"} {
			m.Put("repo/"+name, "1\n")
		}
		m.Put("repo/jq", "1.7\n1.6\n1.5+dfsg-1ubuntu0.1\n")
	}
	r.now = r.now.Add(kud.RetryDelay(sw.Status.Attempt))
	sw = r.software("tools")
	assert.Equal(t, v1alpha1.PhaseReady, sw.Status.Phase, sw.Status.Message)
	for _, m := range machines {
		m.Put("repo/jq", "1.7\n1.6\n")
	}
}
