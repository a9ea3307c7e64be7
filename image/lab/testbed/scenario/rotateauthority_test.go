package scenario_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/engine/remote/sshtest"
	"firstlight.dev/firstlight/daemon/metal/ironic"
	"firstlight.dev/firstlight/image/lab/netns"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
)

const (
	authorityDir = "/var/lib/firstlight/ca"
	trustFile    = "etc/firstlight/ca.crt" // on a node; its containerd reads it at each pull
)

// rotateAuthority kills the daemon in each step: when the first node trusts two authorities, when the next one signs,
// and when the first node trusts that one alone. Every node asks the registry meanwhile, trusting what its file names.
// The twenty minutes that a stage lasts pass at once: the file on DATA that they are counted from is dated back.
func (r *rackInService) rotateAuthority(ctx context.Context) {
	r.t.Helper()
	former := r.authorityFile("ca.crt")
	for _, n := range r.shells {
		n.Put(trustFile, former)
	}
	endPulls := r.startPulls(ctx)

	r.t.Log(run(r.t, ctx, r.d, "firstlightd", "rotate", "authority"))
	r.await("a node trusts both authorities", func() bool { return r.countTrusting(2, former) > 0 })
	r.restartDaemon(ctx)
	r.awaitNote(ctx, "The next authority is there and signs nothing yet, until ")
	assert.Equal(r.t, former, r.authorityFile("ca.crt"), "the next authority signs before its time")
	next := r.authorityFile("next.crt")
	assert.Equal(r.t, len(r.shells), r.countTrusting(2, former), "not every node trusts both")
	assert.Equal(r.t, len(r.shells), r.countTrusting(2, next), "not every node trusts both")

	r.dateBack("next.crt")
	r.await("the next authority signs", func() bool { return r.authorityFile("ca.crt") == next })
	r.restartDaemon(ctx)
	r.awaitNote(ctx, "The next authority signs, and the former one is trusted still, until ")
	r.checkSigned(ctx, next)
	assert.Equal(r.t, len(r.shells), r.countTrusting(2, former), "the former is taken from a node before its time")

	r.dateBack("former.crt")
	r.await("a node trusts the next authority alone", func() bool { return r.countTrusting(1, next) > 0 })
	r.restartDaemon(ctx)
	r.await("the former authority is forgotten", func() bool {
		return r.authorityFile("former.crt")+r.authorityFile("next.crt")+r.authorityFile("next.key") == ""
	})
	assert.Equal(r.t, len(r.shells), r.countTrusting(1, next), "not every node trusts the next authority alone")
	r.checkSigned(ctx, next)
	r.await("the API server trusts the operator", func() bool { // by webhooks, which fail closed
		_, err := r.d.Sandbox.Run(ctx, "kubectl", "-n", "metal3", "annotate", "bmh", r.d.Servers.Hosts()[0].Name,
			"example.com/asked=yes", "--dry-run=server")
		return err == nil
	})
	endPulls()
	r.checkNothingWaits(ctx)
}

// authorityFile is a file of the authority on DATA; "" if it is not there.
func (r *rackInService) authorityFile(name string) string {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.d.Sandbox.DataPath(authorityDir), name))
	if !os.IsNotExist(err) {
		require.NoError(r.t, err)
	}
	return strings.TrimSpace(string(text))
}

// dateBack makes a stage of the rotation as old as it has to be.
func (r *rackInService) dateBack(name string) {
	r.t.Helper()
	then := time.Now().Add(-time.Hour)
	require.NoError(r.t, os.Chtimes(filepath.Join(r.d.Sandbox.DataPath(authorityDir), name), then, then))
}

// countTrusting counts nodes that trust so many authorities, this one among them.
func (r *rackInService) countTrusting(authorities int, root string) (nodes int) {
	for _, n := range r.shells {
		text := n.Get(trustFile)
		if strings.Count(text, "BEGIN CERTIFICATE") == authorities && strings.Contains(text, root) {
			nodes++
		}
	}
	return nodes
}

// awaitNote waits until the status says something.
func (r *rackInService) awaitNote(ctx context.Context, begin string) {
	r.t.Helper()
	r.await("the status says: "+begin, func() bool {
		doc, err := r.d.Sandbox.Status(ctx)
		return err == nil && slices.ContainsFunc(doc.Notes, func(note string) bool { return strings.HasPrefix(note, begin) })
	})
}

// checkSigned waits until all that the appliance serves by TLS shows a certificate that an authority signed.
func (r *rackInService) checkSigned(ctx context.Context, root string) {
	r.t.Helper()
	authority := parseCertificate([]byte(root))
	require.NotNil(r.t, authority)
	for name, address := range map[string]string{
		"Ironic":         fmt.Sprintf("%s:%d", ironic.Loopback(), ironic.Port),
		"the agent gate": fmt.Sprintf("%s:%d", scenario.Address, ironic.Port),
		"the registry":   fmt.Sprintf("%s:%d", scenario.Address, assets.RegistryPort),
		"the upload API": fmt.Sprintf("%s:%d", scenario.Address, artifact.Port),
	} {
		r.await(name+" shows a certificate of the next authority", func() bool {
			served, err := r.servedCertificate(ctx, address)
			return err == nil && served.CheckSignatureFrom(authority) == nil
		})
	}
}

// startPulls has every node ask the registry, as its containerd does before a pull, each time by a new connection that
// trusts what the node's file names then. The function that it returns ends that; not one may have been refused.
func (r *rackInService) startPulls(ctx context.Context) (end func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	var group errgroup.Group
	var asked, refused atomic.Int64
	for name, n := range r.shells {
		group.Go(func() error {
			for ctx.Err() == nil {
				err := r.askRegistry(ctx, n)
				if ctx.Err() != nil {
					return nil
				}
				asked.Add(1)
				if err != nil {
					refused.Add(1)
					r.t.Logf("%s is served no image: %v", name, err)
				}
				time.Sleep(time.Second)
			}
			return nil
		})
	}
	return func() {
		r.t.Helper()
		cancel()
		require.NoError(r.t, group.Wait())
		r.t.Logf("nodes asked the registry %d times and were refused %d times", asked.Load(), refused.Load())
		assert.Positive(r.t, asked.Load())
		assert.Zero(r.t, refused.Load())
	}
}

// newTransport makes requests as a node does: in its network, from its own address, each by a new connection.
func (r *rackInService) newTransport(n *sshtest.Node, config *tls.Config) *http.Transport {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(n.Addr)}, FallbackDelay: -1}
	return &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   config,
		DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
			err = netns.Do(r.d.Wire().Path(), func() (err error) {
				conn, err = dialer.DialContext(ctx, network, address)
				return err
			})
			return conn, err
		},
	}
}

// askRegistry asks the registry once, from a node's own address.
func (r *rackInService) askRegistry(ctx context.Context, n *sshtest.Node) error {
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM([]byte(n.Get(trustFile)))
	client := &http.Client{Timeout: time.Minute, Transport: r.newTransport(n, &tls.Config{RootCAs: trusted})}
	url := fmt.Sprintf("https://%s:%d/v2/", scenario.Address, assets.RegistryPort)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", answer.Status)
	}
	return nil
}
