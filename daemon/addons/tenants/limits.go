package tenants

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"firstlight.dev/firstlight/daemon/addons/tenants/v1alpha1"
)

// Defaults of containers. A namespace whose quota counts a resource admits no pod that does not say how much of it each
// container wants (https://kubernetes.io/docs/concepts/policy/resource-quotas/).
var (
	defaultRequests = corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("100m"),
		corev1.ResourceMemory: resource.MustParse("128Mi"),
	}
	defaultLimits = corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("500m"),
		corev1.ResourceMemory: resource.MustParse("512Mi"),
	}
)

// limitItems are the limits of a spec. Without one for containers there are defaults for what the quota counts: none of
// them more than the quota.
func limitItems(s v1alpha1.TenantSpec) []corev1.LimitRangeItem {
	items := slices.Clone(s.Limits)
	isOfContainers := func(i corev1.LimitRangeItem) bool { return i.Type == corev1.LimitTypeContainer }
	if s.Quota == nil || slices.ContainsFunc(items, isOfContainers) {
		return items
	}

	item := corev1.LimitRangeItem{
		Type:           corev1.LimitTypeContainer,
		Default:        corev1.ResourceList{},
		DefaultRequest: corev1.ResourceList{},
	}
	for _, c := range []struct {
		in   corev1.ResourceName // of the quota
		of   corev1.ResourceName
		from corev1.ResourceList
		to   corev1.ResourceList
	}{
		{corev1.ResourceCPU, corev1.ResourceCPU, defaultRequests, item.DefaultRequest},
		{corev1.ResourceMemory, corev1.ResourceMemory, defaultRequests, item.DefaultRequest},
		{corev1.ResourceRequestsCPU, corev1.ResourceCPU, defaultRequests, item.DefaultRequest},
		{corev1.ResourceRequestsMemory, corev1.ResourceMemory, defaultRequests, item.DefaultRequest},
		{corev1.ResourceLimitsCPU, corev1.ResourceCPU, defaultLimits, item.Default},
		{corev1.ResourceLimitsMemory, corev1.ResourceMemory, defaultLimits, item.Default},
	} {
		hard, counted := s.Quota.Hard[c.in]
		if !counted {
			continue
		}
		amount, known := c.to[c.of]
		if !known {
			amount = c.from[c.of].DeepCopy()
		}
		if hard.Cmp(amount) < 0 {
			amount = hard.DeepCopy()
		}
		c.to[c.of] = amount
	}

	// The API takes no request that is more than the limit.
	for name, limit := range item.Default {
		if request, ok := item.DefaultRequest[name]; ok && request.Cmp(limit) > 0 {
			item.DefaultRequest[name] = limit.DeepCopy()
		}
	}
	if len(item.Default)+len(item.DefaultRequest) == 0 {
		return items
	}
	return append(items, item)
}
