package workstation

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/daemon/engine/remote"
	"firstlight.dev/firstlight/daemon/engine/remote/sshtest"
)

func TestNameUser(t *testing.T) {
	for _, row := range [][3]string{
		{"alice", "laptop", "alice@laptop"},
		{"alice", "laptop.example.com", "alice@laptop"},
		{`CORP\Alice B`, "LAPTOP-1", "Alice-B@LAPTOP-1"},
		{"änne", "", "nne@workstation"},
		{"", "--", "user@workstation"},
		{strings.Repeat("a", 99), strings.Repeat("b", 99), strings.Repeat("a", 26) + "@" + strings.Repeat("b", 26)},
	} {
		assert.Equal(t, row[2], nameUser(row[0], row[1]))
	}
}

// laptop is a workstation with a home of its own, and an appliance that lets it in: a machine whose firstlightd is a
// script.
type laptop struct {
	*sshtest.Node
	t     *testing.T
	store Store
	host  string
}

func newLaptop(t *testing.T) *laptop {
	home, key := sshtest.UseNewHome(t)
	t.Setenv("KUBECONFIG", filepath.Join(home, ".kube", "config")) // client-go asked for HOME before

	l := &laptop{Node: sshtest.New(t), t: t}
	l.AuthorizeKey(key)
	l.host = netip.AddrPortFrom(netip.MustParseAddr(l.Addr), l.Port).String()
	var err error
	l.store, err = UserStore()
	require.NoError(t, err)
	return l
}

// login does what `firstlight login` does before it asks for a certificate.
func (l *laptop) login() (*Connection, error) {
	a, err := l.store.Prepare(l.host, "")
	require.NoError(l.t, err)
	c, err := l.store.Connect(l.t.Context(), a, func(string) {})
	if err != nil {
		return nil, err
	}
	l.t.Cleanup(c.Close)
	require.NoError(l.t, l.store.Save(a))
	return c, nil
}

func TestAnApplianceRunsItsCommands(t *testing.T) {
	l := newLaptop(t)
	c, err := l.login()
	require.NoError(t, err)
	var out, said bytes.Buffer
	streams := remote.Streams{Out: &out, Err: &said}
	err = c.Run(t.Context(), streams, "status")
	assert.EqualError(t, err, l.host+" answers by SSH and is no appliance: it has no firstlightd; use the appliance's address")

	l.PutProgram("firstlightd", `echo "$@"; [ $# = 1 ] || exit 0; echo "firstlightd $1: not yet" >&2; exit 3`)
	require.NoError(t, c.Run(t.Context(), streams, "why", "node 1"))
	assert.Equal(t, "why node 1\n", out.String())
	var exit *commandline.ExitError
	require.ErrorAs(t, c.Run(t.Context(), streams, "status"), &exit)
	assert.Equal(t, 3, exit.Code)

	_, err = l.store.Access(c.Appliance)
	assert.EqualError(t, err, l.host+" had no API when you logged in; run firstlight login "+l.host+" again")
	_, err = l.store.Certify(t.Context(), c)
	assert.EqualError(t, err, "ask "+l.host+" for access to its API: firstlightd certify: not yet")
	l.PutProgram("firstlightd", `cat >$DIR/request; echo '{}'`)
	_, err = l.store.Certify(t.Context(), c)
	assert.ErrorContains(t, err, "it signed another certificate")
	block, _ := pem.Decode([]byte(l.Get("request")))
	require.NotNil(t, block, "the appliance was sent no request")
	request, err := x509.ParseCertificateRequest(block.Bytes)
	require.NoError(t, err)
	require.NoError(t, request.CheckSignature())
	assert.Equal(t, findUser(), request.Subject.CommonName)
	l.PutProgram("firstlightd", `echo later`)
	_, err = l.store.Certify(t.Context(), c)
	assert.ErrorContains(t, err, "are it and this command of one version?")
	assert.NoFileExists(t, l.store.path(l.host, accessFile))
}

func TestWhyALogInFailed(t *testing.T) {
	l := newLaptop(t)
	_, err := l.login()
	require.NoError(t, err)
	a, err := l.store.Find(l.host)
	require.NoError(t, err)

	l.Put("root/.ssh/authorized_keys", "")
	_, err = l.store.Connect(t.Context(), a, nil)
	assert.EqualError(t, err, "log in to "+l.host+" as root: it accepts no key of yours; add its public half to "+
		"access.sshKeys of site.yaml, or name another key with firstlight login --identity")

	known := l.store.path(l.host, knownFile)
	line, err := os.ReadFile(known)
	require.NoError(t, err)
	fields := strings.Fields(string(line))
	other := strings.Replace(string(line), strings.Join(fields[1:3], " "), sshtest.AuthorizedKey(sshtest.NewKey(t)), 1)
	require.NoError(t, os.WriteFile(known, []byte(other), 0o600))
	_, err = l.store.Connect(t.Context(), a, func(string) {})
	assert.ErrorContains(t, err, "its host key is none that it had at the last log-in")
	assert.ErrorContains(t, err, "run firstlight logout "+l.host)

	require.NoError(t, os.Remove(known))
	_, err = l.store.Connect(t.Context(), a, nil)
	assert.ErrorContains(t, err, "its host key is known no more; run firstlight login "+l.host)
	sshDir := filepath.Join(os.Getenv("HOME"), ".ssh")
	require.NoError(t, os.WriteFile(filepath.Join(sshDir, knownFile), []byte(other), 0o600))
	_, err = l.store.Connect(t.Context(), a, func(string) {})
	assert.ErrorContains(t, err, knownFile+":1; if the machine was installed again, remove that line")

	for _, row := range []struct {
		err  error
		want string
	}{
		{&remote.ConnectError{Err: errors.New("connection refused")}, "reach rack by SSH: connection refused; is it on"},
		{&remote.ConnectError{Err: &net.DNSError{Name: "rack", Err: "no such host"}}, "use an address of the appliance"},
		{errors.New("EOF"), "log in to rack: EOF"},
	} {
		assert.ErrorContains(t, explainLogin("rack", known, row.err), row.want)
	}

	require.NoError(t, os.Remove(filepath.Join(sshDir, "id_ed25519")))
	_, err = l.store.Connect(t.Context(), a, nil)
	assert.ErrorContains(t, err, "has an SSH key; make one with ssh-keygen (firstlight login --identity FILE names another key)")
}

func TestCredential(t *testing.T) {
	l := newLaptop(t)
	a := Appliance{Host: l.host, Port: firstPort}
	access := Access{Key: []byte("key"), Until: time.Now().Add(time.Hour).UTC()}
	access.Certificate = []byte("certificate")
	access.Expires = access.Until.AddDate(-20, 0, 0) // by the clock of the appliance
	require.NoError(t, os.MkdirAll(filepath.Join(l.store.Dir, l.host), 0o700))
	require.NoError(t, l.store.write(l.host, accessFile, access))
	got, err := l.store.Credential(t.Context(), a)
	require.NoError(t, err)
	assert.Equal(t, "ExecCredential", got.Kind)
	assert.Equal(t, "certificate", got.Status.ClientCertificateData)
	assert.Equal(t, "key", got.Status.ClientKeyData)
	assert.WithinDuration(t, access.Until, got.Status.ExpirationTimestamp.Time, time.Second)

	access.Until = time.Now().Add(renewBefore - time.Second)
	require.NoError(t, l.store.write(l.host, accessFile, access))
	l.Put("root/.ssh/authorized_keys", "")
	_, err = l.store.Credential(t.Context(), a)
	assert.ErrorContains(t, err, "the certificate for the API of "+l.host+" has ended: log in to "+l.host+": its host key is known no more")
}

func TestCheckProxy(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	a := Appliance{Host: "rack", Port: l.Addr().(*net.TCPAddr).Port}
	require.NoError(t, CheckProxy(t.Context(), a))
	_, err = a.Listen()
	assert.ErrorContains(t, err, "if firstlight proxy runs already, use kubectl right away")
	require.NoError(t, l.Close())
	assert.ErrorContains(t, CheckProxy(t.Context(), a), "start it in another terminal: firstlight proxy --host rack")
}

// TestContextsOfOthersStay: login and logout change what is theirs in the user's kubeconfig, and put no key there.
func TestContextsOfOthersStay(t *testing.T) {
	l := newLaptop(t)
	file := filepath.Join(os.Getenv("HOME"), ".kube", "config")
	before := clientcmdapi.NewConfig()
	before.Clusters["other"] = &clientcmdapi.Cluster{Server: "https://other:6443"}
	before.AuthInfos["other"] = &clientcmdapi.AuthInfo{Token: "t"}
	before.Contexts["other"] = &clientcmdapi.Context{Cluster: "other", AuthInfo: "other"}
	before.CurrentContext = "other"
	require.NoError(t, clientcmd.WriteToFile(*before, file))

	a, err := l.store.Prepare("rack", "")
	require.NoError(t, err)
	var access Access
	access.Authority = []byte("authority")
	for range 2 {
		written, err := l.store.SaveContext(a, access, "/usr/bin/firstlight")
		require.NoError(t, err)
		assert.Equal(t, file, written)
	}
	for _, path := range []string{file, l.store.Kubeconfig(a)} {
		got, err := clientcmd.LoadFromFile(path)
		require.NoError(t, err)
		assert.Equal(t, "firstlight-rack", got.CurrentContext)
		c := got.Contexts[got.CurrentContext]
		assert.Equal(t, "https://127.0.0.1:16443", got.Clusters[c.Cluster].Server)
		user := got.AuthInfos[c.AuthInfo]
		assert.Equal(t, []string{"credential", "rack"}, user.Exec.Args)
		assert.Empty(t, user.ClientKeyData)
		assert.Equal(t, path == file, got.Contexts["other"] != nil)
	}

	require.NoError(t, RemoveContext(a))
	after, err := clientcmd.LoadFromFile(file)
	require.NoError(t, err)
	assert.Len(t, after.Contexts, 1)
	assert.Len(t, after.Clusters, 1)
	assert.Len(t, after.AuthInfos, 1)
	assert.Empty(t, after.CurrentContext)
	assert.Equal(t, "t", after.AuthInfos["other"].Token)
}

// TestTheNextHostKeyIsKnownBeforeItIsShown: an appliance names its host keys at a log-in, and may show either from then
// on. What is no key changes nothing, and neither does an appliance that names none.
func TestTheNextHostKeyIsKnownBeforeItIsShown(t *testing.T) {
	l := newLaptop(t)
	c, err := l.login()
	require.NoError(t, err)
	known := l.store.path(l.host, knownFile)
	first, err := os.ReadFile(known)
	require.NoError(t, err)

	require.ErrorContains(t, l.store.saveHostKeys(c.Appliance, []string{"nonsense"}), "read the host keys of "+l.host)
	require.NoError(t, l.store.saveHostKeys(c.Appliance, nil))
	after, err := os.ReadFile(known)
	require.NoError(t, err)
	assert.Equal(t, first, after)

	// The one that it shows is the second of those that were named, and those of before are forgotten.
	shown := strings.Join(strings.Fields(string(first))[1:3], " ")
	other := sshtest.AuthorizedKey(sshtest.NewKey(t))
	require.NoError(t, l.store.saveHostKeys(c.Appliance, []string{other, shown}))
	_, err = l.store.Connect(t.Context(), c.Appliance, nil)
	require.NoError(t, err)
	require.NoError(t, l.store.saveHostKeys(c.Appliance, []string{other}))
	_, err = l.store.Connect(t.Context(), c.Appliance, nil)
	require.ErrorContains(t, err, "its host key is none that it had at the last log-in")
}
