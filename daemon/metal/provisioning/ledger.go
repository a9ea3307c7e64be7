package provisioning

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/engine/rerun"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// ledgerInterval is the time between two steps of what the owner of a host asked for.
const ledgerInterval = 3 * time.Second

// followLedger does the next step of each open entry of a ledger, until ctx ends. Before that, add may begin some.
func followLedger[T metal3.Entry[T]](
	ctx context.Context, p *Provisioner, up func() bool, ledger *metal3.Ledger[T],
	add func(ctx context.Context) error, next func(ctx context.Context, host string, entry T) error,
) error {
	if !rerun.Await(ctx, up) {
		return nil
	}
	for {
		if p.Hosts.IsCurrent() {
			if err := add(ctx); err != nil && ctx.Err() == nil {
				p.Log.Warn("what the owners of nodes asked for waits", "in", ledger.Dir, "error", err)
			}
		}
		open, err := ledger.Open()
		if err != nil {
			return err
		}
		if p.Hosts.IsCurrent() {
			for host, entry := range open {
				if err := next(ctx, host, entry); err != nil && ctx.Err() == nil {
					p.Log.Warn("what the owner of a node asked for waits", "node", host, "in", ledger.Dir, "error", err)
				}
			}
		}

		select {
		case <-ctx.Done():
			return nil
		case <-time.After(ledgerInterval):
		}
	}
}

// readHost reads a host from the API itself; nil if there is none.
func (p *Provisioner) readHost(ctx context.Context, name string) (client.Client, *metal3api.BareMetalHost, error) {
	api, err := p.Client()
	if err != nil {
		return nil, nil, err
	}
	h := &metal3api.BareMetalHost{}
	key := client.ObjectKey{Namespace: metal3.Namespace, Name: name}
	if err := api.Get(ctx, key, h); client.IgnoreNotFound(err) != nil {
		return nil, nil, err
	} else if err != nil {
		return api, nil, nil
	}
	return api, h, nil
}

func patchHost(ctx context.Context, api client.Client, h *metal3api.BareMetalHost, change metal3.Patch) error {
	text, err := change.JSON()
	if err != nil {
		return err
	}
	return api.Patch(ctx, h, client.RawPatch(types.MergePatchType, text))
}

// addOwnerEvent tells a host what became of something that its owner asked for.
func (p *Provisioner) addOwnerEvent(node, reason, message string) {
	at := time.Now()
	sum := sha256.Sum256([]byte(at.String() + message))
	e := hostEvent{Host: node, Name: fmt.Sprintf("asked-%x", sum[:8]), Reason: reason, Message: message, At: at}
	e.IsNormal = reason != "EraseFailed"
	go p.addEvent(e)
}
