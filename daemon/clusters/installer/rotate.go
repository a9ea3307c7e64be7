package installer

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// Rotate replaces the authorities of a cluster in service, as far as it may by now: Kubernetes' own, etcd's, that of the
// front proxy, and the key of service accounts. Control planes go one after another, then workers, through each stage:
// both are trusted, the next ones sign, the former ones are trusted no more. The last follows settle after the one
// before: until then a run ends well without it. A token names the rotation, so that one that is done is not begun again.
func (i *Installer) Rotate(ctx context.Context, token string, settle time.Duration) error {
	c := i.cluster
	for {
		r, err := c.loadRotation(ctx, token)
		if err != nil {
			return err
		}
		if err := c.saveProgress(r.Rotation); err != nil {
			return err
		}
		if !r.IsDue(token, time.Now(), settle) {
			return nil
		}

		if r.Stage == contract.RotationSigned {
			if err := c.checkTokens(ctx, r.Former["sa.pub"]); err != nil {
				return err
			}
			r.Stage = contract.RotationDrop
			if err := c.saveRotation(ctx, r); err != nil {
				return err
			}
			continue
		}
		if err := i.rotateStage(ctx, r); err != nil {
			return err
		}

		r.conclude(time.Now())
		if err := c.saveRotation(ctx, r); err != nil {
			return err
		}
	}
}

// conclude is after a stage is in effect everywhere.
func (r *rotation) conclude(now time.Time) {
	switch r.Stage {
	case contract.RotationTrust:
		r.Stage = contract.RotationSign
	case contract.RotationSign:
		r.Stage, r.Signed = contract.RotationSigned, now.UTC()
		r.forgetKeys()
	case contract.RotationDrop:
		r.Stage, r.Former, r.Next, r.Cross = contract.RotationDone, nil, nil, ""
	}
}

// loadRotation reads the record on the first control plane; one of another token that is done is replaced by the next.
func (c *cluster) loadRotation(ctx context.Context, token string) (*rotation, error) {
	n := c.firstControlPlane()
	if err := n.reachedDone(ctx); err != nil {
		return nil, fmt.Errorf("node %s: %w", n.Label, err)
	}

	text, err := n.shell.RunSecret(ctx, "sh", "-c", `test ! -e "$1" || cat "$1"`, "sh", rotationPath)
	if err != nil {
		return nil, fmt.Errorf("read record of the rotation on %s: %w", n.Label, err)
	}
	r := &rotation{}
	if text != "" {
		if err := json.Unmarshal([]byte(text), r); err != nil {
			return nil, bringup.Permanent(fmt.Errorf("read record of the rotation %s on %s: %w", rotationPath, n.Label, err))
		}
		if r.Token == token || r.Stage != contract.RotationDone {
			return r, nil // one that was begun is completed first
		}
	}

	former := authorities{}
	for _, path := range authorityFiles() {
		if former[path], err = n.shell.RunSecret(ctx, "cat", pkiDir+path); err != nil {
			return nil, fmt.Errorf("read %s on %s: %w", path, n.Label, err)
		}
	}
	if r, err = newRotation(token, former, time.Now()); err != nil {
		return nil, fmt.Errorf("node %s: %w", n.Label, err)
	}
	return r, c.saveRotation(ctx, r)
}

// saveRotation writes how far it is: on the first control plane, then for the operator.
func (c *cluster) saveRotation(ctx context.Context, r *rotation) error {
	text, err := r.encode()
	if err != nil {
		return err
	}
	if err := c.firstControlPlane().put(ctx, []file{{rotationPath, 0o600, text}}); err != nil {
		return err
	}
	return c.saveProgress(r.Rotation)
}

func (c *cluster) saveProgress(r contract.Rotation) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return atomicfile.WriteChanged(filepath.Join(c.dir, contract.FileRotation), append(text, '\n'), 0o644)
}

// rotateStage brings one stage into effect: on control planes, on workers, then in what the cluster tells its clients.
func (i *Installer) rotateStage(ctx context.Context, r *rotation) error {
	i.cluster.forgetAPI()
	for _, controlPlanes := range []bool{true, false} {
		plans := map[string]*bringup.Runner{}
		var order []string
		for _, n := range i.cluster.nodes {
			if n.ControlPlane == controlPlanes {
				order = append(order, n.Label)
				plans[n.Label] = &bringup.Runner{Plan: n.rotationStages(r), Log: n.log}
			}
		}
		if len(order) == 0 {
			continue
		}
		if err := i.run(ctx, plans, order); err != nil {
			return err
		}
	}

	i.cluster.forgetAPI()
	plan := i.cluster.rotationStages(r)
	return i.run(ctx, map[string]*bringup.Runner{"": {Plan: plan, Log: i.cluster.log}}, []string{""})
}

// forgetAPI has the API looked for again: what was known of it trusts what the stage before did.
func (c *cluster) forgetAPI() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.api = nil
}
