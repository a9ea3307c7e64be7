package bpa

import (
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/clusters/bpa/operator"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
)

// Provisionings are the clusters that the operator makes, of a site with its defaults filled in.
func Provisionings(s *site.Site) []v1alpha1.Provisioning {
	var all []v1alpha1.Provisioning
	for _, c := range s.ClustersBy(site.ByOperator) {
		p := v1alpha1.Provisioning{
			TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Provisioning"},
			ObjectMeta: metav1.ObjectMeta{
				Namespace: operator.ProposalNamespace, Name: string(c.Name),
				Labels: map[string]string{v1alpha1.LabelCluster: string(c.Name), label.Site: string(s.Name)},
			},
			Spec: v1alpha1.ProvisioningSpec{
				KUDPlugins:    c.AddOns,
				PodSubnet:     c.PodCIDR.String(),
				ServiceSubnet: c.ServiceCIDR.String(),
			},
		}
		if s.Discover != nil {
			p.Annotations = map[string]string{label.ExpectedHosts: strconv.Itoa(s.CountNodes())}
		}
		if c.Owner != "" {
			p.Labels[v1alpha1.LabelOwner] = string(c.Owner)
		}

		for _, m := range c.ControlPlane {
			p.Spec.Masters = append(p.Spec.Masters, map[string]*v1alpha1.Body{string(m.Name): nodeBody(m)})
		}

		for _, m := range c.Workers {
			p.Spec.Workers = append(p.Spec.Workers, map[string]*v1alpha1.Body{string(m.Name): nodeBody(m)})
		}

		all = append(all, p)
	}
	return all
}

// nodeBody is what is asked of one member. Who asks for nothing asks for any host.
func nodeBody(m site.NodeSelector) *v1alpha1.Body {
	b := &v1alpha1.Body{
		Host:       string(m.Node),
		MACAddress: string(m.MAC),
		CPU:        int32(m.CPU),
		SRIOV:      m.SRIOV,
		QAT:        m.QAT,
	}
	if m.Memory != 0 {
		b.Memory = m.Memory.String()
	}

	if *b == (v1alpha1.Body{}) {
		b.CPU = 1
	}

	return b
}

// stateOf is a phase as the appliance's status says it.
func stateOf(phase string) string {
	if phase == "" {
		return status.ClusterNew
	}
	return strings.ToLower(phase)
}
