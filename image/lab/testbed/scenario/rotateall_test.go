package scenario_test

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/metal/packages/apttest"
	"firstlight.dev/firstlight/image/lab/simulator"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
)

// TestARackInServiceNoticesNoRotation: ten servers with BMCs of Redfish and two of IPMI are in service. The key of
// packages, the passwords of their BMCs, the log-in to them, the password of Ironic, the authority and all certificates are
// replaced one after the other, and the daemon is killed in each. No host leaves service, no one writes to a disk or to
// a BMC but its password, and after each Ironic asks every BMC for its power.
func TestARackInServiceNoticesNoRotation(t *testing.T) {
	need(t)
	apttest.Require(t)
	ctx, d := startFleet(t, "rotate-all", simulator.Config{Hosts: 12, BootTime: bootTime}, 100*time.Minute)
	r := startRack(t, ctx, d, 2)
	r.checkUntouched(ctx, "before a rotation")

	r.rotatePackages(ctx)
	r.checkUntouched(ctx, "with another key of packages")
	r.rotateBMCs(ctx)
	r.checkUntouched(ctx, "with other passwords of BMCs")
	r.rotateLogIn(ctx)
	r.checkUntouched(ctx, "with another log-in to nodes")
	r.rotateIronic(ctx)
	r.checkUntouched(ctx, "with another password of Ironic")
	r.rotateAuthority(ctx)
	r.checkUntouched(ctx, "with another authority")
	r.renewCertificates(ctx)
	r.checkUntouched(ctx, "with other certificates")

	time.Sleep(soak)
	r.checkUntouched(ctx, "a minute later")
	r.checkNothingWaits(ctx)
	r.checkAnswerIsTheBMCs(ctx, d.Servers.Hosts()[0])
}

// passwordOf is the password that Ironic is given for the BMC of a node.
func (r *rackInService) passwordOf(ctx context.Context, node string) string {
	r.t.Helper()
	said := run(r.t, ctx, r.d, "kubectl", "-n", "metal3", "get", "secret", node+"-bmc-secret",
		"-o", "jsonpath={.data.password}")
	password, err := base64.StdEncoding.DecodeString(said)
	require.NoError(r.t, err)
	return string(password)
}

// accounts are what DATA has of the accounts of BMCs.
func (r *rackInService) accounts() (all []vault.BMCAccount) {
	r.t.Helper()
	files, err := filepath.Glob(filepath.Join(r.d.Sandbox.DataPath(vault.BMCAccountDir), "*.json"))
	require.NoError(r.t, err)
	for _, file := range files {
		var a vault.BMCAccount
		text, err := os.ReadFile(file)
		require.NoError(r.t, err)
		require.NoError(r.t, json.Unmarshal(text, &a))
		all = append(all, a)
	}
	return all
}

// rotateBMCs kills the daemon when BMCs have said that they have another password, and have not taken a login with it.
// One that is interrupted before it has said so may get it an hour later, as its account would be locked otherwise.
func (r *rackInService) rotateBMCs(ctx context.Context) {
	r.t.Helper()
	r.t.Log(run(r.t, ctx, r.d, "firstlightd", "rotate", "bmc"))
	isAsked := func(a vault.BMCAccount) bool { return a.Asked }
	isUnclear := func(a vault.BMCAccount) bool { return len(a.Tries) > 0 }
	r.await("BMCs say that they have another password", func() bool {
		accounts := r.accounts()
		return slices.ContainsFunc(accounts, isAsked) && !slices.ContainsFunc(accounts, isUnclear)
	})
	r.restartDaemon(ctx)

	hosts := r.d.Servers.Hosts()
	r.await("every account of a BMC has its new password alone", func() bool {
		accounts := r.accounts()
		return len(accounts) == len(hosts) && !slices.ContainsFunc(accounts, func(a vault.BMCAccount) bool {
			return a.Present == "" || a.IsRotating()
		})
	})

	seen := map[string]bool{r.d.Servers.Password(): true}
	for _, h := range hosts {
		password := r.passwordOf(ctx, h.Name)
		assert.False(r.t, seen[password], "%s has the password of before, or that of another BMC", h.Name)
		seen[password] = true
		if r.byIPMI[h.Name] == nil {
			assert.Equal(r.t, h.Password(), password, h.Name)
		}
	}
	r.checkNothingWaits(ctx)
}

// rotateLogIn kills the daemon when the first node lets both keys in.
func (r *rackInService) rotateLogIn(ctx context.Context) {
	r.t.Helper()
	const root, user = "root/.ssh/authorized_keys", "home/firstlight/.ssh/authorized_keys"
	hosts := r.d.Servers.Hosts()
	former := r.shells[hosts[0].Name].Get(root)
	r.await("the appliance has logged in to each node", func() bool {
		doc, err := r.d.Sandbox.Status(ctx)
		if err != nil {
			return false
		}
		reached := 0
		for _, n := range doc.Nodes {
			if n.Address != "" {
				reached++
			}
		}
		return reached == len(hosts)
	})

	r.t.Log(run(r.t, ctx, r.d, "firstlightd", "rotate", "nodes"))
	r.await("a node lets two keys in", func() bool {
		for _, n := range r.shells {
			if strings.Count(n.Get(root), "ssh-ed25519") == 2 {
				return true
			}
		}
		return false
	})
	r.restartDaemon(ctx)

	keys := r.d.Sandbox.DataPath("/var/lib/firstlight/ssh")
	r.await("the former key is forgotten", func() bool {
		left, err := filepath.Glob(filepath.Join(keys, "id_ed25519.*"))
		require.NoError(r.t, err)
		return len(left) == 0 || len(left) == 1 && strings.HasSuffix(left[0], ".pub")
	})
	next := r.shells[hosts[0].Name].Get(root)
	assert.NotEqual(r.t, former, next)
	for _, h := range hosts {
		assert.Equal(r.t, next, r.shells[h.Name].Get(root), h.Name)
		assert.Equal(r.t, next, r.shells[h.Name].Get(user), h.Name)
	}
	r.checkNothingWaits(ctx)
}

// rotateIronic kills the daemon at once.
func (r *rackInService) rotateIronic(ctx context.Context) {
	r.t.Helper()
	former, err := r.d.IronicPassword()
	require.NoError(r.t, err)
	r.t.Log(run(r.t, ctx, r.d, "firstlightd", "rotate", "ironic"))
	r.restartDaemon(ctx)

	inService(r.t, ctx, r.d, len(r.d.Servers.Hosts()))
	_, err = r.d.NodesBy(ctx, former)
	assert.True(r.t, gophercloud.ResponseCodeIs(err, 401), "the former password: %v", err)
}

// renewCertificates gives every certificate of the appliance a month of its life, of which a third of a year is too
// little, and kills the daemon: what is started in its place renews them, and they are served.
func (r *rackInService) renewCertificates(ctx context.Context) {
	r.t.Helper()
	aged := r.ageCertificates()
	r.t.Logf("%d certificates end in a month: %s", len(aged), strings.Join(aged, " "))
	assert.Greater(r.t, len(aged), 15, "those of Kubernetes alone are 13")
	r.restartDaemon(ctx)

	soon := time.Now().Add(100 * 24 * time.Hour)
	r.await("all are renewed", func() bool {
		return !slices.ContainsFunc(aged, func(path string) bool {
			text, err := os.ReadFile(r.d.Sandbox.DataPath(path))
			cert := parseCertificate(text)
			return err != nil || cert == nil || cert.NotAfter.Before(soon)
		})
	})
	for _, address := range []string{scenario.Address + ":6385", scenario.Address + ":6443"} {
		r.await(address+" serves the renewed one", func() bool {
			served, err := r.servedCertificate(ctx, address)
			return err == nil && served.NotAfter.After(soon)
		})
	}
}

// ageCertificates signs every certificate of the appliance again, by its own authority, to end in a month. It returns
// their paths on DATA.
func (r *rackInService) ageCertificates() (paths []string) {
	r.t.Helper()
	type authority struct {
		cert *x509.Certificate
		key  crypto.Signer
	}
	var authorities []authority
	leaves := map[string]*x509.Certificate{}
	for _, top := range []string{"/var/lib/firstlight/ca", "/etc/kubernetes/pki"} {
		dir := r.d.Sandbox.DataPath(top)
		require.NoError(r.t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".crt" {
				return err
			}
			text, err := os.ReadFile(path)
			require.NoError(r.t, err)
			cert := parseCertificate(text)
			require.NotNil(r.t, cert, path)
			if !cert.IsCA {
				leaves[top+strings.TrimPrefix(path, dir)] = cert
				return nil
			}

			pair, err := tls.LoadX509KeyPair(path, strings.TrimSuffix(path, ".crt")+".key")
			require.NoError(r.t, err, path)
			authorities = append(authorities, authority{cert, pair.PrivateKey.(crypto.Signer)})
			return nil
		}))
	}

	for path, cert := range leaves {
		for _, a := range authorities {
			if cert.CheckSignatureFrom(a.cert) != nil {
				continue
			}
			cert.NotAfter = time.Now().AddDate(0, 1, 0)
			der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, cert.PublicKey, a.key)
			require.NoError(r.t, err, path)
			text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
			require.NoError(r.t, atomicfile.Write(r.d.Sandbox.DataPath(path), text, 0o644))
			paths = append(paths, path)
		}
	}
	return paths
}

// parseCertificate is the first one of a PEM file; nil: there is none.
func parseCertificate(text []byte) *x509.Certificate {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil
	}
	return cert
}

// servedCertificate is what a server of the appliance shows.
func (r *rackInService) servedCertificate(ctx context.Context, address string) (*x509.Certificate, error) {
	conn, err := r.d.Dialer()(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	c := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // its end is asked alone
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return c.ConnectionState().PeerCertificates[0], nil
}
