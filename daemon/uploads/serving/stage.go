package serving

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

const owner = "firstlight-artifacts" // field manager

// StageName is the stage's name in the plan.
const StageName = "artifacts-ready"

// Stage is the fact that uploads are taken. pod is asked at every look, so that a renewed
// certificate or a new address is a difference like any other.
func Stage(pod func() (Pod, error), api func() (client.Client, error)) bringup.Stage {
	s := stage{pod, api, &apply.Cache{}}
	return bringup.Stage{
		Name:    StageName,
		Title:   "The API for uploads starts",
		Fact:    "operators can bring OS images, container images and packages over the REST API",
		Why:     "Nothing of the appliance waits for what is brought, so it comes after the nodes of the site.",
		Done:    s.done,
		Do:      s.do,
		Recheck: 30 * time.Second,
	}
}

type stage struct {
	pod func() (Pod, error)
	api func() (client.Client, error)

	memory *apply.Cache
}

func (s stage) objectSet() (Pod, apply.Set, error) {
	p, err := s.pod()
	if err != nil {
		return Pod{}, apply.Set{}, err
	}

	set, err := apply.New(owner, p.Objects()...)
	return p, set, err
}

func (s stage) done(ctx context.Context) error {
	p, set, err := s.objectSet()
	if err != nil {
		return err
	}

	api, err := s.api()
	if err != nil {
		return err
	}
	if set, err = set.PlaceFor(api); err != nil {
		return err
	}
	if err := s.memory.CheckCurrent(ctx, set, api); err != nil {
		return err
	}
	if err := CheckReady(ctx, p.CA); err != nil {
		return bringup.Wait("the agent to answer on port %d: %v", artifact.Port, err)
	}

	return nil
}

func (s stage) do(ctx context.Context, report bringup.Report) error {
	p, set, err := s.objectSet()
	if err != nil {
		return err
	}
	if err := makeFolders(p.Dir, User); err != nil {
		return err
	}

	api, err := s.api()
	if err != nil {
		return err
	}

	if err := removeStoreService(ctx, api); err != nil {
		return err
	}

	if set, err = set.PlaceFor(api); err != nil {
		return err
	}

	report("applying the pod of the agent")
	return set.Apply(ctx, api)
}

// makeFolders makes the folders and gives them to the pod's user. What is in them is its own already, and may be
// links that lead elsewhere: they are not followed out of dir.
func makeFolders(dir string, user int) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("make folder of artifacts: %w", err)
	}

	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open folder of artifacts: %w", err)
	}
	defer root.Close()

	for _, d := range []string{
		".",
		artifact.StoreDir,
		artifact.ScratchDir,
		artifact.PartsDir,
		artifact.ImagesDir,
		artifact.PackagesDir,
		artifact.DigestsDir,
		artifact.BundlesDir,
		artifact.AuditDir,
	} {
		err := root.MkdirAll(d, 0o750)
		if err == nil {
			err = root.Lchown(d, user, user)
		}
		if err != nil {
			return fmt.Errorf("make folder of artifacts in %s: %w", dir, err)
		}
	}

	return nil
}

// CheckReady is nil if the agent, with a certificate of this root, says on the loopback that it
// has read its store.
func CheckReady(ctx context.Context, root []byte) error {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(root) {
		return errors.New("the appliance's root is no certificate")
	}

	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(
		ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/readyz", artifact.Port), nil,
	)
	if err != nil {
		return err
	}

	c := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}}
	response, err := c.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()

	if response.StatusCode == http.StatusOK {
		return nil
	}

	var p artifact.Problem
	text, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil || json.Unmarshal(text, &p) != nil || p.Detail == "" {
		return fmt.Errorf("it says %s", response.Status)
	}

	return p
}
