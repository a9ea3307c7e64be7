package operator

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
)

// Reasons of the condition PluginsAvailable. None of them keeps a cluster from being installed: KUD's names were
// written for an installer that carried its own playbooks.
const (
	PluginsAvailable = "PluginsAvailable"
	PluginsMissing   = "PluginsMissing"
	PluginsNotKnown  = "PluginsNotKnown"
)

// plugins are those that a Provisioning asks for.
type plugins struct {
	install []string // by another installer, in the order asked for
	addOns  []string // that the stick has as Components
	missing []string // that it does not have, each once
	stick   []string // all that it has; nil if another installs
}

// choosePlugins separates what the stick's add-ons are from what it does not have. What another installer has, it alone
// knows.
func choosePlugins(spec v1alpha1.ProvisioningSpec, addOns []string) plugins {
	if spec.InstallerImage != "" {
		return plugins{install: spec.KUDPlugins}
	}

	p := plugins{stick: addOns}
	for _, name := range spec.KUDPlugins {
		switch {
		case slices.Contains(addOns, name):
			p.addOns = append(p.addOns, name)
		case !slices.Contains(p.missing, name):
			p.missing = append(p.missing, name)
		}
	}

	return p
}

// sentence says which plugins are missing; "" if none is.
func (p plugins) sentence() string {
	if len(p.missing) == 0 {
		return ""
	}
	return fmt.Sprintf("KUDPlugins: %s: not on this stick, so the cluster is installed without them; it has %s; "+
		"take them out, or name an installer that has them: installerImage", strings.Join(p.missing, ", "),
		strings.Join(p.stick, ", "))
}

// condition says whether all plugins that are asked for can be installed; nil if none is asked for.
func (p plugins) condition() *metav1.Condition {
	c := &metav1.Condition{Type: v1alpha1.ConditionPlugins}
	switch {
	case len(p.install)+len(p.addOns)+len(p.missing) == 0:
		return nil
	case len(p.missing) > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, PluginsMissing, p.sentence()
	case p.stick == nil:
		c.Status, c.Reason = metav1.ConditionUnknown, PluginsNotKnown
		c.Message = "which plugins there are is known to the installer of installerImage alone"
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, PluginsAvailable, "all plugins are on the stick"
	}

	return c
}
