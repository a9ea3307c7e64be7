package engine

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	helm "helm.sh/helm/v4/pkg/release/v1"

	"firstlight.dev/firstlight/assets/bundle"
	"firstlight.dev/firstlight/daemon/clusters/kpa/plan"
	"firstlight.dev/firstlight/daemon/clusters/kpa/v1alpha1"
)

func newHooked(kind, name, annotations string) string {
	version := "v1"
	if kind == "Job" {
		version = "batch/v1"
	}
	return "apiVersion: " + version + "\nkind: " + kind + "\nmetadata: {name: " + name + ", annotations: {" + annotations + "}}\n---\n"
}

func TestHooksRunInTheirOrder(t *testing.T) {
	c, err := NewContent([]byte(
		newHooked("Job", "last", `helm.sh/hook: "pre-install,post-upgrade", helm.sh/hook-weight: "5"`) +
			newHooked("Job", "same", `helm.sh/hook: pre-install`) +
			newHooked("ConfigMap", "same", `helm.sh/hook: PRE-INSTALL, helm.sh/hook-delete-policy: "hook-succeeded, hook-failed"`) +
			newHooked("Job", "first", `helm.sh/hook: pre-install, helm.sh/hook-weight: "-1"`) +
			newHooked("Job", "odd", `helm.sh/hook: pre-install, helm.sh/hook-weight: heavy`) +
			newHooked("Pod", "trial", `helm.sh/hook: test`) +
			newHooked("ConfigMap", "plain", `other: x`),
	))
	require.NoError(t, err)
	require.Len(t, c.Objects, 1)
	assert.Equal(t, "plain", c.Objects[0].GetName())

	list := func(e helm.HookEvent) string {
		var names []string
		for _, h := range listAt(c.hooks, e) {
			names = append(names, describe(h.object))
		}
		return strings.Join(names, ", ")
	}
	assert.Equal(t, "Job first, Job odd, ConfigMap same, Job same, Job last", list(helm.HookPreInstall))
	assert.Equal(t, "Job last", list(helm.HookPostUpgrade))
	assert.Empty(t, list(helm.HookPreDelete))
	for _, h := range c.hooks {
		isMap := h.object.GetKind() == "ConfigMap"
		assert.Equal(t, isMap, h.has(helm.HookSucceeded), describe(h.object))
		assert.Equal(t, isMap, h.has(helm.HookFailed), describe(h.object))
		assert.Equal(t, !isMap, h.has(helm.HookBeforeHookCreation), describe(h.object))
	}

	_, err = NewContent([]byte(newHooked("Job", "odd", `helm.sh/hook: pre-instal`)))
	assert.Equal(t, plan.ReasonSourceRefused, VerdictOf(err).Reason)
	assert.ErrorContains(t, err, `Job odd: there is no hook "pre-instal"`)
}

func TestWhatKeepsImagesFromNodes(t *testing.T) {
	images := []bundle.Image{{Asked: "registry.example/web:1"}}
	for want, c := range map[string]struct {
		b              bundle.Bundle
		cluster, owner string
	}{
		"":                                   {bundle.Bundle{Images: images}, "edge", "alpha"},
		" ":                                  {bundle.Bundle{}, "edge", "beta"},
		"cannot be pulled: no room":          {bundle.Bundle{Images: images, NotServed: "no room"}, "edge", "alpha"},
		"no registry.example/base:1; upload": {bundle.Bundle{Images: images, Missing: []string{"registry.example/base:1"}}, "edge", "alpha"},
		"images of its stick alone":          {bundle.Bundle{Images: images}, v1alpha1.ApplianceTarget, "alpha"},
		"those of owner alpha, and the nodes of edge get those of beta": {bundle.Bundle{Images: images}, "edge", "beta"},
	} {
		v := Content{Bundle: &Bundle{c.b, "alpha"}}.CheckImages(c.cluster, c.owner)
		if strings.TrimSpace(want) == "" {
			assert.Nil(t, v)
			continue
		}
		if assert.NotNil(t, v, want) {
			assert.Equal(t, plan.ReasonImageMissing, v.Reason)
			assert.Contains(t, v.Message, want)
		}
	}
}
