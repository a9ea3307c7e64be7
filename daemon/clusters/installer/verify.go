package installer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/clusters/contract/probe"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// verifyDone holds that this run verified the cluster: what an earlier run saw may have changed since.
func (c *cluster) verifyDone(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.verified {
		return fmt.Errorf("it was not verified yet")
	}

	return nil
}

func (c *cluster) verifyDo(ctx context.Context, report bringup.Report) error {
	a, err := c.connect(ctx)
	if err != nil {
		return err
	}

	tried := probe.Cluster{
		Client: a.client,
		Set:    a.set,
		Owner:  "firstlight-installer",
		Ready:  func(have []corev1.Node) error { return nodesVerdict(c.nodes, have) },
	}
	for _, n := range c.nodes {
		tried.Nodes = append(tried.Nodes, n.Label)
	}

	seen, err := tried.Run(ctx, report)
	if seen != nil {
		err = errors.Join(err, c.saveVerification(seen))
	}
	if err != nil {
		return err
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.verified = true
	return nil
}

// saveVerification writes down what was seen.
func (c *cluster) saveVerification(v *probe.Verification) error {
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return fmt.Errorf("encode verification: %w", err)
	}

	return atomicfile.WriteChanged(filepath.Join(c.dir, contract.FileVerification), append(text, '\n'), 0o644)
}
