package installer

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// clusterIdentity is what cannot be asked of the nodes because it decides what they may be asked to become.
type clusterIdentity struct {
	ID       string       `json:"id"`
	Formed   bool         `json:"born"` // its control plane was whole once: it is never made again, only mended
	Pods     netip.Prefix `json:"podCIDR"`
	Services netip.Prefix `json:"serviceCIDR"`
}

// loadIdentity returns the cluster's record; it is made from what the first control plane says of itself. A
// directory that was lost, or that went with a Provisioning that is created again, is no reason to make
// a second cluster over a living one.
func (c *cluster) loadIdentity(f *facts) (*clusterIdentity, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.identity != nil {
		return c.identity, nil
	}

	path := filepath.Join(c.dir, contract.FileIdentity)
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read record of the cluster: %w", err)
	}

	r := &clusterIdentity{}
	if err == nil {
		if err := json.Unmarshal(text, r); err != nil {
			return nil, bringup.Permanent(fmt.Errorf(
				"read record of the cluster %s: %w; remove it, and what the nodes say is believed", path, err,
			))
		}
	} else if f == nil {
		return nil, bringup.Wait("the first control plane to say whether it is part of a cluster already")
	} else if *r, err = identityFrom(*f, c.Settings); err != nil {
		return nil, err
	}

	if r.Pods != c.Pods || r.Services != c.Services {
		c.refused = bringup.Permanent(fmt.Errorf("the cluster has the networks %s for pods and %s for Services since it was made; %s and %s are asked for now; "+
			"ask for its own, or delete its Provisioning, install every node's system again and create it again",
			r.Pods, r.Services, c.Pods, c.Services))
		return nil, c.refused
	}

	if text == nil {
		if err := c.saveIdentity(*r); err != nil {
			return nil, err
		}
	}

	c.identity = r
	return r, nil
}

// refusal is why no node can be made part of the cluster as it is asked for; nil: nothing is known against it.
func (c *cluster) refusal() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused
}

// identityFrom is the record of a cluster that is new here, or that the first control plane says it is part of.
func identityFrom(f facts, s Settings) (clusterIdentity, error) {
	r := clusterIdentity{ID: rand.Text(), Pods: s.Pods, Services: s.Services}
	if f.Marker != nil && f.Marker.Cluster == s.Cluster {
		r.ID, r.Formed = f.Marker.ID, f.Kubernetes && !f.HalfMade
	}

	if r.Formed && f.PodsWere.IsValid() && f.ServicesWere.IsValid() {
		r.Pods, r.Services = f.PodsWere, f.ServicesWere
	}

	return r, nil
}

// markFormed notes that the control plane is whole.
func (c *cluster) markFormed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.identity == nil || c.identity.Formed {
		return nil
	}

	c.identity.Formed = true
	return c.saveIdentity(*c.identity)
}

func (c *cluster) saveIdentity(r clusterIdentity) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode record of the cluster: %w", err)
	}
	return atomicfile.WriteChanged(filepath.Join(c.dir, contract.FileIdentity), append(text, '\n'), 0o644)
}

// writeMarker writes on a node which cluster it is part of, before anything there depends on it.
func (n *node) writeMarker(ctx context.Context, m marker) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return n.put(ctx, []file{{markerPath, 0o644, append(text, '\n')}})
}
