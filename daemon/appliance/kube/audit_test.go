package kube

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Users of the API, as the appliance has them.
const (
	bpaOperator  = "system:serviceaccount:bpa:bpa-operator"
	kpaOperator  = "system:serviceaccount:bpa:kpa-operator"
	hostOperator = "system:serviceaccount:metal3:baremetal-operator-controller-manager"
	capiManager  = "system:serviceaccount:capi-system:capi-manager"
	uploads      = "system:serviceaccount:artifacts:artifacts"
	daemonUser   = DaemonUser
	rootUser     = AdminUser
	collector    = "system:serviceaccount:kube-system:generic-garbage-collector"
	kubelet      = "system:node:x"
	tenant       = "system:serviceaccount:alpha:ci"
)

// request is one of the API: who asks, and what in the words of kubectl: VERB RESOURCE.GROUP/SUBRESOURCE, or VERB PATH.
type request struct{ user, what string }

func (r request) attributes() authorizer.Attributes {
	a := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: r.user, Groups: groupsOf(r.user)}, Namespace: "alpha"}
	var what string
	a.Verb, what, _ = strings.Cut(r.what, " ")
	if strings.HasPrefix(what, "/") {
		a.Path = what
		return a
	}

	a.ResourceRequest, a.Name = true, "x"
	what, a.Subresource, _ = strings.Cut(what, "/")
	a.Resource, a.APIGroup, _ = strings.Cut(what, ".")
	return a
}

// groupsOf are the groups that the API server finds a user in.
func groupsOf(name string) []string {
	groups := []string{"system:authenticated"}
	switch {
	case strings.HasPrefix(name, "system:node:"):
		groups = append(groups, "system:nodes")
	case strings.HasPrefix(name, "system:serviceaccount:"):
		namespace, _, _ := strings.Cut(strings.TrimPrefix(name, "system:serviceaccount:"), ":")
		groups = append(groups, "system:serviceaccounts", "system:serviceaccounts:"+namespace)
	}
	return groups
}

// readAuditPolicy is the policy as the API server reads it; what it does not know is an error there, too.
func readAuditPolicy(t *testing.T) *audit.Policy {
	files, _, err := APIServerPolicies("/policies", "/audit", nil)
	require.NoError(t, err)
	p, err := policy.LoadPolicyFromBytes(files["audit.yaml"])
	require.NoError(t, err)
	return p
}

// TestNoBodyIsWrittenDown: levels above Metadata would have what is in Secrets.
func TestNoBodyIsWrittenDown(t *testing.T) {
	for _, r := range readAuditPolicy(t).Rules {
		assert.Contains(t, []audit.Level{audit.LevelNone, audit.LevelMetadata}, r.Level)
	}
}

func TestWhatIsWrittenDown(t *testing.T) {
	level := policy.NewPolicyRuleEvaluator(readAuditPolicy(t)).EvaluatePolicyRule
	for name, r := range map[string]request{
		"a tenant makes a Provisioning":                {tenant, "create provisionings.bpa.akraino.org"},
		"a tenant removes many":                        {tenant, "deletecollection configmaps"},
		"a tenant reads a Secret":                      {tenant, "get secrets"},
		"a tenant watches Secrets":                     {tenant, "watch secrets"},
		"a tenant runs a program in a pod":             {tenant, "get pods/exec"},
		"a tenant asks for a token":                    {tenant, "create serviceaccounts/token"},
		"a tenant writes how a host stands":            {tenant, "patch baremetalhosts.metal3.io/status"},
		"another service account of metal3 reads one":  {"system:serviceaccount:metal3:default", "get secrets"},
		"root gives rights":                            {rootUser, "create clusterrolebindings.rbac.authorization.k8s.io"},
		"root changes a Secret":                        {rootUser, "patch secrets"},
		"root reads Secrets":                           {rootUser, "list secrets"},
		"the daemon changes a Secret":                  {daemonUser, "patch secrets"},
		"the operator of clusters starts an installer": {bpaOperator, "create jobs.batch"},
		"the operator of hosts changes a Secret":       {hostOperator, "update secrets"},
		"Cluster API makes a Machine":                  {capiManager, "create machines.cluster.x-k8s.io"},
	} {
		assert.Equal(t, audit.LevelMetadata, level(r.attributes()).Level, name)
	}

	for name, r := range map[string]request{
		"a tenant reads what is no secret":        {tenant, "list configmaps"},
		"a probe":                                 {"system:anonymous", "get /readyz"},
		"the kubelet says that it lives":          {kubelet, "update leases.coordination.k8s.io"},
		"the kubelet says how a pod is":           {kubelet, "patch pods/status"},
		"the kubelet reads a pod's Secret":        {kubelet, "get secrets"},
		"an Event":                                {hostOperator, "create events"},
		"the upload API asks who may":             {uploads, "create subjectaccessreviews.authorization.k8s.io"},
		"the upload API reads its keys":           {uploads, "get secrets"},
		"Kubernetes removes what has no owner":    {collector, "delete pods"},
		"the operator of hosts says how they are": {hostOperator, "update baremetalhosts.metal3.io/status"},
		"the operator of Components":              {kpaOperator, "update components.kpa.akraino.org/status"},
		"Cluster API says how they are":           {capiManager, "patch kubeadmcontrolplanes.controlplane.cluster.x-k8s.io/status"},
		"the daemon says how the launch is":       {daemonUser, "update launches.firstlight.dev/status"},
		"Cluster API reads kubeconfigs":           {capiManager, "list secrets"},
	} {
		assert.Equal(t, audit.LevelNone, level(r.attributes()).Level, name)
	}
}

// TestAnIdleApplianceFillsNoLog: an idle appliance with Cluster API and two hosts asks for 260 things in a minute or so
// (docs/decisions/0009). None of them is written down.
func TestAnIdleApplianceFillsNoLog(t *testing.T) {
	level := policy.NewPolicyRuleEvaluator(readAuditPolicy(t)).EvaluatePolicyRule
	const manager = "system:kube-controller-manager"
	asked, written := 0, 0
	for _, row := range []struct {
		perMinute int
		request
	}{
		// The daemon's stages: what it applied, as it is.
		{15, request{daemonUser, "get customresourcedefinitions.apiextensions.k8s.io"}},
		{10, request{daemonUser, "get clusterroles.rbac.authorization.k8s.io"}},
		{10, request{daemonUser, "get deployments.apps"}},
		{10, request{daemonUser, "get secrets"}},
		// Its clusters, and its hosts.
		{18, request{daemonUser, "list clusters.cluster.x-k8s.io"}},
		{15, request{daemonUser, "list components.kpa.akraino.org"}},
		{20, request{daemonUser, "list baremetalhosts.metal3.io"}},
		{10, request{daemonUser, "list secrets"}},
		{10, request{daemonUser, "get /readyz"}},
		// The API server itself, and Kubernetes' other parts.
		{80, request{"system:apiserver", "list configmaps"}},
		{30, request{manager, "watch pods"}},
		{4, request{manager, "get /apis"}},
		{6, request{kubelet, "patch nodes/status"}},
		// The operators.
		{6, request{bpaOperator, "list baremetalhosts.metal3.io"}},
		{4, request{bpaOperator, "get configmaps"}},
		{4, request{hostOperator, "watch secrets"}},
		{2, request{hostOperator, "patch baremetalhosts.metal3.io/status"}},
		{6, request{capiManager, "watch machines.cluster.x-k8s.io"}},
	} {
		asked += row.perMinute
		if level(row.attributes()).Level != audit.LevelNone {
			written += row.perMinute
			t.Logf("written down, %d times a minute: %+v", row.perMinute, row.request)
		}
	}
	assert.Zero(t, written, "of %d requests a minute", asked)
}
