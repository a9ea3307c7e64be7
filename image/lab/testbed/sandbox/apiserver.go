package sandbox

import (
	"bytes"
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
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/assets/freeport"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/appliance/kube"
	"firstlight.dev/firstlight/image/lab/process"
)

// API is a Kubernetes API without a node: etcd and kube-apiserver as the image has them, as plain
// processes on the loopback, for tests of controllers. Nothing runs pods, and no controller of
// Kubernetes' own runs. What is written is gone with the test, so etcd does not sync.
type API struct {
	URL        string // https://127.0.0.1:PORT
	CAFile     string
	CAKeyFile  string
	CertFile   string // of kube.DaemonUser
	KeyFile    string
	OwnerCert  string // file, of kube.AdminUser, as that of kubectl on the appliance
	OwnerKey   string // file
	ServerCert string // file, of what serves at 127.0.0.1
	ServerKey  string // file
	Kubeconfig string // a file that says all that
	AuditLog   string // the API server's; "": it has none
	dir        string
	apiserver  *process.Child
	children   []*process.Child // all, as they were started: each needs those before it
}

// APIServer starts an API for a test, in a few seconds, and ends it with the test. It needs neither root
// nor an image, but compiles Kubernetes on a machine that never did; so it asks for the kind native.
func APIServer(t testing.TB) *API {
	t.Helper()
	return startForTest(t, StartAPI)
}

// ForeignAPIServer is APIServer as a cluster of someone else's has it: without the appliance's policies, and of
// EarlierVersion where FIRSTLIGHT_TEST has KindEarlier.
func ForeignAPIServer(t testing.TB) *API {
	t.Helper()
	build := func(ctx context.Context) (string, error) { return BuildProgram(ctx, "kubernetes") }
	if HasKind(KindEarlier) {
		build = BuildEarlier
	}
	return startForTest(t, func(ctx context.Context, dir string) (*API, error) {
		program, err := build(ctx)
		if err != nil {
			return nil, err
		}
		return startAPI(ctx, dir, program, false)
	})
}

func startForTest(t testing.TB, start func(ctx context.Context, dir string) (*API, error)) *API {
	t.Helper()
	if !HasKind(Kind) {
		t.Skip("compiles and runs etcd and kube-apiserver; set FIRSTLIGHT_TEST=" + Kind)
	}

	api, err := start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(api.Close)
	return api
}

// HostDefinition is the CustomResourceDefinition of BareMetalHosts, of the very module that the
// appliance's operator is compiled from.
func HostDefinition(ctx context.Context) ([]byte, error) {
	top, err := bench.FindTop()
	if err != nil {
		return nil, err
	}

	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", "github.com/metal3-io/baremetal-operator")
	cmd.Dir = filepath.Join(top, "assets", "build", "metal3")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("find module of BareMetalHost: %w", err)
	}

	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		return nil, fmt.Errorf("find module of BareMetalHost: %w", err)
	}

	return os.ReadFile(filepath.Join(module.Dir, "config/base/crds/bases/metal3.io_baremetalhosts.yaml"))
}

// StartAPI starts an API whose files are in dir, and returns when it serves.
func StartAPI(ctx context.Context, dir string) (*API, error) {
	kubernetes, err := BuildProgram(ctx, "kubernetes")
	if err != nil {
		return nil, err
	}
	return startAPI(ctx, dir, kubernetes, true)
}

// startAPI starts an API of a program that has a kube-apiserver, with the appliance's own policies or without.
func startAPI(ctx context.Context, dir, kubernetes string, isOwn bool) (*API, error) {
	etcd, err := BuildProgram(ctx, "etcd")
	if err != nil {
		return nil, err
	}

	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}

	at := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", ports[i]) }
	a := &API{
		URL:        "https://" + at(2),
		CAFile:     dir + "/ca.crt",
		CAKeyFile:  dir + "/ca.key",
		CertFile:   dir + "/admin.crt",
		KeyFile:    dir + "/admin.key",
		OwnerCert:  dir + "/owner.crt",
		OwnerKey:   dir + "/owner.key",
		ServerCert: dir + "/server.crt",
		ServerKey:  dir + "/server.key",
		Kubeconfig: dir + "/kubeconfig",
		dir:        dir,
	}
	if err := a.writeFiles(); err != nil {
		return nil, err
	}

	_, err = a.start("etcd", etcd, "--data-dir", dir+"/etcd", "--unsafe-no-fsync",
		"--listen-client-urls", "http://"+at(0), "--advertise-client-urls", "http://"+at(0),
		"--listen-peer-urls", "http://"+at(1), "--initial-advertise-peer-urls", "http://"+at(1), "--initial-cluster", "default=http://"+at(1))
	if err != nil {
		return nil, err
	}

	var policies []string
	if isOwn {
		if policies, err = a.writePolicies(); err != nil {
			a.Close()
			return nil, err
		}
	}

	args := append([]string{"kube-apiserver", "--etcd-servers", "http://" + at(0),
		"--allow-privileged", "--enable-bootstrap-token-auth", "--bind-address", "127.0.0.1", "--secure-port", fmt.Sprint(ports[2]), "--endpoint-reconciler-type", "none",
		"--service-cluster-ip-range", "10.96.0.0/16", "--client-ca-file", a.CAFile, "--authorization-mode", "RBAC",
		"--tls-cert-file", a.ServerCert, "--tls-private-key-file", a.ServerKey,
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", dir + "/admin.key",
		"--service-account-signing-key-file", dir + "/admin.key", "--disable-admission-plugins", "ServiceAccount"}, policies...)
	a.apiserver, err = a.start("apiserver", kubernetes, args...)
	if err != nil {
		a.Close()
		return nil, err
	}

	if err := a.await(ctx); err != nil {
		a.Close()
		return nil, err
	}

	return a, nil
}

// Close ends it; what it kept is lost.
func (a *API) Close() {
	for _, p := range slices.Backward(a.children) {
		p.Kill() // nothing they write is worth waiting for
	}
}

// writePolicies writes the appliance's own policies of its API server, and returns the arguments that name them.
func (a *API) writePolicies() (args []string, err error) {
	a.AuditLog = a.dir + "/audit/audit.log"
	files, named, err := kube.APIServerPolicies(a.dir, filepath.Dir(a.AuditLog), nil)
	if err != nil {
		return nil, err
	}

	for name, text := range files {
		if err := os.WriteFile(filepath.Join(a.dir, name), text, 0o600); err != nil {
			return nil, err
		}
	}

	for _, arg := range named {
		args = append(args, "--"+arg.Name, arg.Value)
	}

	return args, nil
}

// Trust has the server answer people of an issuer, as a site that names it does: it follows the file without a restart,
// a moment later. nil: nobody's.
func (a *API) Trust(issuer *site.OIDC) error {
	files, _, err := kube.APIServerPolicies(a.dir, filepath.Dir(a.AuditLog), issuer)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(a.dir, "authentication.yaml"), files["authentication.yaml"], 0o600)
}

// await asks until the server says that it is ready.
func (a *API) await(ctx context.Context) error {
	pair, err := tls.LoadX509KeyPair(a.CertFile, a.KeyFile)
	if err != nil {
		return fmt.Errorf("read client certificate: %w", err)
	}

	ca, err := os.ReadFile(a.CAFile)
	if err != nil {
		return fmt.Errorf("read authority: %w", err)
	}

	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	client := http.Client{Timeout: 10 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}}}
	defer client.CloseIdleConnections()
	for {
		response, err := client.Get(a.URL + "/readyz")
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
			err = errors.New(response.Status)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for API server: %w: %w", ctx.Err(), err)
		case <-a.apiserver.Done():
			text, _ := os.ReadFile(a.dir + "/apiserver.log")
			return fmt.Errorf("wait for API server: it ended: %s", lastBytes(string(text), 2000))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// writeFiles mints an authority, a server's and an administrator's certificate, and writes the kubeconfig.
func (a *API) writeFiles() error {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make key: %w", err)
	}

	ca := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "test"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return fmt.Errorf("mint authority: %w", err)
	}
	caKeyDER, err := x509.MarshalECPrivateKey(caKey)
	if err != nil {
		return fmt.Errorf("encode key of authority: %w", err)
	}
	err = errors.Join(writePEM(a.CAFile, "CERTIFICATE", der), writePEM(a.CAKeyFile, "EC PRIVATE KEY", caKeyDER))
	if err != nil {
		return err
	}

	leaf := func(name string, serial int64, subject pkix.Name, usage x509.ExtKeyUsage) error {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return fmt.Errorf("make key: %w", err)
		}

		template := &x509.Certificate{
			SerialNumber: big.NewInt(serial),
			Subject:      subject,
			NotBefore:    ca.NotBefore,
			NotAfter:     ca.NotAfter,
			KeyUsage:     x509.KeyUsageDigitalSignature,
			ExtKeyUsage:  []x509.ExtKeyUsage{usage},
			IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		}
		der, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), caKey)
		if err != nil {
			return fmt.Errorf("mint certificate %s: %w", name, err)
		}

		keyDER, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			return fmt.Errorf("encode key: %w", err)
		}

		return errors.Join(
			writePEM(a.dir+"/"+name+".crt", "CERTIFICATE", der),
			writePEM(a.dir+"/"+name+".key", "EC PRIVATE KEY", keyDER),
		)
	}
	kubeconfig := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: admin, user: {client-certificate: %q, client-key: %q}}]
contexts: [{name: test, context: {cluster: test, user: admin}}]
current-context: test
`, a.URL, a.CAFile, a.CertFile, a.KeyFile)
	return errors.Join(
		leaf("server", 2, pkix.Name{CommonName: "kube-apiserver"}, x509.ExtKeyUsageServerAuth),
		leaf(
			"admin", 3, pkix.Name{CommonName: kube.DaemonUser, Organization: []string{"system:masters"}},
			x509.ExtKeyUsageClientAuth,
		),
		leaf(
			"owner", 4, pkix.Name{CommonName: kube.AdminUser, Organization: []string{"system:masters"}},
			x509.ExtKeyUsageClientAuth,
		),
		os.WriteFile(a.Kubeconfig, []byte(kubeconfig), 0o600))
}

func writePEM(path, kind string, der []byte) error {
	var b bytes.Buffer
	if err := pem.Encode(&b, &pem.Block{Type: kind, Bytes: der}); err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return os.WriteFile(path, b.Bytes(), 0o600)
}

// start starts a program that writes to NAME.log and ends with the test, also with one that crashes.
func (a *API) start(name, path string, args ...string) (*process.Child, error) {
	out, err := os.Create(filepath.Join(a.dir, name+".log"))
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer out.Close()

	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = out, out
	p, err := process.Start(cmd)
	if err != nil {
		return nil, err
	}

	a.children = append(a.children, p)
	return p, nil
}

// freePorts finds TCP ports of the loopback.
func freePorts(n int) (ports []int, err error) {
	for range n {
		port, err := freeport.FindTCP()
		if err != nil {
			return nil, err
		}

		ports = append(ports, port)
	}
	return ports, nil
}
