package operator

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/bpa/match"
	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/engine/remote"
)

// hostKeys are the SSH host keys of members by address: those that their ramdisks told when they were installed, and
// those that were pinned at a first contact. What is known of systems that are no more is forgotten.
func (r *Provisionings) hostKeys(
	ctx context.Context,
	w *clusterState,
	members []kud.Node,
) (map[netip.Addr]string, error) {
	if err := w.forgetKeys(members); err != nil {
		return nil, err
	}

	text, err := w.dir.read(contract.FileKnownHosts)
	if err != nil {
		return nil, fmt.Errorf("read known hosts: %w", err)
	}

	pinned, keys := remote.ReadKnownHosts(text), map[netip.Addr]string{}
	for _, m := range members {
		if key := pinned[m.Address]; key != "" {
			keys[m.Address] = key
		}

		b := w.host(m)
		if b != nil && b.Annotations[label.HostKey] != "" { // its ramdisk told it, or it was met when it was verified
			keys[m.Address] = b.Annotations[label.HostKey]
			continue
		}
		if b == nil || b.Spec.UserData == nil || b.Spec.UserData.Name == "" {
			continue
		}

		namespace := b.Spec.UserData.Namespace
		if namespace == "" {
			namespace = b.Namespace
		}

		data, err := r.secretKey(ctx, namespace, b.Spec.UserData.Name, "userData")
		if err != nil {
			return nil, err
		}

		if key := hostKey(data); key != "" {
			keys[m.Address] = key
		}
	}

	return keys, nil
}

// adoptNodes gets the cluster's key onto the members that are not in the cluster yet, if their
// image came with a default user and password, all at once. What is pinned goes into keys.
func (r *Provisionings) adoptNodes(
	ctx context.Context,
	w *clusterState,
	key ssh.Signer,
	members []kud.Node,
	keys map[netip.Addr]string,
) ([]*match.Problem, error) {
	name := w.cr.Spec.CredentialsSecret
	if name == "" {
		return nil, nil
	}

	var s corev1.Secret
	err := r.Reader.Get(ctx, client.ObjectKey{Namespace: w.cr.Namespace, Name: name}, &s)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read Secret: %w", err)
	}

	p := remote.Password{User: string(s.Data["username"]), Password: string(s.Data["password"])}
	if apierrors.IsNotFound(err) || p.User == "" || p.Password == "" {
		return []*match.Problem{{
			Reason: NoCredentials,
			Waits:  true,
			Sentence: fmt.Sprintf(
				"credentialsSecret: there is no Secret %s/%s with username and password; make it, or remove the field",
				w.cr.Namespace, name,
			),
		}}, nil
	}

	if key == nil { // the owner's own, which must be one to log in with here
		if key, err = readClusterKey(ctx, r.Reader, r.Namespace, w.cluster); err != nil {
			return nil, err
		}
	}

	var mu sync.Mutex
	var wg sync.WaitGroup
	pinned := maps.Clone(keys)
	problems := make([]*match.Problem, len(members))
	w.logins = map[string]string{}
	for i, m := range members {
		if recordedNode(w.record, m) != nil {
			continue
		}
		if b := w.host(m); b != nil && b.Annotations[label.PasswordTaken] == "true" {
			w.logins[m.Label] = fmt.Sprintf("by the cluster's key; password of %s taken away when the host was verified", p.User)
			continue
		}
		wg.Go(func() {
			pin := func(hostKey string) error {
				mu.Lock()
				defer mu.Unlock()
				pinned[m.Address] = hostKey
				return w.dir.write(contract.FileKnownHosts, remote.KnownHosts(pinned), 0o644)
			}
			if err := (remote.Shell{Signer: key, Port: r.SSHPort}).Adopt(
				ctx, m.Address, keys[m.Address], p, pin,
			); err != nil {
				problems[i] = &match.Problem{
					Reason: LoginFailed,
					Waits:  true,
					Node:   match.Node{Label: m.Label},
					Sentence: fmt.Sprintf("node %s: host %s: %v; correct the Secret %s, or put the cluster's key there for root by hand (Secret %s/%s) and remove credentialsSecret",
						m.Label, m.Host, err, name, r.Namespace, kud.KeySecret(w.cluster)),
				}
				return
			}

			mu.Lock()
			defer mu.Unlock()
			fingerprint := ""
			if k, _, _, _, err := ssh.ParseAuthorizedKey([]byte(pinned[m.Address])); err == nil {
				fingerprint = ssh.FingerprintSHA256(k)
			}

			w.logins[m.Label] = fmt.Sprintf(
				"by the cluster's key; host key %s pinned at first contact, password of %s taken away", fingerprint,
				p.User,
			)
		})
	}

	wg.Wait()
	maps.Copy(keys, pinned)
	return slices.DeleteFunc(problems, func(p *match.Problem) bool { return p == nil }), nil
}
