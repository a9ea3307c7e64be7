package noderuntime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
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
	Status struct {
		Capacity map[string]string `json:"capacity"`
	} `json:"status"`
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
		local, wrong := features.Local(machine.Root, time.Now())
		found, refused, err := api.applyRules(ctx, f.Node, machine, local)
		maps.Copy(found.Labels, local)
		if text := fmt.Sprint(wrong, refused); len(wrong)+len(refused) > 0 && text != said {
			f.Log.Warn("not everything that is said of the machine becomes a label", "lines", wrong, "rules", refused)
			said = text
		}

		changed := false
		if err == nil {
			changed, err = api.label(ctx, f.Node, found)
		}
		switch {
		case err != nil:
			f.Log.Warn("features are not on the node yet", "node", f.Node, "error", err)
		case changed:
			f.Log.Info("features are on the node", "node", f.Node, "features", len(found.Labels))
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
	if err := api.read(ctx, "/api/v1/nodes", nil, &list); err != nil {
		return err
	}

	var failed []error
	for _, n := range list.Items {
		_, err := api.patch(ctx, n, features.Given{})
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

// applyRules returns the features of a machine, and what rules and other programs add to them. refused are sentences about
// rules that cannot be.
func (n *nodes) applyRules(
	ctx context.Context, node string, machine features.Machine, local map[string]string,
) (found features.Given, refused []string, err error) {
	const api = "/apis/nfd.k8s-sigs.io/v1alpha1/"
	var rules struct {
		Items []features.RuleObject `json:"items"`
	}
	var said struct {
		Items []features.NodeFeature `json:"items"`
	}
	ofNode := url.Values{"labelSelector": {features.NodeNameLabel + "=" + node}}
	err = errors.Join(
		n.read(ctx, api+"nodefeaturerules", nil, &rules),
		n.read(ctx, api+"nodefeatures", ofNode, &said),
	)
	if err != nil {
		return features.Given{Labels: map[string]string{}}, nil, err
	}

	raw := machine.Raw(node, local)
	labels := machine.Labels()
	for _, one := range said.Items {
		raw.Add(one)
		maps.Copy(labels, one.Spec.Labels)
	}
	found, refused = features.Apply(rules.Items, raw)
	maps.Copy(labels, found.Labels)
	found.Labels = labels
	return found, refused, nil
}

// label gives a node what was found, and reports whether something changed.
func (n *nodes) label(ctx context.Context, name string, found features.Given) (bool, error) {
	var is labeled
	if err := n.read(ctx, "/api/v1/nodes/"+url.PathEscape(name), nil, &is); err != nil {
		return false, err
	}
	return n.patch(ctx, is, found)
}

// patch writes a node's labels, annotations and what it can offer. A resource is listed as long as it may be there, so that
// it is taken away after a crash, too.
func (n *nodes) patch(ctx context.Context, is labeled, found features.Given) (bool, error) {
	change := features.Patch(features.Node{
		Labels:      is.Metadata.Labels,
		Annotations: is.Metadata.Annotations,
		Capacity:    is.Status.Capacity,
	}, found)
	gone, added := map[string]*string{}, map[string]*string{}
	for name, number := range change.Capacity {
		if number == nil {
			gone[name] = nil
		} else {
			added[name] = number
		}
	}

	path := "/api/v1/nodes/" + url.PathEscape(is.Metadata.Name)
	for _, step := range []struct {
		isNeeded bool
		path     string
		change   any
	}{
		{len(gone) > 0, path + "/status", map[string]any{"status": map[string]any{"capacity": gone, "allocatable": gone}}},
		{!change.Metadata.IsEmpty(), path, map[string]any{"metadata": change.Metadata}},
		{len(added) > 0, path + "/status", map[string]any{"status": map[string]any{"capacity": added}}},
	} {
		if !step.isNeeded {
			continue
		}
		if err := n.mergePatch(ctx, step.path, step.change); err != nil {
			return false, err
		}
	}
	return !change.Metadata.IsEmpty() || len(change.Capacity) > 0, nil
}

func (n *nodes) mergePatch(ctx context.Context, path string, change any) error {
	text, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encode features: %w", err)
	}
	body, err := n.do(ctx, http.MethodPatch, path, "application/merge-patch+json", bytes.NewReader(text))
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, body)
	return body.Close()
}

// read reads one answer of the API.
func (n *nodes) read(ctx context.Context, path string, query url.Values, to any) error {
	body, err := n.get(ctx, path, query)
	if err != nil {
		return err
	}
	defer body.Close()

	if err := json.NewDecoder(body).Decode(to); err != nil {
		return fmt.Errorf("read nodes: %w", err)
	}
	return nil
}
