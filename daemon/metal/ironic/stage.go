package ironic

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

const owner = "firstlight-ironic" // field manager

// Stage is the fact that Ironic answers, with the certificate and the configuration that it
// ought to have. pod is asked at every look, so that a renewed certificate or an edited
// site is a difference like any other.
func Stage(pod func() (Pod, error), api func() (client.Client, error)) bringup.Stage {
	return apply.Stage{
		Name:  "ironic-ready",
		Title: "Ironic starts",
		Fact:  "Ironic answers on the provisioning network, by TLS and with a password",
		Why:   "It drives the BMCs and the deploy ramdisk for the operator. It is started with system-pods, and is awaited before the first node is handed over.",
		Owner: owner,
		API:   api,
		Doing: "applying Ironic's pod",
		Objects: func() ([]client.Object, error) {
			p, err := pod()
			if err != nil {
				return nil, err
			}
			return p.Objects()
		},
		Prepare: func() error {
			p, err := pod()
			if err != nil {
				return err
			}
			return p.makeDirs()
		},
		Ready: func(ctx context.Context, _ client.Client) error {
			p, err := pod()
			if err != nil {
				return err
			}
			if err := CheckReady(ctx, p.Config.Gate(), p.CA); err != nil {
				return bringup.Wait("Ironic to answer at %s: %v", p.Config.Gate(), err)
			}

			return nil
		},
	}.Bringup()
}

// makeDirs makes the directories that the pod is given. The database holds the BMCs' passwords: its
// directory is root's alone, also where an earlier version made it.
func (p Pod) makeDirs() error {
	for _, dir := range []string{p.StateDir, filepath.Join(p.StateDir, "log"), p.FilesDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make Ironic's directories: %w", err)
		}
	}
	if err := os.Chmod(p.StateDir, 0o700); err != nil {
		return fmt.Errorf("close Ironic's directory: %w", err)
	}
	return nil
}

// CheckReady is nil if an Ironic with a certificate of this root says its versions (GET /v1,
// which needs no password).
func CheckReady(ctx context.Context, endpoint string, root []byte) error {
	transport, err := NewTransport(root)
	if err != nil {
		return err
	}

	transport.DisableKeepAlives = true // the certificate may be another the next time
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+"/v1", nil)
	if err != nil {
		return err
	}

	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()

	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("it says %s", resp.Status)
	}

	return nil
}
