package noderuntime

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
)

var quiet = slog.New(slog.DiscardHandler)

// echo is a server that says its name and then what it is told, until its listener is closed.
func echo(t *testing.T, name string) (netip.AddrPort, net.Listener) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				fmt.Fprintln(c, name)
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String()), l
}

// ask says something through an endpoint and returns who answered and what.
func ask(t *testing.T, at, say string) (who, said string) {
	t.Helper()
	c, err := net.Dial("tcp", at)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
	_, err = io.WriteString(c, say)
	require.NoError(t, err)
	require.NoError(t, c.(*net.TCPConn).CloseWrite())
	r := bufio.NewReader(c)
	who, _ = r.ReadString('\n')
	rest, _ := io.ReadAll(r)
	return strings.TrimSpace(who), string(rest)
}

func TestEndpointUsesAServerThatAnswers(t *testing.T) {
	one, first := echo(t, "one")
	two, _ := echo(t, "two")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- (&Endpoint{Servers: []netip.AddrPort{one, two}, Log: quiet}).serve(ctx, listener)
	}()
	at := listener.Addr().String()
	who, said := ask(t, at, "hello")
	assert.Equal(t, []string{"one", "hello"}, []string{who, said})

	open, err := net.Dial("tcp", at)
	require.NoError(t, err)
	defer open.Close()

	require.NoError(t, first.Close())
	for range 2 {
		who, said = ask(t, at, "again")
		assert.Equal(t, []string{"two", "again"}, []string{who, said})
	}
	cancel()
	require.NoError(t, <-ended, "connections outlived the endpoint")
}

func TestEndpointWithoutAnyServerEndsTheConnection(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	tried := make(chan netip.AddrPort, 10)
	e := &Endpoint{Servers: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:6443"), netip.MustParseAddrPort("10.0.0.2:6443")}, Log: quiet,
		dial: func(_ context.Context, to netip.AddrPort) (net.Conn, error) {
			tried <- to
			return nil, errors.New("no route to host")
		}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.serve(ctx, listener) }()
	who, _ := ask(t, listener.Addr().String(), "")
	assert.Empty(t, who)
	assert.Len(t, tried, 2)
	cancel()
	require.NoError(t, <-ended)
}

func made(name, address string, cidrs ...string) node {
	var n node
	n.Metadata.Name, n.Spec.PodCIDRs = name, cidrs
	text := fmt.Sprintf(`{"addresses":[{"type":"Hostname","address":%q},{"type":"InternalIP","address":%q}]}`, name, address)
	if err := json.Unmarshal([]byte(text), &n.Status); err != nil {
		panic(err)
	}
	return n
}

func TestWant(t *testing.T) {
	cidr, addr := netip.MustParsePrefix, netip.MustParseAddr
	w, err := planNetwork([]node{
		made("a", "172.22.0.11", "10.244.0.0/24"),
		made("b", "172.22.0.12", "10.244.1.0/24"),
		made("new", "172.22.0.13"),
		made("lost", "", "10.244.3.0/24"),
		made("six", "fd00::6", "10.244.4.0/24", "fd01:4::/64"),
	}, "a")
	require.NoError(t, err)
	assert.Equal(t, networkPlan{addr: addr("172.22.0.11"), own: []netip.Prefix{cidr("10.244.0.0/24")}, routes: map[netip.Prefix]netip.Addr{
		cidr("10.244.1.0/24"): addr("172.22.0.12"), cidr("fd01:4::/64"): addr("fd00::6")}}, w)
	_, err = planNetwork([]node{made("a", "172.22.0.11")}, "a")
	assert.EqualError(t, err, "node a has no addresses for pods yet")
	_, err = planNetwork(nil, "a")
	assert.Error(t, err)
	_, err = planNetwork([]node{made("a", "172.22.0.11", "10.244.0.0")}, "a")
	assert.ErrorContains(t, err, "node a: ")
}

func TestConfigurationOfTheNetwork(t *testing.T) {
	own := []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}
	text := cniConfig(own, 1450)
	assert.True(t, json.Valid(text))
	goldentest.Check(t, "testdata/conflist.json", string(text))
	assert.True(t, json.Valid(cniConfig(append(own, netip.MustParsePrefix("fd01::/64")), 9000)))
	goldentest.Check(t, "testdata/rules.nft", rules(own, netip.MustParsePrefix("10.244.0.0/16")))
}

// api is a Kubernetes API with nodes only.
func api(t *testing.T, list string, events ...string) *nodes {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		if r.URL.Query().Get("watch") == "" {
			fmt.Fprint(w, list)
			return
		}
		for _, e := range events {
			fmt.Fprintln(w, e)
		}
	}))
	t.Cleanup(s.Close)
	return &nodes{base: s.URL, client: s.Client(), token: func() (string, error) { return "secret", nil }}
}

func TestNodesAreFollowed(t *testing.T) {
	n := api(t, `{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`,
		`{"type":"ADDED","object":{"metadata":{"name":"c"}}}`,
		`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}`,
		`{"type":"DELETED","object":{"metadata":{"name":"a"}}}`,
		`{"type":"MODIFIED","object":{"metadata":{"name":"b"},"spec":{"podCIDRs":["10.0.0.0/24"]}}}`)
	var seen []int
	var last map[string]node
	require.NoError(t, n.watch(t.Context(), func(all map[string]node) { seen, last = append(seen, len(all)), all }))
	assert.Equal(t, []int{2, 3, 2, 2}, seen)
	assert.Equal(t, []string{"10.0.0.0/24"}, last["b"].Spec.PodCIDRs)

	gone := api(t, `{"items":[]}`, `{"type":"ERROR","object":{"code":410,"reason":"Expired"}}`)
	assert.ErrorContains(t, gone.watch(t.Context(), func(map[string]node) {}), "Expired")
	n.token = func() (string, error) { return "old", nil }
	assert.ErrorContains(t, n.watch(t.Context(), nil), "401")
}

func TestFollowSendsTheNewestOnly(t *testing.T) {
	n := api(t, `{"items":[{"metadata":{"name":"b"}},{"metadata":{"name":"a"}}]}`, `{"type":"ADDED","object":{"metadata":{"name":"c"}}}`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := n.follow(ctx, quiet)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		list := <-out
		if assert.Len(c, list, 3) {
			assert.Equal(c, "a", list[0].Metadata.Name)
		}
	}, time.Minute, time.Millisecond)
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte(`{"type":"ADDED","object":{"metadata":{"name":"c"}}}{"type":"DELETED","object":{}}`))
	f.Add([]byte(`{"type":"MODIFIED","object":{"spec":{"podCIDRs":["::/0","x"]}}}`))
	f.Fuzz(func(t *testing.T, stream []byte) {
		_ = applyEvents(strings.NewReader(string(stream)), map[string]node{}, func(all map[string]node) {
			var list []node
			for _, n := range all {
				list = append(list, n)
			}
			if w, err := planNetwork(list, "a"); err == nil {
				assert.NotEmpty(t, w.own)
				assert.True(t, json.Valid(cniConfig(w.own, 1500)))
			}
		})
	})
}

func TestProbe(t *testing.T) {
	t.Setenv("NODE", "node-1")
	t.Setenv("POD", "probe-x")
	s := httptest.NewServer(probeHandler())
	defer s.Close()
	get := func(path string) (int, string) {
		r, err := http.Get(s.URL + path)
		require.NoError(t, err)
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		return r.StatusCode, strings.TrimSpace(string(text))
	}
	code, text := get("/who")
	assert.Equal(t, http.StatusOK, code)
	assert.JSONEq(t, `{"node":"node-1","pod":"probe-x"}`, text)
	_, text = get("/ask?url=" + url.QueryEscape(s.URL+"/who"))
	assert.JSONEq(t, `{"node":"node-1","pod":"probe-x"}`, text)
	code, text = get("/ask?url=" + url.QueryEscape("http://127.0.0.1:1/who"))
	assert.Equal(t, http.StatusBadGateway, code)
	assert.Contains(t, text, "connection refused")
	code, text = get("/resolve?name=127.0.0.1")
	assert.Equal(t, http.StatusOK, code)
	assert.JSONEq(t, `["127.0.0.1"]`, text)
}

func TestCertificatesAreRenewedInTime(t *testing.T) {
	dir, bin := t.TempDir(), t.TempDir()
	now := time.Now()
	write := func(name string, begin, end time.Time, authority bool) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: begin, NotAfter: end, IsCA: authority, BasicConstraintsValid: true}
		der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
		require.NoError(t, err)
		path := filepath.Join(dir, "pki", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644))
	}
	// What it would run writes down that it was.
	ran := filepath.Join(dir, "ran")
	for name, code := range map[string]int{"kubeadm": 0, "pkill": 1} {
		script := fmt.Sprintf("#!/bin/sh\necho %s \"$@\" >>%s\nexit %d\n", name, ran, code)
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte(script), 0o755))
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	year := 365 * 24 * time.Hour
	write("ca.crt", now.Add(-29*year), now.Add(year), true)
	write("etcd/server.crt", now.Add(-year), now.Add(2*year), false)
	require.NoError(t, RenewCertificates(t.Context(), dir, now, quiet))
	assert.NoFileExists(t, ran, "nothing ends, and something was done")

	require.NoError(t, RenewCertificates(t.Context(), dir, now.Add(5*year/4), quiet))
	text, err := os.ReadFile(ran)
	require.NoError(t, err)
	assert.Equal(t, "kubeadm certs renew all\npkill -x kube-controller\npkill -x kube-scheduler\n", string(text))

	require.NoError(t, os.WriteFile(filepath.Join(dir, "pki", "apiserver.crt"), []byte("torn"), 0o644))
	due, err := dueCertificates(dir, now)
	require.NoError(t, err)
	assert.Equal(t, []string{filepath.Join(dir, "pki", "apiserver.crt")}, due)
	require.NoError(t, os.WriteFile(filepath.Join(bin, "kubeadm"), []byte("#!/bin/sh\necho no; exit 3\n"), 0o755))
	assert.ErrorContains(t, RenewCertificates(t.Context(), dir, now, quiet), "run kubeadm certs renew all: exit status 3: no")
	assert.ErrorContains(t, RenewCertificates(t.Context(), filepath.Join(dir, "nowhere"), now, quiet), "read certificates")
}
