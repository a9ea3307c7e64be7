package crd

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// schema is the part of a structural schema that kubectl explain prints.
type schema struct {
	Description          string            `yaml:"description"`
	Properties           map[string]schema `yaml:"properties"`
	Items                *schema           `yaml:"items"`
	AdditionalProperties *schema           `yaml:"additionalProperties"`
}

// undescribed lists the fields without a description.
func (s schema) undescribed(path string) (missing []string) {
	if strings.TrimSpace(s.Description) == "" {
		missing = append(missing, path)
	}
	for name, p := range s.Properties {
		if name == "metadata" {
			continue // the API server describes it, and refuses another description
		}
		missing = append(missing, p.undescribed(path+"."+name)...)
	}
	if s.Items != nil {
		missing = append(missing, s.Items.undescribed(path+"[]")...)
	}
	if s.AdditionalProperties != nil {
		missing = append(missing, s.AdditionalProperties.undescribed(path+".LABEL")...)
	}
	return missing
}

// TestEveryFieldIsExplained: kubectl explain has a sentence for each field of our kinds, kubectl get firstlight lists
// them, and each has a short name.
func TestEveryFieldIsExplained(t *testing.T) {
	launch, err := os.ReadFile("../../daemon/metal/verify/launch.yaml")
	require.NoError(t, err)
	tenant, err := os.ReadFile("../../daemon/clusters/kpa/builtin/tenants/definition.yaml")
	require.NoError(t, err)
	shortNames := map[string]string{}
	for _, text := range []string{string(BPA), string(KPA), string(launch), string(tenant)} {
		d := yaml.NewDecoder(strings.NewReader(text))
		for {
			var definition struct {
				Kind string `yaml:"kind"`
				Spec struct {
					Names struct {
						Kind       string   `yaml:"kind"`
						ShortNames []string `yaml:"shortNames"`
						Categories []string `yaml:"categories"`
					} `yaml:"names"`
					Versions []struct {
						Schema struct {
							OpenAPI schema `yaml:"openAPIV3Schema"`
						} `yaml:"schema"`
					} `yaml:"versions"`
				} `yaml:"spec"`
			}
			if err := d.Decode(&definition); errors.Is(err, io.EOF) {
				break
			} else {
				require.NoError(t, err)
			}
			names := definition.Spec.Names
			if definition.Kind != "CustomResourceDefinition" {
				continue
			}
			assert.Empty(t, definition.Spec.Versions[0].Schema.OpenAPI.undescribed(names.Kind))
			assert.Contains(t, names.Categories, "firstlight", names.Kind)
			require.Len(t, names.ShortNames, 1, names.Kind)
			shortNames[names.Kind] = names.ShortNames[0]
		}
	}
	assert.Equal(t, map[string]string{
		"Provisioning": "bpa",
		"Software":     "sw",
		"NodeUpdate":   "nu",
		"Component":    "kc",
		"Launch":       "ln",
		"Tenant":       "tn",
	}, shortNames)
}
