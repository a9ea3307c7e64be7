package policy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"firstlight.dev/firstlight/image/lab/netns"
	"firstlight.dev/firstlight/image/lab/netns/netnstest"
)

// node is a cluster node with two pods, as plugin ptp connects them, and another node with a pod of its own behind it.
type node struct {
	t    *testing.T
	pid  int            // of the node's namespace
	pids map[string]int // of all
	got  chan string    // datagrams that came to pod b, by their sources
}

// Who asks and is asked.
var machines = map[string][]string{
	"a": {"10.244.1.2", "fd00:1::2"},
	"b": {"10.244.1.3", "fd00:1::3"},
	"c": {"10.244.2.2", "fd00:2::2", "10.244.2.3"}, // on the other node, whose own address is the last
}

const wiredPods = `
- metadata: {namespace: shop, name: a, labels: {app: a}}
  spec: {nodeName: n1, containers: [{ports: [{name: http, containerPort: 8080}]}]}
  status: {phase: Running, podIP: 10.244.1.2, podIPs: [{ip: 10.244.1.2}, {ip: "fd00:1::2"}]}
- metadata: {namespace: shop, name: b, labels: {app: b}}
  spec: {nodeName: n1, containers: [{ports: [{name: http, containerPort: 8080}]}]}
  status: {phase: Running, podIP: 10.244.1.3, podIPs: [{ip: 10.244.1.3}, {ip: "fd00:1::3"}]}
- metadata: {namespace: shop, name: c, labels: {app: c}}
  spec: {nodeName: n2, containers: [{ports: [{name: http, containerPort: 8080}]}]}
  status: {phase: Running, podIP: 10.244.2.2, podIPs: [{ip: 10.244.2.2}, {ip: "fd00:2::2"}]}
`

// newNode connects them, and has everybody answer at ports 8080 and 9090 by TCP, and at 5353 by UDP.
func newNode(t *testing.T) *node {
	n := &node{t: t, pid: netnstest.New(t), pids: map[string]int{}, got: make(chan string, 64)}
	ip := func(pid int, commands ...string) { require.NoError(t, netns.IP(t.Context(), pid, commands...)) }
	ip(n.pid, "link set lo up")
	n.within(func() error {
		return errors.Join(os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0),
			os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0))
	})
	n.pids["node"] = n.pid
	for name, addrs := range machines {
		pid, link := netnstest.New(t), "veth"+name
		if name == "c" {
			link = "eth0"
		}
		n.pids[name] = pid
		ip(n.pid, fmt.Sprintf("link add %s type veth peer name eth0 netns %d", link, pid),
			"addr add 10.244.1.1/32 dev "+link, "addr add fd00:1::1/128 nodad dev "+link, "link set "+link+" up")
		ip(pid, "link set lo up", "link set eth0 up")
		for _, a := range addrs {
			bits := netip.MustParseAddr(a).BitLen()
			ip(pid, fmt.Sprintf("addr add %s/%d dev eth0 nodad", a, bits))
			ip(n.pid, fmt.Sprintf("route add %s/%d dev %s", a, bits, link))
		}
		ip(pid, "route add 10.244.1.1 dev eth0", "route add default via 10.244.1.1", "-6 route add fd00:1::1 dev eth0", "-6 route add default via fd00:1::1")
	}

	for name, pid := range n.pids {
		require.NoError(t, netns.Do(netns.PathOf(pid), func() error { return n.listen(name) }))
	}
	// A Service as kube-proxy has it.
	n.nft("add table ip kube-proxy; add chain ip kube-proxy pre { type nat hook prerouting priority dstnat; }; " +
		"add rule ip kube-proxy pre ip daddr 10.96.0.10 tcp dport 80 dnat to 10.244.2.2:8080")
	return n
}

// within runs what starts programs in the node's namespace: a child has the namespace of its thread.
func (n *node) within(do func() error) {
	n.t.Helper()
	require.NoError(n.t, netns.Do(netns.PathOf(n.pid), do))
}

func (n *node) nft(text string) (out string) {
	n.t.Helper()
	n.within(func() error {
		b, err := exec.Command("nft", text).CombinedOutput()
		if out = string(b); err != nil {
			return fmt.Errorf("nft %s: %w: %s", text, err, b)
		}
		return nil
	})
	return out
}

func (n *node) listen(name string) error {
	for _, port := range []int{8080, 9090} {
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			return err
		}
		n.t.Cleanup(func() { l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					b := make([]byte, 8)
					for {
						k, err := conn.Read(b)
						if err != nil {
							conn.Close()
							return
						}
						_, _ = conn.Write(b[:k])
					}
				}()
			}
		}()
	}

	conn, err := net.ListenUDP("udp", &net.UDPAddr{Port: 5353})
	if err != nil {
		return err
	}
	n.t.Cleanup(func() { conn.Close() })
	go func() {
		for b := make([]byte, 64); ; {
			k, from, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			if name == "b" && string(b[:k]) == "borrowed" {
				n.got <- from.Addr().Unmap().String()
			}
			_, _ = conn.WriteToUDPAddrPort(b[:k], from)
		}
	}()
	return nil
}

// silence is how long nothing may come for it to count as no answer.
const silence = time.Second

// dial connects from a machine, from one of its addresses if one is named: b or b@10.244.1.3.
func (n *node) dial(from, protocol, at string) (net.Conn, error) {
	name, source, _ := strings.Cut(from, "@")
	d := net.Dialer{Timeout: silence}
	if source != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(source)}
	}
	var conn net.Conn
	err := netns.Do(netns.PathOf(n.pids[name]), func() (err error) {
		conn, err = d.Dial(protocol, at)
		return err
	})
	return conn, err
}

// echoes reports whether what is written comes back.
func echoes(conn net.Conn) bool {
	_ = conn.SetDeadline(time.Now().Add(silence))
	if _, err := conn.Write([]byte("hello")); err != nil {
		return false
	}
	_, err := conn.Read(make([]byte, 8))
	return err == nil
}

// answers reports whether something answers there. What should answer is asked again on a busy machine.
func (n *node) answers(from, protocol, at string, want bool) bool {
	for range 4 {
		conn, err := n.dial(from, protocol, at)
		if err == nil {
			ok := echoes(conn)
			conn.Close()
			if ok {
				return true
			}
		}
		if !want {
			return false
		}
	}
	return false
}

// planWith is what the node should enforce.
func planWith(t *testing.T, policies string) Plan {
	return NewPlan(State{
		Node:       "n1",
		Ranges:     []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")},
		Policies:   read[*networkingv1.NetworkPolicy](t, policies),
		Namespaces: read[*corev1.Namespace](t, clusterNamespaces),
		Pods:       read[*corev1.Pod](t, wiredPods),
	})
}

// TestTheKernelObeys asks between two pods of a node, a pod behind it and the node itself what the kernel lets pass.
func TestTheKernelObeys(t *testing.T) {
	needsNamespaces(t)
	n := newNode(t)
	var table *Table
	n.within(func() (err error) { table, err = NewTable(); return err })
	set := func(policies string) {
		t.Helper()
		n.within(func() error { _, err := table.Set(t.Context(), planWith(t, policies)); return err })
	}

	const (
		aTCP, aUDP, bTCP, bUDP, cTCP = "tcp 10.244.1.2:8080", "udp 10.244.1.2:5353", "tcp 10.244.1.3:8080", "udp 10.244.1.3:5353", "tcp 10.244.2.2:8080"
		b6, c6, service              = "tcp [fd00:1::3]:8080", "tcp [fd00:2::2]:8080", "tcp 10.96.0.10:80"
		b                            = "podSelector: {matchLabels: {app: b}}"
		a                            = "podSelector: {matchLabels: {app: a}}"
	)
	type asked struct{ from, to string }
	everything := []asked{{"a", bTCP}, {"a", bUDP}, {"a", b6}, {"a", cTCP}, {"a", c6}, {"a", service}, {"b", aTCP}, {"b", aUDP}, {"b", cTCP}, {"c", bTCP}, {"c", b6},
		{"c", aTCP}, {"c", aUDP}, {"node", bTCP}, {"node", bUDP}, {"node", b6}, {"b", "tcp 10.244.1.1:8080"}, {"b", "tcp [fd00:1::1]:8080"}, {"b", bTCP}}
	shut := func(closed ...asked) map[asked]bool {
		all := map[asked]bool{}
		for _, q := range everything {
			all[q] = !slices.Contains(closed, q)
		}
		return all
	}
	for _, c := range []struct {
		name, policies string
		want           map[asked]bool
	}{
		{"no policy", "[]", shut()},
		{"no way to b", policyOf("{" + b + "}"), shut(asked{"a", bTCP}, asked{"a", bUDP}, asked{"a", b6}, asked{"c", bTCP}, asked{"c", b6})},
		{"no way to b or from it", policyOf("{" + b + ", policyTypes: [Ingress, Egress]}"), shut(asked{"a", bTCP}, asked{"a", bUDP}, asked{"a", b6},
			asked{"c", bTCP}, asked{"c", b6}, asked{"b", aTCP}, asked{"b", aUDP}, asked{"b", cTCP})},
		{"to b from a by TCP", policyOf("{" + b + ", ingress: [{from: [{" + a + "}], ports: [{port: 8080}]}]}"), map[asked]bool{
			{"a", bTCP}: true, {"a", b6}: true, {"a", "tcp 10.244.1.3:9090"}: false, {"a", bUDP}: false, {"c", bTCP}: false, {"node", bUDP}: true}},
		{"to b from a by UDP", policyOf("{" + b + ", ingress: [{from: [{" + a + "}], ports: [{protocol: UDP}]}]}"), map[asked]bool{
			{"a", bTCP}: false, {"a", bUDP}: true, {"c", bUDP}: false}},
		{"to b from a range with an exception", policyOf("{" + b + ", ingress: [{from: [{ipBlock: {cidr: 10.244.2.0/24, except: [10.244.2.3/32]}}]}]}"), map[asked]bool{
			{"c@10.244.2.2", bTCP}: true, {"c@10.244.2.3", bTCP}: false, {"a", bTCP}: false, {"c", b6}: false}},
		{"to b from everywhere else", policyOf("{" + b + ", ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.244.2.3/32]}}]}]}"), map[asked]bool{
			{"c@10.244.2.2", bTCP}: true, {"c@10.244.2.3", bTCP}: false, {"a", bTCP}: true, {"c", b6}: false}},
		{"to b, a range of ports", policyOf("{" + b + ", ingress: [{ports: [{port: 9000, endPort: 9100}]}]}"), map[asked]bool{
			{"a", "tcp 10.244.1.3:9090"}: true, {"a", bTCP}: false}},
		{"from a to named ports", policyOf("{" + a + ", policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: c}}}], ports: [{port: http}]}]}"), map[asked]bool{
			{"a", cTCP}: true, {"a", c6}: true, {"a", service}: true, {"a", "tcp 10.244.2.2:9090"}: false, {"a", bTCP}: false, {"b", aTCP}: true, {"c", aUDP}: true}},
		{"from a to the port of a Service, which is no pod's", policyOf("{" + a + ", policyTypes: [Egress], egress: [{ports: [{port: 80}]}]}"), map[asked]bool{
			{"a", service}: false}},
		{"everything again", "[]", shut()},
	} {
		set(c.policies)
		for q, want := range c.want {
			protocol, at, _ := strings.Cut(q.to, " ")
			got := n.answers(q.from, protocol, at, want)
			assert.Equal(t, want, got, "%s: from %s, %s", c.name, q.from, q.to)
		}
		t.Logf("%s: %d questions", c.name, len(c.want))
	}

	// What is connected stays so; who asks again does not get through. A pod reaches itself by a Service.
	conn, err := n.dial("a", "tcp", "10.244.1.3:8080")
	require.NoError(t, err)
	defer conn.Close()
	require.True(t, echoes(conn))
	set(policyOf("{podSelector: {}, policyTypes: [Ingress, Egress]}"))
	assert.True(t, echoes(conn))
	assert.False(t, n.answers("a", "tcp", "10.244.1.3:8080", false))
	t.Log("\n" + n.nft("list table inet "+TableName))

	// A pod does not get through by the address of one that is allowed.
	set(policyOf("{" + b + ", ingress: [{from: [{podSelector: {matchLabels: {app: c}}}]}]}"))
	require.NoError(t, netns.IP(t.Context(), n.pids["a"], "addr add 10.244.2.2/32 dev lo"))
	for from, want := range map[string]bool{"a": false, "c": true} {
		require.NoError(t, netns.Do(netns.PathOf(n.pids[from]), func() error {
			conn, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP("10.244.2.2")}, &net.UDPAddr{IP: net.ParseIP("10.244.1.3"), Port: 5353})
			if err != nil {
				return err
			}
			defer conn.Close()
			_, err = conn.Write([]byte("borrowed"))
			return err
		}))
		select {
		case source := <-n.got:
			assert.True(t, want, "a datagram with the source %s came from %s", source, from)
		case <-time.After(silence):
			assert.False(t, want, "nothing came from %s", from)
		}
	}
}

// TestTheTableIsKept: what somebody changes is put right, other tables are left, and a removed add-on leaves nothing.
func TestTheTableIsKept(t *testing.T) {
	needsNamespaces(t)
	n := &node{t: t, pid: netnstest.New(t)}
	n.nft("add table ip kube-proxy")
	var table *Table
	start := func() { n.within(func() (err error) { table, err = NewTable(); return err }) }
	start()
	plan := planWith(t, policyOf("{podSelector: {}, ingress: [{from: [{namespaceSelector: {}}, {ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8]}}], ports: [{port: http}]}],"+
		" egress: [{to: [{podSelector: {}}], ports: [{port: http}, {port: 53, protocol: UDP}]}]}"))
	set := func() (changed bool) {
		n.within(func() (err error) { changed, err = table.Set(t.Context(), plan); return err })
		return changed
	}
	check := func() (err error) {
		n.within(func() error { err = table.CheckUnchanged(t.Context()); return nil })
		return err
	}

	require.Error(t, check())
	require.True(t, set())
	assert.False(t, set(), "what is as wanted was written again")
	for range 3 {
		require.NoError(t, check())
	}
	for _, harm := range []string{
		"delete table inet " + TableName,
		"flush table inet " + TableName,
		"insert rule inet " + TableName + " ingress accept",
		"delete element inet " + TableName + " ingress-pods-ip { 10.244.1.2 }",
		"flush set inet " + TableName + " ingress-peers-1-ip",
	} {
		n.nft(harm)
		require.Error(t, check(), "not noticed: %s", harm)
		require.True(t, set(), harm)
		require.NoError(t, check(), harm)
	}

	start() // an agent that starts again
	require.True(t, set())
	require.NoError(t, check())

	for range 2 {
		n.within(func() error { return table.Remove(t.Context()) })
	}
	assert.Equal(t, "table ip kube-proxy\n", n.nft("list tables"))
	require.True(t, set())
}

func needsNamespaces(t *testing.T) {
	if !slices.Contains(strings.Split(os.Getenv("FIRSTLIGHT_TEST"), ","), "ns") {
		t.Skip("needs root and network namespaces: set FIRSTLIGHT_TEST=ns")
	}
}
