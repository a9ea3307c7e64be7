package kube

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"firstlight.dev/firstlight/assets/site"
)

// Lifetimes. The appliance may lie on a shelf for years and its clock may be decades off: every
// certificate begins in 2000, authorities outlive the hardware, and leaves are replaced at every
// look (each boot, each recheck) that finds less than a third of their year left. kubeadm and the
// signer of the controller manager would begin them at the present time, which is why the
// certificates are minted here; names and subjects are kubeadm's.
const (
	authorityValidity = 30 * 365 * 24 * time.Hour
	leafValidity      = 365 * 24 * time.Hour
)

var notBefore = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// Paths of certificates without their extension.
const (
	pkiDir     = "/etc/kubernetes/pki"
	caPath     = pkiDir + "/ca"
	etcdCA     = pkiDir + "/etcd/ca"
	frontCA    = pkiDir + "/front-proxy-ca"
	accountKey = pkiDir + "/sa" // .key and .pub: signs service account tokens
	nodeClient = pkiDir + "/kubelet-client"
	nodeServer = pkiDir + "/kubelet-server"

	apiServer    = pkiDir + "/apiserver"
	daemonClient = pkiDir + "/daemon"
)

// leaf is a certificate that is wanted.
type leaf struct {
	path      string // without .crt and .key
	authority string // likewise
	cn, org   string
	usages    []x509.ExtKeyUsage
	dns       []string
	addrs     []netip.Addr
}

func authorities() []string { return []string{caPath, etcdCA, frontCA} }

// leaves lists every certificate below the authorities, as kubeadm's documentation of its PKI
// requires them.
func leaves(c Config) []leaf {
	server, user := x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth
	local := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}
	return []leaf{
		{
			path: apiServer, authority: caPath, cn: "kube-apiserver", usages: []x509.ExtKeyUsage{server},
			dns: []string{NodeName, "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
				"kubernetes.default.svc.cluster.local"},
			addrs: append([]netip.Addr{c.Address, site.NthAddress(c.ServiceCIDR, 1)}, local...),
		},
		{path: pkiDir + "/apiserver-kubelet-client", authority: caPath, cn: "kube-apiserver-kubelet-client",
			org: "kubeadm:cluster-admins", usages: []x509.ExtKeyUsage{user}},
		{
			path:      pkiDir + "/front-proxy-client",
			authority: frontCA,
			cn:        "front-proxy-client",
			usages:    []x509.ExtKeyUsage{user},
		},
		{path: pkiDir + "/etcd/server", authority: etcdCA, cn: NodeName, usages: []x509.ExtKeyUsage{server, user},
			dns: []string{NodeName, "localhost"}, addrs: local},
		{path: pkiDir + "/etcd/peer", authority: etcdCA, cn: NodeName, usages: []x509.ExtKeyUsage{server, user},
			dns: []string{NodeName, "localhost"}, addrs: local},
		{
			path:      pkiDir + "/etcd/healthcheck-client",
			authority: etcdCA,
			cn:        "kube-etcd-healthcheck-client",
			usages:    []x509.ExtKeyUsage{user},
		},
		{
			path:      pkiDir + "/apiserver-etcd-client",
			authority: etcdCA,
			cn:        "kube-apiserver-etcd-client",
			usages:    []x509.ExtKeyUsage{user},
		},
		{
			path:      pkiDir + "/admin",
			authority: caPath,
			cn:        AdminUser,
			org:       "system:masters",
			usages:    []x509.ExtKeyUsage{user},
		},
		{
			path:      daemonClient,
			authority: caPath,
			cn:        DaemonUser,
			org:       "system:masters", // it makes the rights of all others, in an API that has none yet
			usages:    []x509.ExtKeyUsage{user},
		},
		{
			path:      pkiDir + "/controller-manager",
			authority: caPath,
			cn:        "system:kube-controller-manager",
			usages:    []x509.ExtKeyUsage{user},
		},
		{path: pkiDir + "/scheduler", authority: caPath, cn: "system:kube-scheduler", usages: []x509.ExtKeyUsage{user}},
		{
			path:      nodeClient,
			authority: caPath,
			cn:        "system:node:" + NodeName,
			org:       "system:nodes",
			usages:    []x509.ExtKeyUsage{user},
		},
		{
			path:      nodeServer,
			authority: caPath,
			cn:        "system:node:" + NodeName,
			org:       "system:nodes",
			usages:    []x509.ExtKeyUsage{server},
			dns:       []string{NodeName},
			addrs:     append([]netip.Addr{c.Address}, local...),
		},
	}
}

// renewReason says why a certificate must be replaced; "" keeps it. A clock set back must not make a
// certificate look forged: only its end counts, never its beginning.
func renewReason(cert, authority *x509.Certificate, want leaf, now time.Time) string {
	switch {
	case cert.CheckSignatureFrom(authority) != nil:
		return "is of another authority"
	case cert.Subject.CommonName != want.cn || !slices.Equal(cert.Subject.Organization, organizations(want.org)):
		return "is for another name"
	case !slices.Equal(cert.ExtKeyUsage, want.usages) || !slices.Equal(cert.DNSNames, want.dns):
		return "is for another use"
	case !slices.EqualFunc(
		cert.IPAddresses, want.addrs, func(ip net.IP, a netip.Addr) bool { return ip.Equal(a.AsSlice()) },
	):
		return "is for another address"
	case cert.NotAfter.Sub(now) < leafValidity/3:
		return "ends soon"
	}
	return ""
}

// certificatesDone says which certificate is missing or must be replaced.
func (c *Cluster) certificatesDone() error {
	r, err := c.Rotation()
	if err != nil {
		return err
	}
	for _, a := range authorities() {
		if _, _, err := c.readPair(a); err != nil {
			return err
		}
	}

	if _, err := readKey(c.path(accountKey + ".key")); err != nil {
		return err
	}
	if err := r.trustDone(); err != nil {
		return err
	}

	for _, l := range leaves(c.config()) {
		if err := c.leafDone(l); err != nil {
			return err
		}
	}

	return nil
}

func (c *Cluster) leafDone(l leaf) error {
	authority, _, err := c.readPair(l.authority)
	if err != nil {
		return err
	}

	cert, _, err := c.readPair(l.path)
	if err != nil {
		return err
	}
	if why := renewReason(cert, authority, l, c.Now()); why != "" {
		return fmt.Errorf("certificate %s.crt %s", l.path, why)
	}

	return nil
}

// mintMissing writes what certificatesDone misses and nothing else. An authority that is damaged is an
// error: to replace it would orphan everything that trusts it. It returns the paths replaced.
func (c *Cluster) mintMissing() (fresh []string, err error) {
	r, err := c.Rotation()
	if err != nil {
		return nil, err
	}
	if r.isSwitching() {
		if err := r.finishSwitch(); err != nil {
			return nil, err
		}
	}

	for _, path := range authorities() {
		_, _, err := c.readPair(path)
		if errors.Is(err, fs.ErrNotExist) {
			err = c.mintAuthority(path)
		}
		if err != nil {
			return nil, err
		}
	}

	if err := c.mintAccountKey(); err != nil {
		return nil, err
	}
	if err := r.writeTrust(); err != nil {
		return nil, err
	}

	for _, l := range leaves(c.config()) {
		if c.leafDone(l) == nil {
			continue
		}
		if err := c.mintLeaf(l); err != nil {
			return nil, err
		}
		fresh = append(fresh, l.path)
	}

	return fresh, nil
}

func (c *Cluster) mintAuthority(path string) error {
	names := map[string]string{caPath: "kubernetes", etcdCA: "etcd-ca", frontCA: "front-proxy-ca"}
	return c.write(path, authorityTemplate(names[path], effectiveNow(c.Now())), nil, nil)
}

func authorityTemplate(name string, now time.Time) *x509.Certificate {
	return &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		DNSNames:              []string{name},
		NotBefore:             notBefore,
		NotAfter:              now.Add(authorityValidity),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
}

func (c *Cluster) mintLeaf(l leaf) error {
	authority, signer, err := c.readPair(l.authority)
	if err != nil {
		return err
	}

	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: l.cn, Organization: organizations(l.org)},
		DNSNames:    l.dns,
		NotBefore:   notBefore,
		NotAfter:    effectiveNow(c.Now()).Add(leafValidity),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: l.usages,
	}
	for _, a := range l.addrs {
		template.IPAddresses = append(template.IPAddresses, a.AsSlice())
	}

	return c.write(l.path, template, authority, signer)
}

// write signs and stores: key first, certificate last, each by rename. A cut between leaves a pair
// that does not match, which readPair of a leaf reports and mint mends. An authority's key without
// its certificate is no authority yet: nothing was signed with it.
func (c *Cluster) write(path string, template, parent *x509.Certificate, signer crypto.Signer) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make key %s: %w", path, err)
	}

	if parent == nil {
		parent, signer = template, key
	}

	der, err := signCertificate(template, parent, key.Public(), signer)
	if err != nil {
		return fmt.Errorf("sign certificate %s: %w", path, err)
	}
	chain, err := c.chain(path)
	if err != nil {
		return fmt.Errorf("read what certificate %s is shown with: %w", path, err)
	}

	text, err := keyPEM(key)
	if err != nil {
		return err
	}
	if err := writeFile(c.path(path+".key"), text, 0o600); err != nil {
		return err
	}

	return writeFile(c.path(path+".crt"), append([]byte(certificatePEM(der)), chain...), 0o644)
}

func (c *Cluster) mintAccountKey() error {
	key, err := readKey(c.path(accountKey + ".key"))
	if errors.Is(err, fs.ErrNotExist) {
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return fmt.Errorf("make service account key: %w", err)
		}

		text, err := keyPEM(key)
		if err != nil {
			return err
		}
		if err := writeFile(c.path(accountKey+".key"), text, 0o600); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}

	public, err := publicPEM(key)
	if err != nil {
		return err
	}
	if have, err := os.ReadFile(c.path(accountKey + ".pub")); err == nil && firstBlock(have) == public {
		return nil // with another one, while they are replaced
	}
	return writeFile(c.path(accountKey+".pub"), []byte(public), 0o644)
}

// readPair reads PATH.crt and PATH.key and holds that they belong together.
func (c *Cluster) readPair(path string) (*x509.Certificate, crypto.Signer, error) {
	text, err := os.ReadFile(c.path(path + ".crt"))
	if err != nil {
		return nil, nil, fmt.Errorf("read certificate: %w", err)
	}

	block, _ := pem.Decode(text)
	if block == nil {
		return nil, nil, fmt.Errorf("read certificate %s.crt: no PEM block in it", path)
	}

	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("read certificate %s.crt: %w", path, err)
	}

	key, err := readKey(c.path(path + ".key"))
	if err != nil {
		return nil, nil, err
	}
	if public, ok := cert.PublicKey.(*ecdsa.PublicKey); !ok || !public.Equal(key.Public()) {
		return nil, nil, fmt.Errorf("certificate %s.crt does not belong to its key", path)
	}

	return cert, key, nil
}

// effectiveNow is the clock, or the beginning of all certificates if the clock is before it.
func effectiveNow(now time.Time) time.Time {
	if now.Before(notBefore) {
		return notBefore
	}
	return now
}

func organizations(org string) []string {
	if org == "" {
		return nil
	}
	return []string{org}
}
