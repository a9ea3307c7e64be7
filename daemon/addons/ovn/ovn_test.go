package ovn

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/knftables"

	"firstlight.dev/firstlight/daemon/addons/ovsdb"
)

func TestTunnelsGoThroughTheNodesAddress(t *testing.T) {
	nft := knftables.NewFake(knftables.IPv4Family, TableName)
	tx := nft.NewTransaction()
	writeRules(tx, netip.MustParseAddr("192.0.2.11"), "eth0")
	require.NoError(t, nft.Run(t.Context(), tx))
	var rules []string
	for line := range strings.SplitSeq(nft.Dump(), "\n") {
		if strings.HasPrefix(line, "add rule") {
			rules = append(rules, strings.TrimPrefix(line, "add rule ip firstlight-ovn "))
		}
	}
	assert.Equal(t, []string{
		`forward iifname != "ovn-host" oifname != "ovn-host" udp dport 6081 drop`,
		`postrouting oifname "ovn-host" ip daddr 169.254.66.2 ip daddr set 192.0.2.11`,
		`postrouting oifname != "ovn-host" ip saddr 169.254.66.2 ip saddr set 192.0.2.11`,
		`prerouting iifname "eth0" ip daddr 192.0.2.11 udp dport 6081 notrack ip daddr set 169.254.66.2`,
		`prerouting iifname "ovn-host" ip saddr 192.0.2.11 udp dport 6081 notrack ip saddr set 169.254.66.2`,
	}, rules)
}

func TestSettingsAreWrittenWhereTheyDiffer(t *testing.T) {
	want := settings("node-1", netip.MustParseAddr("192.0.2.11"), Userspace, netip.MustParseAddr("10.96.0.7"))
	assert.Equal(t, map[string]string{
		"system-id": "node-1", "hostname": "node-1", "ovn-remote": "ssl:10.96.0.7:6642", "ovn-encap-type": "geneve",
		"ovn-encap-ip": "192.0.2.11", "ovn-bridge": "br-int", "ovn-bridge-datapath-type": "netdev",
	}, want)
	assert.Empty(t, setExternalIDs(want, want))

	have := map[string]string{"ovn-bridge-mappings": "a:b"}
	for k, v := range want {
		have[k] = v
	}
	have["ovn-remote"] = "ssl:10.96.0.6:6642"
	assert.Equal(t, []ovsdb.Operation{ovsdb.Mutate(Database, nil,
		ovsdb.Mutation{"external_ids", "delete", ovsdb.Set("ovn-remote")},
		ovsdb.Mutation{"external_ids", "insert", ovsdb.Map(map[string]string{"ovn-remote": "ssl:10.96.0.7:6642"})},
	)}, setExternalIDs(have, want))
}

func TestWhatProgramsAreCalledWith(t *testing.T) {
	central := Central{Run: "/run/ovn", State: "/var/lib/ovn"}
	for want, p := range map[string]Program{
		"/usr/sbin/ovsdb-server --remote=punix:/run/firstlight-ovn/db.sock --unixctl=/run/firstlight-ovn/ovsdb-server.ctl " +
			"-vconsole:info -vsyslog:off -vfile:off /run/firstlight-ovn/conf.db": NodeDatabase(),
		"/usr/lib/openvswitch-switch/ovs-vswitchd unix:/run/firstlight-ovn/db.sock " +
			"--unixctl=/run/firstlight-ovn/ovs-vswitchd.ctl -vconsole:info -vsyslog:off -vfile:off": Switch(),
		"/usr/bin/ovn-controller unix:/run/firstlight-ovn/db.sock --unixctl=/run/firstlight-ovn/ovn-controller.ctl " +
			"--private-key=/tls/tls.key --certificate=/tls/tls.crt --ca-cert=/tls/ca.crt -vconsole:info -vsyslog:off -vfile:off": Controller("/tls"),
		"/usr/sbin/ovsdb-server --remote=punix:/run/ovn/ovnsb_db.sock --remote=pssl:6642:0.0.0.0 --unixctl=/run/ovn/ovnsb.ctl " +
			"--private-key=/tls/sb/tls.key --certificate=/tls/sb/tls.crt --ca-cert=/tls/sb/ca.crt " +
			"-vconsole:info -vsyslog:off -vfile:off /var/lib/ovn/sb.db": central.Southbound("/tls/sb"),
		"/usr/bin/ovn-northd --ovnnb-db=unix:/run/ovn/ovnnb_db.sock --ovnsb-db=unix:/run/ovn/ovnsb_db.sock " +
			"--unixctl=/run/ovn/ovn-northd.ctl -vconsole:info -vsyslog:off -vfile:off": central.Northd(),
	} {
		assert.Equal(t, want, p.Path+" "+strings.Join(p.Args, " "))
	}
}

// greet has a client of one side speak to a server of another.
func greet(t *testing.T, server, client map[string][]byte) error {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, Save(filepath.Join(dir, "client"), client))
	config, err := Certificates(filepath.Join(dir, "client")).ClientConfig()
	require.NoError(t, err)
	certificate, err := tls.X509KeyPair(server[certificateFile], server[keyFile])
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(server[authorityFile]))

	one, other := net.Pipe()
	result := make(chan error, 1)
	go func() {
		s := tls.Server(other, &tls.Config{
			Certificates: []tls.Certificate{certificate}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert,
		})
		err := s.Handshake()
		_ = other.Close()
		result <- err
	}()
	c := tls.Client(one, config)
	clientErr := c.Handshake()
	if clientErr == nil {
		_, _ = c.Read(make([]byte, 1))
	}
	_ = one.Close()
	if err := <-result; err != nil {
		return err
	}
	return clientErr
}

func TestEachDatabaseKnowsItsOwnClients(t *testing.T) {
	north, err := NewPair(Northbound, time.Now())
	require.NoError(t, err)
	south, err := NewPair(Southbound, time.Now())
	require.NoError(t, err)
	assert.NoError(t, greet(t, north.Server, north.Client))
	assert.Error(t, greet(t, north.Server, south.Client), "a node may not write what networks there are")
	assert.Error(t, greet(t, north.Client, north.Client), "a client is no server")
	assert.True(t, IsPair(north))
	assert.False(t, IsPair(Pair{north.Server, south.Client}))
	assert.False(t, IsPair(Pair{}))
}

func TestSecretsAreMadeOnce(t *testing.T) {
	client := fake.NewClientset(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: SystemNamespace, Name: CentralName, UID: "d"}})
	dir := t.TempDir()
	require.NoError(t, EnsureSecrets(t.Context(), client, dir))
	first, err := os.ReadFile(filepath.Join(dir, "nb", certificateFile))
	require.NoError(t, err)
	require.NoError(t, EnsureSecrets(t.Context(), client, dir))
	again, err := os.ReadFile(filepath.Join(dir, "nb", certificateFile))
	require.NoError(t, err)
	assert.Equal(t, first, again)

	secret, err := client.CoreV1().Secrets(SystemNamespace).Get(t.Context(), SouthboundClient, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "Deployment", secret.OwnerReferences[0].Kind)
	node := filepath.Join(t.TempDir(), "tls")
	require.NoError(t, FetchCertificates(t.Context(), client, SouthboundClient, node))
	_, err = Certificates(node).ClientConfig()
	assert.NoError(t, err)

	// One that is missing: both are made again.
	require.NoError(t, client.CoreV1().Secrets(SystemNamespace).Delete(t.Context(), northboundServer, metav1.DeleteOptions{}))
	require.NoError(t, EnsureSecrets(t.Context(), client, dir))
	again, err = os.ReadFile(filepath.Join(dir, "nb", certificateFile))
	require.NoError(t, err)
	assert.NotEqual(t, first, again)
}
