package supportbundle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// apiLimit is for asking the whole API; one that is down must not hold up the rest.
const apiLimit = time.Minute

// fetchResources asks the API for all objects and returns what adds them. Their Secrets are known
// to the redactor when it returns.
func (c *Collector) fetchResources(ctx context.Context) func(context.Context) error {
	texts := map[string][]byte{}
	err := c.listResources(ctx, texts)
	return func(context.Context) error {
		for _, name := range slices.Sorted(maps.Keys(texts)) {
			if err := c.add(name, texts[name], nil); err != nil {
				return err
			}
		}
		if err != nil {
			c.addIndexLine("resources", "missing: "+string(c.hide.Redact([]byte(err.Error()))))
		}
		return nil
	}
}

func (c *Collector) listResources(ctx context.Context, texts map[string][]byte) error {
	if c.Connect == nil {
		return errors.New("it was not said how the API is reached")
	}

	ctx, cancel := context.WithTimeout(ctx, apiLimit)
	defer cancel()
	config, err := c.Connect()
	if err != nil {
		return err
	}

	config = rest.CopyConfig(config)
	config.Timeout = 15 * time.Second
	config.QPS, config.Burst = 50, 100
	found, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("ask the API: %w", err)
	}

	// Groups whose server is away are left out; an API that is down has none.
	kinds, err := discovery.ServerPreferredResources(found)
	if len(kinds) == 0 && err != nil {
		return fmt.Errorf("ask the API: %w", err)
	}

	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("ask the API: %w", err)
	}

	var failed []string
	for _, group := range kinds {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range group.APIResources {
			if !slices.Contains(r.Verbs, "list") {
				continue
			}

			list, err := client.Resource(version.WithResource(r.Name)).List(ctx, metav1.ListOptions{Limit: 2000})
			if err != nil {
				failed = append(failed, r.Name+": "+err.Error())
				continue
			}
			if len(list.Items) == 0 {
				continue
			}

			name := "resources/" + r.Name
			if version.Group != "" {
				name += "." + version.Group
			}

			texts[name+".yaml"] = c.describe(r.Kind, list.Items)
		}
	}

	if len(failed) > 0 {
		return fmt.Errorf("%s", strings.Join(failed, "; "))
	}

	return nil
}

// describe writes objects as YAML documents. Of Secrets only names, types and keys are
// written, and their values made known.
func (c *Collector) describe(kind string, items []unstructured.Unstructured) []byte {
	var all []byte
	for i := range items {
		o := items[i].Object
		unstructured.RemoveNestedField(o, "metadata", "managedFields")
		if kind == "Secret" {
			o = c.redactSecret(o)
		}

		text, err := yaml.Marshal(o)
		if err != nil {
			text = []byte("# " + err.Error() + "\n")
		}

		all = append(append(all, "---\n"...), text...)
	}
	return all
}

func (c *Collector) redactSecret(o map[string]any) map[string]any {
	data, _, _ := unstructured.NestedStringMap(o, "data")
	keys := map[string]any{}
	for key, value := range data {
		text := decodeValue(value)
		keys[key] = fmt.Sprintf("%d bytes", len(text))
		c.hide.AddNamed(key, text)
	}

	metadata, _, _ := unstructured.NestedMap(o, "metadata")
	return map[string]any{
		"apiVersion": "v1",
		"kind":       "Secret",
		"metadata": map[string]any{"name": metadata["name"], "namespace": metadata["namespace"],
			"labels": metadata["labels"], "creationTimestamp": metadata["creationTimestamp"]},
		"type": o["type"],
		"data": keys,
	}
}
