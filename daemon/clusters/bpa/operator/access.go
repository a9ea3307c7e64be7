package operator

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/engine/remote"
)

// clusterKeyComment begins the comment of every cluster's key in a node's authorized_keys: a node lets in that of the
// cluster that has it now.
const clusterKeyComment = "firstlight-cluster-"

// authorizeTimeout bounds one node: a dead one keeps nothing else waiting for long.
const authorizeTimeout = 10 * time.Second

// ensureKey makes the log-in of a cluster to its nodes: the owner's own, if there is a Secret kud.SSHSecret next to the
// Provisioning, else one that is minted for this cluster. It is in the operator's namespace, where nobody who may only
// write Provisionings reads it. key is nil if own: the owner has put that one onto the nodes.
func (r *Provisionings) ensureKey(ctx context.Context, w *clusterState) (key ssh.Signer, own bool, err error) {
	var theirs corev1.Secret
	err = r.Reader.Get(ctx, client.ObjectKey{Namespace: w.cr.Namespace, Name: kud.SSHSecret}, &theirs)
	if client.IgnoreNotFound(err) != nil {
		return nil, false, fmt.Errorf("read Secret: %w", err)
	}
	// One with the operator's label was made by an operator that gave the appliance's log-in away.
	own = err == nil && theirs.Labels[LabelManaged] != FieldManager

	data := theirs.Data
	if !own {
		key, err := readClusterKey(ctx, r.Reader, r.Namespace, w.cluster)
		if key != nil || err != nil {
			return key, false, err
		}
		if data, err = mintKey(w.cluster); err != nil {
			return nil, false, err
		}
	}

	err = r.apply(ctx, &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: kud.KeySecret(w.cluster), Labels: managedLabels()},
		Type:       corev1.SecretTypeOpaque, Data: data,
	})
	if own || err != nil {
		return nil, own, err
	}

	key, err = readClusterKey(ctx, r.Reader, r.Namespace, w.cluster)
	return key, false, err
}

// readClusterKey is the log-in of a cluster to its nodes; nil if it has none yet.
func readClusterKey(ctx context.Context, c client.Reader, namespace, cluster string) (ssh.Signer, error) {
	var s corev1.Secret
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: kud.KeySecret(cluster)}, &s)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read log-in to nodes: %w", err)
	}

	key, err := ssh.ParsePrivateKey(s.Data[contract.FilePrivateKey])
	if err != nil {
		return nil, fmt.Errorf("read log-in to nodes, Secret %s/%s: %s: %w", namespace, s.Name, contract.FilePrivateKey, err)
	}

	return key, nil
}

// mintKey is a new ed25519 log-in, as files of ICN's names.
func mintKey(cluster string) (map[string][]byte, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("mint log-in of cluster %s: %w", cluster, err)
	}

	block, err := ssh.MarshalPrivateKey(private, clusterKeyComment+cluster)
	if err != nil {
		return nil, fmt.Errorf("mint log-in of cluster %s: %w", cluster, err)
	}

	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		return nil, fmt.Errorf("mint log-in of cluster %s: %w", cluster, err)
	}

	return map[string][]byte{
		contract.FilePrivateKey: pem.EncodeToMemory(block),
		contract.FilePublicKey:  []byte(authorizedLine(signer, cluster) + "\n"),
	}, nil
}

func authorizedLine(key ssh.Signer, cluster string) string {
	return string(bytes.TrimSpace(ssh.MarshalAuthorizedKey(key.PublicKey()))) + " " + clusterKeyComment + cluster
}

// applianceKeys are the appliance's log-in, by the agent that the daemon serves: the key itself is not here. done ends
// their use. Without an agent there are none.
func (c Config) applianceKeys(ctx context.Context) (keys []ssh.Signer, done func(), err error) {
	if c.Agent == "" {
		return nil, func() {}, nil
	}

	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", c.Agent)
	if err != nil {
		return nil, nil, fmt.Errorf("use the appliance's log-in to nodes: %w", err)
	}

	keys, err = agent.NewClient(conn).Signers()
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("use the appliance's log-in to nodes: %w", err), conn.Close())
	}

	return keys, func() { conn.Close() }, nil
}

// authorize lets the cluster's key in on members that are not known to let it in, all at once. One that does not answer
// is tried again while the installer runs, which says itself what it waits for.
func (r *Provisionings) authorize(
	ctx context.Context,
	w *clusterState,
	key ssh.Signer,
	members []kud.Node,
	hostKeys map[netip.Addr]string,
) error {
	appliance, done, err := r.applianceKeys(ctx)
	if err != nil || len(appliance) == 0 || w.virtlet {
		return err
	}
	defer done()

	shell := remote.Shell{Signer: key, Others: appliance, Port: r.SSHPort}
	var wg sync.WaitGroup
	for _, m := range members {
		id := strings.Join([]string{w.cluster, m.Address.String(), m.Host, authorizedLine(key, w.cluster)}, " ")
		if b := w.host(m); b != nil {
			id += " " + installedAt(b)
		}
		if _, known := r.authorized.Load(id); known || !m.Address.IsValid() {
			continue
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, authorizeTimeout)
			defer cancel()
			if err := w.authorizeAt(ctx, shell, m.Address, hostKeys[m.Address]); err != nil {
				r.Log.Info("cluster's key is not on a node yet", "cluster", w.cluster, "node", m.Label, "error", err)
				return
			}
			r.authorized.Store(id, true)
		})
	}

	wg.Wait()
	return nil
}

// authorizeAt lets the key in at one address. A host key that nobody knows is taken at this first contact, as the
// installer would at its own.
func (w *clusterState) authorizeAt(ctx context.Context, shell remote.Shell, at netip.Addr, hostKey string) error {
	if hostKey == "" {
		var err error
		if hostKey, err = shell.LearnHostKey(ctx, at); err != nil {
			return err
		}
		if err := w.dir.addHostKey(at, hostKey); err != nil {
			return err
		}
	}
	return shell.Authorize(ctx, at, hostKey, authorizedLine(shell.Signer, w.cluster), clusterKeyComment)
}

// authorizeLate lets the cluster's key in on members that did not answer when the Job was made.
func (r *Provisionings) authorizeLate(ctx context.Context, w *clusterState) error {
	key, err := readClusterKey(ctx, r.Reader, r.Namespace, w.cluster)
	if err != nil || key == nil {
		return err
	}

	known, err := w.dir.knownHosts()
	if err != nil {
		return err
	}

	return r.authorize(ctx, w, key, w.run.Members, known)
}

// deleteKey deletes the log-in of a cluster that is given up.
func (r *Provisionings) deleteKey(ctx context.Context, cluster string) error {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: kud.KeySecret(cluster)}}
	if err := r.Client.Delete(ctx, s); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete log-in of cluster %s: %w", cluster, err)
	}
	return nil
}
