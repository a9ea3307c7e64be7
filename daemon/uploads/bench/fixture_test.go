package bench_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/uploads/blobs/s3test"
	"firstlight.dev/firstlight/daemon/uploads/client"
)

// Addresses of the bench's own.
const (
	agentAddr = "127.9.16.1:9015"
	nginxAddr = "127.9.16.2:9443"
	proxyAddr = "127.9.16.4:9443" // the S3 server behind nginx, which does TLS for it
	apiAddr   = "127.9.16.3:6443"
)

// fixture is what is measured: the agent as the appliance runs it, and beside it an S3 server and nginx, all with their
// files on one disk.
type fixture struct {
	dir   string
	file  string // bytes of noise
	store *s3test.Gateway
	agent *exec.Cmd
	nginx *exec.Cmd
	api   *http.Server
}

func newFixture(ctx context.Context, dir string) (b *fixture, err error) {
	begun := &fixture{dir: dir, file: filepath.Join(dir, "file")}
	b = begun
	defer func() {
		if err != nil {
			begun.close()
		}
	}()
	if err := setUpNetwork(ctx); err != nil {
		return nil, err
	}
	if err := writeNoise(b.file); err != nil {
		return nil, err
	}
	if err := mintCertificate(filepath.Join(dir, "pki")); err != nil {
		return nil, err
	}
	if b.store, err = s3test.StartGateway(ctx, filepath.Join(dir, "store")); err != nil {
		return nil, err
	}
	if err := b.startAPI(); err != nil {
		return nil, err
	}
	if err := b.startAgent(ctx); err != nil {
		return nil, err
	}
	return b, b.startNginx(ctx)
}

// writeNoise writes bytes that neither compress nor are holes.
func writeNoise(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	piece := make([]byte, 16<<20)
	_, _ = rand.Read(piece) // never fails, crypto/rand
	for range bytes / len(piece) {
		if _, err := f.Write(piece); err != nil {
			return err
		}
	}
	return f.Sync()
}

// mintCertificate mints one for both servers, which is its own authority.
func mintCertificate(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	c := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "bench"},
		NotAfter:              time.Now().Add(24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, addr := range []string{agentAddr, nginxAddr, proxyAddr} {
		c.IPAddresses = append(c.IPAddresses, netip.MustParseAddrPort(addr).Addr().AsSlice())
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	text := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	return errors.Join(os.MkdirAll(dir, 0o700),
		os.WriteFile(filepath.Join(dir, "bench.crt"), text("CERTIFICATE", der), 0o644),
		os.WriteFile(filepath.Join(dir, "bench.key"), text("PRIVATE KEY", private), 0o600))
}

// startAPI answers every review with yes, as an API server does whose answers are quick.
func (b *fixture) startAPI() error {
	mux := http.NewServeMux()
	mux.HandleFunc("/apis/authentication.k8s.io/v1/tokenreviews", func(w http.ResponseWriter, r *http.Request) {
		var v authenticationv1.TokenReview
		_ = json.NewDecoder(r.Body).Decode(&v) // of client-go
		v.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "bench"}}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	})
	mux.HandleFunc("/apis/authorization.k8s.io/v1/subjectaccessreviews", func(w http.ResponseWriter, r *http.Request) {
		var v authorizationv1.SubjectAccessReview
		_ = json.NewDecoder(r.Body).Decode(&v)
		v.Status.Allowed = true
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	})
	l, err := net.Listen("tcp", apiAddr)
	if err != nil {
		return err
	}
	b.api = &http.Server{Handler: mux}
	go func() { _ = b.api.Serve(l) }() // until close
	config := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: b, cluster: {server: \"http://%s\"}}]\ncontexts: [{name: b, context: {cluster: b, user: b}}]\nusers: [{name: b, user: {}}]\ncurrent-context: b\n", apiAddr)
	return os.WriteFile(filepath.Join(b.dir, "kubeconfig"), []byte(config), 0o600)
}

// startAgent compiles firstlightd and starts its subcommand.
func (b *fixture) startAgent(ctx context.Context) error {
	program := filepath.Join(b.dir, "firstlightd")
	if err := compile(ctx, program); err != nil {
		return err
	}
	at := func(name string) string { return filepath.Join(b.dir, name) }
	if err := os.MkdirAll(at("artifacts/"+artifact.ScratchDir), 0o755); err != nil {
		return err
	}
	var err error
	b.agent, err = b.start("agent", os.Environ(), program, "artifacts", "--listen", agentAddr, "--cert", at("pki/bench.crt"), "--key", at("pki/bench.key"),
		"--kubeconfig", at("kubeconfig"), "--publish", at("artifacts"))
	if err != nil {
		return err
	}
	return b.await(ctx, "https://"+agentAddr+"/readyz")
}

func (b *fixture) startNginx(ctx context.Context) (err error) {
	program, err := exec.LookPath("nginx")
	if err != nil {
		return fmt.Errorf("find nginx: %w; run scripts/deps bench", err)
	}
	web := filepath.Join(b.dir, "web")
	if err := os.MkdirAll(web, 0o755); err != nil {
		return err
	}
	text := fmt.Sprintf(`daemon off; user root; worker_processes auto; pid %[1]s/nginx.pid; error_log %[1]s/nginx.err; events {}
http { access_log %[1]s/nginx.log; sendfile on; client_max_body_size 0; client_body_temp_path %[1]s/nginx-body; client_body_buffer_size 256k;
proxy_temp_path %[1]s/t1; fastcgi_temp_path %[1]s/t2; uwsgi_temp_path %[1]s/t3; scgi_temp_path %[1]s/t4;
server { listen %[2]s ssl; ssl_certificate %[1]s/pki/bench.crt; ssl_certificate_key %[1]s/pki/bench.key; root %[3]s; location / { dav_methods PUT DELETE; } }
server { listen %[4]s ssl; ssl_certificate %[1]s/pki/bench.crt; ssl_certificate_key %[1]s/pki/bench.key; location / {
proxy_pass http://%[5]s; proxy_set_header Host %[5]s; proxy_set_header Authorization ""; proxy_http_version 1.1; proxy_request_buffering off; proxy_buffers 8 128k; proxy_max_temp_file_size 0; } } }
`, b.dir, nginxAddr, web, proxyAddr, strings.TrimPrefix(b.store.Config.Endpoint, "http://"))
	conf := filepath.Join(b.dir, "nginx.conf")
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		return err
	}
	if b.nginx, err = b.start("nginx", os.Environ(), program, "-c", conf); err != nil {
		return err
	}
	return b.await(ctx, "https://"+nginxAddr+"/")
}

// start starts a program whose log is a file.
func (b *fixture) start(name string, env []string, program string, args ...string) (*exec.Cmd, error) {
	log, err := os.Create(filepath.Join(b.dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(program, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return cmd, nil
}

// await asks until something answers.
func (b *fixture) await(ctx context.Context, url string) error {
	for range 600 {
		out, err := b.curl(ctx, "--output", "/dev/null", "--write-out", "%{http_code}", url)
		if err == nil && strings.TrimSpace(out) != "503" {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("wait for %s: no answer; see %s", url, b.dir)
}

// curl runs curl with the fixture's authority and a token.
func (b *fixture) curl(ctx context.Context, args ...string) (string, error) {
	common := []string{"--silent", "--show-error", "--cacert", filepath.Join(b.dir, "pki/bench.crt"), "--header", "Authorization: Bearer bench"}
	out, err := exec.CommandContext(ctx, "curl", append(common, args...)...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("curl: %w: %s", err, out)
	}
	return string(out), nil
}

// noToken takes the token off a request whose address is signed.
const noToken = "Authorization:"

// client is what firstlight artifact uses.
func (b *fixture) client() (client.Client, error) {
	text, err := os.ReadFile(filepath.Join(b.dir, "pki/bench.crt"))
	if err != nil {
		return client.Client{}, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text) // which we wrote
	return client.Client{URL: "https://" + agentAddr, Token: "bench", HTTP: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}}, nil
}

// transferRate is the rate of one transfer of the file, in MB/s.
func transferRate(do func() error) (float64, error) {
	begun := time.Now()
	if err := do(); err != nil {
		return 0, err
	}
	return bytes / 1e6 / time.Since(begun).Seconds(), nil
}

// announce makes an artifact to be sent.
func (b *fixture) announce(ctx context.Context, name string) error {
	record := fmt.Sprintf(`metadata={"owner":"bench","cluster_name":"bench","image_name":%q,"image_length":%d};type=application/json`, name, bytes)
	_, err := b.curl(ctx, "--fail", "--form", record, "--form", "file=@/dev/null;filename=x", "https://"+agentAddr+artifact.CollectionPath(artifact.Binary, "bench", "bench"))
	return err
}

func key(name string) artifact.Key {
	return artifact.Key{Collection: artifact.Binary, Owner: "bench", Cluster: "bench", Name: name}
}

// send sends the file to what was announced.
func (b *fixture) send(ctx context.Context, name string) error {
	_, err := b.curl(ctx, "--fail", "--request", "PATCH", "--header", "Upload-Offset: 0", "--upload-file", b.file, "https://"+agentAddr+key(name).Path())
	return err
}

func (b *fixture) remove(ctx context.Context, name string) error {
	_, err := b.curl(ctx, "--fail", "--request", "DELETE", "https://"+agentAddr+key(name).Path())
	return err
}

func (b *fixture) close() {
	for _, cmd := range []*exec.Cmd{b.agent, b.nginx} {
		if cmd != nil {
			_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
			_ = cmd.Wait()
		}
	}
	if b.api != nil {
		_ = b.api.Close()
	}
	if b.store != nil {
		b.store.Kill()
	}
}
