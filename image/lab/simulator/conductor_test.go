package simulator_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/u-root/u-root/pkg/cpio"

	"firstlight.dev/firstlight/image/lab/simulator"
)

// token is what the conductor gives to the first who asks.
const token = "0123456789abcdef0123456789abcdef"

// appliance is the other side in small: a boot server, and an Ironic that gives commands as its agent
// client does (agent_client.py). It takes every host for node "uuid-of-MAC".
type appliance struct {
	boot   *httptest.Server
	ironic *httptest.Server
	image  []byte

	mu       sync.Mutex
	given    map[string]bool // tokens that were handed out, by MAC
	callback map[string]string
	pinned   map[string]string // certificates, by MAC
	posted   []map[string]any  // inventories

	refuseDisk string // why disks may not be written to; "": they may
}

func newAppliance(t *testing.T) *appliance {
	a := &appliance{given: map[string]bool{}, callback: map[string]string{}, pinned: map[string]string{}, image: bytes.Repeat([]byte("firstlight"), 10000)}
	cert, root := authority(t)
	a.ironic = httptest.NewUnstartedServer(a.ironicAPI())
	a.ironic.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	a.ironic.StartTLS()
	t.Cleanup(a.ironic.Close)
	a.boot = httptest.NewServer(a.bootServer(ramdisk(t, root)))
	t.Cleanup(a.boot.Close)
	return a
}

// authority mints a root and a certificate of it for 127.0.0.1.
func authority(t *testing.T) (tls.Certificate, []byte) {
	mint := func(form, parent *x509.Certificate, by *ecdsa.PrivateKey) (*ecdsa.PrivateKey, []byte) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		if by == nil {
			by = key
		}
		der, err := x509.CreateCertificate(rand.Reader, form, parent, &key.PublicKey, by)
		require.NoError(t, err)
		return key, der
	}
	from, to := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	root := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"}, NotBefore: from, NotAfter: to,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	rootKey, rootDER := mint(root, root, nil)
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: from, NotAfter: to, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	leafKey, leafDER := mint(leaf, root, rootKey)
	return tls.Certificate{Certificate: [][]byte{leafDER}, PrivateKey: leafKey}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: rootDER})
}

// ramdisk is some bytes, and a root appended to them as the daemon does.
func ramdisk(t *testing.T, root []byte) []byte {
	var trust bytes.Buffer
	w := cpio.Newc.Writer(&trust)
	for _, r := range []cpio.Record{
		cpio.Directory("etc", 0o755), cpio.Directory("etc/ironic-python-agent.d", 0o755),
		cpio.StaticFile("etc/ironic-python-agent.d/ca.pem", string(root), 0o644),
		cpio.StaticFile("etc/ironic-python-agent.d/tls.conf", "[DEFAULT]\ncafile = /etc/ironic-python-agent.d/ca.pem\n", 0o644),
	} {
		require.NoError(t, w.WriteRecord(r))
	}
	require.NoError(t, cpio.WriteTrailer(w))
	// What comes before looks like an archive in places, as a compressed one may.
	return append(bytes.Repeat([]byte("compressed 070701 "), 512*40), trust.Bytes()...)
}

func (a *appliance) bootServer(initrd []byte) http.Handler {
	mux := http.NewServeMux()
	file := func(content []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
		}
	}
	mux.HandleFunc("/kernel", file(bytes.Repeat([]byte("kernel"), 1000)))
	mux.HandleFunc("/ramdisk", file(initrd))
	mux.HandleFunc("/image.raw", file(a.image))
	mux.HandleFunc("/ipxe/{mac}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "#!ipxe\nkernel --timeout 5 http://%s/kernel text ipa-api-url=%s ipa-inspection-callback-url=%s/v1/continue_inspection "+
			"ipa-image-download-connection-retries=2 BOOTIF=${mac} initrd=ramdisk || goto retry\ninitrd http://%s/ramdisk || goto retry\nboot\n",
			r.Host, a.ironic.URL, a.ironic.URL, r.Host)
	})
	return mux
}

func (a *appliance) ironicAPI() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/continue_inspection", func(w http.ResponseWriter, r *http.Request) {
		var data map[string]any
		_ = json.NewDecoder(r.Body).Decode(&data)
		a.mu.Lock()
		a.posted = append(a.posted, data)
		a.mu.Unlock()
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, `{"uuid": "posted"}`)
	})
	mux.HandleFunc("GET /v1/lookup", func(w http.ResponseWriter, r *http.Request) {
		mac := r.FormValue("addresses")
		a.mu.Lock()
		defer a.mu.Unlock()
		give := token
		if a.given[mac] {
			give = "******"
		}
		a.given[mac] = true
		fmt.Fprintf(w, `{"node": {"uuid": "uuid-of-%s"}, "config": {"heartbeat_timeout": 1, "agent_token": %q}}`, mac, give)
	})
	mux.HandleFunc("POST /disk", func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.refuseDisk != "" {
			w.WriteHeader(http.StatusForbidden)
			_ = json.NewEncoder(w).Encode(map[string]any{"error_message": map[string]string{"faultstring": a.refuseDisk}})
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /v1/heartbeat/{uuid}", func(w http.ResponseWriter, r *http.Request) {
		var said struct {
			URL   string `json:"callback_url"`
			Token string `json:"agent_token"`
			Cert  string `json:"agent_verify_ca"`
		}
		_ = json.NewDecoder(r.Body).Decode(&said)
		if said.Token != token {
			http.Error(w, "wrong token", http.StatusBadRequest)
			return
		}
		mac := strings.TrimPrefix(r.PathValue("uuid"), "uuid-of-")
		a.mu.Lock()
		defer a.mu.Unlock()
		a.callback[mac], a.pinned[mac] = said.URL, said.Cert
		w.WriteHeader(http.StatusAccepted)
	})
	return mux
}

// agentOf waits until the host's agent called, and returns where it listens and a client that trusts
// nothing but the certificate that it sent.
func (a *appliance) agentOf(t *testing.T, h *simulator.Server) (string, *http.Client) {
	t.Helper()
	var url, cert string
	eventually(t, h, "agent never called", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		url, cert = a.callback[h.MAC], a.pinned[h.MAC]
		return url != ""
	})
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM([]byte(cert)))
	return url, &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}}
}

// answer is a command as the agent describes it.
type answer struct {
	ID          string `json:"id"`
	Name        string `json:"command_name"`
	Status      string `json:"command_status"`
	Error       struct{ Type, Details string }
	Result      map[string]any `json:"command_result"`
	Faultstring string
}

// command gives one and waits for its end, as the conductor does.
func (a *appliance) command(t *testing.T, h *simulator.Server, name string, params any) answer {
	t.Helper()
	base, client := a.agentOf(t, h)
	body, err := json.Marshal(map[string]any{"name": name, "params": params})
	require.NoError(t, err)
	query := "?wait=false&agent_token=" + url.QueryEscape(token)
	response, err := client.Post(base+"/v1/commands/"+query, "application/json", bytes.NewReader(body))
	require.NoError(t, err)
	defer response.Body.Close()
	var last answer
	require.NoError(t, json.NewDecoder(response.Body).Decode(&last))
	eventually(t, h, name+" never ended", func() bool {
		if last.Status != "RUNNING" {
			return true
		}
		response, err := client.Get(base + "/v1/commands/" + query)
		if err != nil {
			return strings.HasSuffix(name, "power_off") // it is gone, as it should
		}
		defer response.Body.Close()
		var all struct{ Commands []json.RawMessage }
		text, err := io.ReadAll(response.Body)
		if err != nil && strings.HasSuffix(name, "power_off") {
			return true // it went while it answered
		}
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &all))
		for _, c := range all.Commands {
			var one struct {
				answer
				Error struct{ Type, Details string } `json:"command_error"`
			}
			require.NoError(t, json.Unmarshal(c, &one))
			if one.ID == last.ID {
				last, last.Error = one.answer, one.Error
			}
		}
		return false
	})
	return last
}

// write gives the command by which a conductor has an image written.
func (a *appliance) write(t *testing.T, h *simulator.Server, id, sum string) answer {
	t.Helper()
	return a.command(t, h, "deploy.execute_deploy_step", map[string]any{"step": map[string]any{"step": "write_image", "interface": "deploy", "args": map[string]any{
		"image_info": map[string]any{
			"id": id, "urls": []string{a.boot.URL + "/image.raw"}, "os_hash_algo": "sha256", "os_hash_value": sum, "disk_format": "raw",
		}, "configdrive": "H4sI"}}})
}

func (a *appliance) sum() string {
	sum := sha256.Sum256(a.image)
	return hex.EncodeToString(sum[:])
}

// start plugs in hosts at addresses of the test's own.
func start(t *testing.T, a *appliance, c simulator.Config) *simulator.Simulator {
	random := make([]byte, 2)
	_, _ = rand.Read(random)
	c.BMC = netip.AddrFrom4([4]byte{127, 100 + random[0]%60, random[1], 1})
	c.Agent = netip.AddrFrom4([4]byte{127, 160 + random[0]%60, random[1], 1})
	c.BootTime, c.WorkTime, c.Heartbeat = 10*time.Millisecond, 10*time.Millisecond, 10*time.Millisecond
	if a != nil {
		c.Boot = a.boot.URL
	}
	f, err := simulator.Start(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

// eventually waits, for minutes if need be: it only ends a run that hangs.
func eventually(t *testing.T, h *simulator.Server, otherwise string, what func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for !what() {
		if ctx.Err() != nil {
			t.Fatalf("%s; events of %s:\n%s", otherwise, h.Name, events(h))
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func events(h *simulator.Server) string {
	var out strings.Builder
	for _, e := range h.Events() {
		fmt.Fprintf(&out, "%s %s\n", e.At.Format("15:04:05.000"), e.What)
	}
	return out.String()
}
