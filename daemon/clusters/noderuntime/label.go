package noderuntime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/klauspost/cpuid/v2"

	"firstlight.dev/firstlight/daemon/clusters/noderuntime/features"
)

// Features keeps the labels of Node Feature Discovery on this machine's Node (package features).
type Features struct {
	Node string // its name
	Root string // where the machine's own root is
	Log  *slog.Logger
}

// labelEvery is how often features are looked for, as in NFD.
const labelEvery = time.Minute

// labeled is what of a Node is read for its labels.
type labeled struct {
	Metadata struct {
		Name        string            `json:"name"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
}

// Run looks for features until ctx ends.
func (f Features) Run(ctx context.Context) error {
	root, err := os.OpenRoot(f.Root)
	if err != nil {
		return fmt.Errorf("open the machine's root: %w", err)
	}
	defer root.Close()

	api, err := newNodes(os.Getenv)
	if err != nil {
		return err
	}

	machine := features.Machine{Root: root.FS(), CPU: readCPU()}
	for said := ""; ; {
		found := machine.Labels()
		local, wrong := features.Local(machine.Root, time.Now())
		for name, value := range local {
			found[name] = value
		}
		if text := fmt.Sprint(wrong); len(wrong) > 0 && text != said {
			f.Log.Warn("not every line of the machine's own features is a label", "lines", wrong)
			said = text
		}

		changed, err := api.label(ctx, f.Node, found)
		switch {
		case err != nil:
			f.Log.Warn("features are not on the node yet", "node", f.Node, "error", err)
		case changed:
			f.Log.Info("features are on the node", "node", f.Node, "features", len(found))
		}

		select {
		case <-ctx.Done():
			return nil
		case <-time.After(labelEvery):
		}
	}
}

// RemoveFeatures takes from all nodes the labels that Features wrote.
func RemoveFeatures(ctx context.Context) error {
	api, err := newNodes(os.Getenv)
	if err != nil {
		return err
	}

	var list struct {
		Items []labeled `json:"items"`
	}
	if err := api.read(ctx, "/api/v1/nodes", &list); err != nil {
		return err
	}

	var failed []error
	for _, n := range list.Items {
		_, err := api.patch(ctx, n, nil)
		failed = append(failed, err)
	}

	return errors.Join(failed...)
}

// readCPU asks this machine's processor.
func readCPU() features.CPU {
	return features.CPU{
		Vendor:  cpuid.CPU.VendorString,
		Family:  strconv.Itoa(cpuid.CPU.Family),
		Model:   strconv.Itoa(cpuid.CPU.Model),
		Flags:   cpuid.CPU.FeatureSet(),
		Threads: cpuid.CPU.ThreadsPerCore > 1,
	}
}

// label gives a node the features that were found, and reports whether something changed.
func (n *nodes) label(ctx context.Context, name string, found map[string]string) (bool, error) {
	var is labeled
	if err := n.read(ctx, "/api/v1/nodes/"+url.PathEscape(name), &is); err != nil {
		return false, err
	}
	return n.patch(ctx, is, found)
}

func (n *nodes) patch(ctx context.Context, is labeled, found map[string]string) (bool, error) {
	change, any := features.Patch(is.Metadata.Labels, is.Metadata.Annotations, found)
	if !any {
		return false, nil
	}

	text, err := json.Marshal(map[string]features.Metadata{"metadata": change})
	if err != nil {
		return false, fmt.Errorf("encode labels: %w", err)
	}

	body, err := n.do(
		ctx, http.MethodPatch, "/api/v1/nodes/"+url.PathEscape(is.Metadata.Name), "application/merge-patch+json",
		bytes.NewReader(text),
	)
	if err != nil {
		return false, err
	}
	_, _ = io.Copy(io.Discard, body)
	return true, body.Close()
}

// read reads one answer of the API.
func (n *nodes) read(ctx context.Context, path string, to any) error {
	body, err := n.get(ctx, path, nil)
	if err != nil {
		return err
	}
	defer body.Close()

	if err := json.NewDecoder(body).Decode(to); err != nil {
		return fmt.Errorf("read nodes: %w", err)
	}
	return nil
}
