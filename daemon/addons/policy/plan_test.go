package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// The cluster of these tests: two nodes, two namespaces.
const clusterPods = `
- metadata: {namespace: shop, name: web, labels: {app: web, tier: front}}
  spec: {nodeName: n1, containers: [{ports: [{name: http, containerPort: 8080}, {name: dns, containerPort: 5353, protocol: UDP}]}]}
  status: {phase: Running, podIP: 10.244.1.2, podIPs: [{ip: 10.244.1.2}, {ip: "fd00:1::2"}]}
- metadata: {namespace: shop, name: db, labels: {app: db}}
  spec:
    nodeName: n1
    containers: [{ports: [{name: http, containerPort: 9090}]}]
    initContainers: [{restartPolicy: Always, ports: [{name: metrics, containerPort: 9100}]}, {ports: [{name: once, containerPort: 9200}]}]
  status: {phase: Running, podIP: 10.244.1.3, podIPs: [{ip: 10.244.1.3}, {ip: "fd00:1::3"}]}
- metadata: {namespace: bank, name: web, labels: {app: web}}
  spec: {nodeName: n2, containers: [{ports: [{name: http, containerPort: 7070}]}]}
  status: {phase: Running, podIP: 10.244.2.2, podIPs: [{ip: 10.244.2.2}, {ip: "fd00:2::2"}]}
- metadata: {namespace: bank, name: till, labels: {app: till}}
  spec: {nodeName: n2}
  status: {phase: Running, podIP: 10.244.2.3, podIPs: [{ip: 10.244.2.3}, {ip: "fd00:2::3"}]}
- metadata: {namespace: shop, name: job, labels: {app: job}}
  spec: {nodeName: n2}
  status: {phase: Succeeded, podIP: 10.244.2.4}
- metadata: {namespace: shop, name: agent, labels: {app: agent}}
  spec: {nodeName: n2, hostNetwork: true}
  status: {phase: Running, podIP: 172.22.0.12}
`

const clusterNamespaces = `
- metadata: {name: shop, labels: {kubernetes.io/metadata.name: shop, team: a}}
- metadata: {name: bank, labels: {kubernetes.io/metadata.name: bank, team: b}}
`

func read[T any](t *testing.T, text string) (all []T) {
	t.Helper()
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), &all))
	return all
}

// stateOf is the cluster with policies, as a node sees it.
func stateOf(t *testing.T, node, policies string) State {
	t.Helper()
	return State{
		Node:       node,
		Ranges:     []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")},
		Policies:   read[*networkingv1.NetworkPolicy](t, policies),
		Namespaces: read[*corev1.Namespace](t, clusterNamespaces),
		Pods:       read[*corev1.Pod](t, clusterPods),
	}
}

// passes follows one packet by the rules of both nodes.
func passes(plans []Plan, from, to netip.Addr, protocol string, port uint16) bool {
	for _, p := range plans {
		if !p.Egress.lets(from, to, to, protocol, port) || !p.Ingress.lets(to, from, to, protocol, port) {
			return false
		}
	}
	return true
}

func (d Direction) lets(own, other, to netip.Addr, protocol string, port uint16) bool {
	if d.Starting != nil && d.Starting.Contains(own) {
		return false
	}
	i := slices.IndexFunc(d.Isolated, func(i Isolation) bool { return slices.Contains(i.Addrs, own) })
	if i < 0 || own == other {
		return true
	}
	return slices.ContainsFunc(d.Isolated[i].Allow, func(a Allow) bool {
		if a.Endpoints != nil {
			return slices.Contains(a.Endpoints.All, Endpoint{Addr: to, Protocol: corev1.Protocol(protocol), Port: port})
		}
		return (a.Peers == nil || a.Peers.Addrs.Contains(other)) &&
			(a.Protocol == "" || string(a.Protocol) == protocol) &&
			(a.First == 0 || a.First <= port && port <= a.Last)
	})
}

var places = map[string]string{
	"shop/web": "10.244.1.2", "shop/db": "10.244.1.3", "bank/web": "10.244.2.2", "bank/till": "10.244.2.3",
	"shop/web6": "fd00:1::2", "shop/db6": "fd00:1::3", "bank/web6": "fd00:2::2", "bank/till6": "fd00:2::3",
	"job": "10.244.2.4", "node": "172.22.0.12", "world": "192.0.2.10", "world6": "2001:db8::10", "near": "192.0.2.130",
}

// policyOf writes one policy of namespace shop.
func policyOf(spec string) string {
	return "- metadata: {namespace: shop, name: p}\n  spec: " + spec + "\n"
}

// TestPoliciesMeanWhatKubernetesSays goes through what the API's own comments say of each field. A question is
// FROM>TO, with a port if it is not TCP 80.
func TestPoliciesMeanWhatKubernetesSays(t *testing.T) {
	const web = "podSelector: {matchLabels: {app: web}}"
	for _, c := range []struct{ name, policies, pass, drop string }{
		{"no policy", "[]", "bank/web>shop/web shop/web>world node>shop/db", ""},
		{"everybody is isolated", policyOf("{podSelector: {}}"),
			"shop/web>world shop/web>bank/web shop/web>shop/web", "bank/web>shop/web shop/db>shop/web shop/db6>shop/web6 world>shop/db node>shop/web"},
		{"only those selected", policyOf("{" + web + "}"), "bank/web>shop/db shop/web>shop/db", "shop/db>shop/web"},
		{"by expression", policyOf("{podSelector: {matchExpressions: [{key: tier, operator: Exists}]}}"), "bank/web>shop/db", "shop/db>shop/web"},
		{"an empty list", policyOf("{" + web + ", ingress: []}"), "", "shop/db>shop/web"},
		{"an empty rule", policyOf("{" + web + ", ingress: [{}]}"), "shop/db>shop/web world>shop/web:UDP/9 world6>shop/web6 node>shop/web", ""},
		{"empty lists in a rule", policyOf("{" + web + ", ingress: [{from: [], ports: []}]}"), "shop/db>shop/web world>shop/web:SCTP/9", ""},

		// policyTypes
		{"rules of egress isolate", policyOf("{" + web + ", egress: [{}]}"), "shop/web>world", "shop/db>shop/web"},
		{"egress alone", policyOf("{" + web + ", policyTypes: [Egress]}"), "shop/db>shop/web bank/web>shop/web", "shop/web>shop/db shop/web>bank/web shop/web>world"},
		{"ingress alone has no egress", policyOf("{" + web + ", policyTypes: [Ingress], egress: [{}]}"), "shop/web>world", "shop/db>shop/web"},
		{"both", policyOf("{podSelector: {}, policyTypes: [Ingress, Egress]}"), "shop/web>shop/web", "shop/web>shop/db shop/db>world world>shop/db"},

		// peers
		{"pods of the namespace", policyOf("{" + web + ", ingress: [{from: [{podSelector: {}}]}]}"), "shop/db>shop/web shop/db6>shop/web6", "bank/web>shop/web world>shop/web node>shop/web"},
		{"pods by label", policyOf("{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}"), "shop/web>shop/db", "bank/web>shop/db"},
		{"pods of namespaces", policyOf("{" + web + ", ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}}}]}]}"), "bank/web>shop/web bank/till>shop/web", "shop/db>shop/web world>shop/web"},
		{"all pods", policyOf("{" + web + ", ingress: [{from: [{namespaceSelector: {}}]}]}"), "bank/web>shop/web shop/db>shop/web", "world>shop/web node>shop/web job>shop/web"},
		{"pods by label in namespaces", policyOf("{" + web + ", ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}}, podSelector: {matchLabels: {app: till}}}]}]}"), "bank/till>shop/web", "bank/web>shop/web shop/db>shop/web"},
		{"either of two", policyOf("{" + web + ", ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}}}, {podSelector: {matchLabels: {app: db}}}]}]}"), "bank/web>shop/web shop/db>shop/web", "world>shop/web"},
		{"nobody has the label", policyOf("{" + web + ", ingress: [{from: [{podSelector: {matchLabels: {app: none}}}]}]}"), "", "shop/db>shop/web world>shop/web"},
		{"a pod of the host's network is its node", policyOf("{" + web + ", ingress: [{from: [{podSelector: {matchLabels: {app: agent}}}]}]}"), "", "node>shop/web"},
		{"one that has ended", policyOf("{" + web + ", ingress: [{from: [{podSelector: {matchLabels: {app: job}}}]}]}"), "", "job>shop/web"},

		// ipBlock
		{"a range", policyOf("{" + web + ", ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24}}]}]}"), "world>shop/web near>shop/web", "world6>shop/web6 shop/db>shop/web node>shop/web"},
		{"with exceptions", policyOf("{" + web + ", ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.0/28, 192.0.2.128/25]}}]}]}"), "", "world>shop/web near>shop/web"},
		{"an exception of one is allowed by another", policyOf("{" + web + ", ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.128/25]}}, {ipBlock: {cidr: 192.0.2.130/32}}]}]}"), "near>shop/web world>shop/web", ""},
		{"everything", policyOf("{" + web + ", egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0}}]}]}"), "shop/web>world shop/web>bank/web shop/web>node", "shop/web6>world6"},
		{"everything of IPv6", policyOf("{" + web + ", egress: [{to: [{ipBlock: {cidr: '::/0', except: ['fd00::/8']}}]}]}"), "shop/web6>world6", "shop/web6>bank/web6 shop/web>world"},
		{"with bits of a host", policyOf("{" + web + ", ingress: [{from: [{ipBlock: {cidr: 192.0.2.9/24}}]}]}"), "world>shop/web", "node>shop/web"},

		// ports
		{"a port is of TCP", policyOf("{" + web + ", ingress: [{ports: [{port: 80}]}]}"), "world>shop/web", "world>shop/web:TCP/81 world>shop/web:UDP/80"},
		{"another protocol", policyOf("{" + web + ", ingress: [{ports: [{port: 80, protocol: UDP}, {port: 80, protocol: SCTP}]}]}"), "world>shop/web:UDP/80 world>shop/web:SCTP/80", "world>shop/web"},
		{"all of a protocol", policyOf("{" + web + ", ingress: [{ports: [{protocol: UDP}]}]}"), "world>shop/web:UDP/1 world>shop/web:UDP/65535", "world>shop/web"},
		{"no protocol and no port", policyOf("{" + web + ", ingress: [{ports: [{}]}]}"), "world>shop/web:TCP/1", "world>shop/web:UDP/1"},
		{"a range of ports", policyOf("{" + web + ", ingress: [{ports: [{port: 80, endPort: 90}]}]}"), "world>shop/web:TCP/80 world>shop/web:TCP/90", "world>shop/web:TCP/79 world>shop/web:TCP/91"},
		{"from some, to a port", policyOf("{" + web + ", ingress: [{from: [{podSelector: {}}], ports: [{port: 80}]}]}"), "shop/db>shop/web", "bank/web>shop/web shop/db>shop/web:TCP/81"},
		{"the pod's own name of a port", policyOf("{podSelector: {}, ingress: [{ports: [{port: http}]}]}"), "world>shop/web:TCP/8080 world>shop/db:TCP/9090 world6>shop/web6:TCP/8080", "world>shop/web:TCP/9090 world>shop/db:TCP/8080"},
		{"of another protocol", policyOf("{podSelector: {}, ingress: [{ports: [{port: dns}]}]}"), "", "world>shop/web:UDP/5353 world>shop/web:TCP/5353"},
		{"of that protocol", policyOf("{podSelector: {}, ingress: [{ports: [{port: dns, protocol: UDP}]}]}"), "world>shop/web:UDP/5353", "world>shop/web:TCP/5353"},
		{"of a sidecar", policyOf("{podSelector: {}, ingress: [{ports: [{port: metrics}, {port: once}]}]}"), "world>shop/db:TCP/9100", "world>shop/db:TCP/9200"},
		{"a destination's name of a port", policyOf("{" + web + ", policyTypes: [Egress], egress: [{ports: [{port: http}]}]}"), "shop/web>bank/web:TCP/7070 shop/web>shop/db:TCP/9090 shop/web6>bank/web6:TCP/7070", "shop/web>bank/web:TCP/9090 shop/web>world:TCP/7070"},
		{"of some destinations", policyOf("{" + web + ", policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {team: b}}}], ports: [{port: http}, {port: 443}]}]}"), "shop/web>bank/web:TCP/7070 shop/web>bank/till:TCP/443", "shop/web>shop/db:TCP/9090 shop/web>world:TCP/443"},

		// several
		{"rules add up", policyOf("{" + web + ", ingress: [{from: [{podSelector: {}}], ports: [{port: 80}]}, {from: [{ipBlock: {cidr: 192.0.2.0/24}}], ports: [{port: 81}]}]}"), "shop/db>shop/web world>shop/web:TCP/81", "world>shop/web shop/db>shop/web:TCP/81"},
		{"policies add up", policyOf("{podSelector: {}}") + policyOf("{"+web+", ingress: [{from: [{podSelector: {}}]}]}"), "shop/db>shop/web", "shop/web>shop/db bank/web>shop/web"},
		{"one isolates each direction", policyOf("{"+web+", policyTypes: [Egress], egress: [{ports: [{port: 53, protocol: UDP}]}]}") + policyOf("{"+web+", ingress: [{from: [{podSelector: {}}]}]}"), "shop/web>world:UDP/53 shop/db>shop/web", "shop/web>world world>shop/web"},
		{"both ends must agree", policyOf("{"+web+", policyTypes: [Egress], egress: [{to: [{namespaceSelector: {}}]}]}") + "- {metadata: {namespace: bank, name: q}, spec: {podSelector: {matchLabels: {app: till}}}}\n", "shop/web>bank/web", "shop/web>bank/till"},
		{"another namespace", "- {metadata: {namespace: bank, name: p}, spec: {podSelector: {}}}\n", "bank/web>shop/web world>shop/web", "shop/web>bank/web"},
		{"a pod of the host's network is not isolated", policyOf("{podSelector: {matchLabels: {app: agent}}, policyTypes: [Ingress, Egress]}"), "world>node node>world", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			plans := []Plan{NewPlan(stateOf(t, "n1", c.policies)), NewPlan(stateOf(t, "n2", c.policies))}
			assert.Empty(t, plans[0].Problems)
			for want, questions := range map[bool]string{true: c.pass, false: c.drop} {
				for _, q := range strings.Fields(questions) {
					path, what, found := strings.Cut(q, ":")
					protocol, port := "TCP", uint16(80)
					if found {
						_, err := fmt.Sscanf(strings.Replace(what, "/", " ", 1), "%s %d", &protocol, &port)
						require.NoError(t, err)
					}
					from, to, _ := strings.Cut(path, ">")
					require.NotEmpty(t, places[from], from)
					require.NotEmpty(t, places[to], to)
					assert.Equal(t, want, passes(plans, netip.MustParseAddr(places[from]), netip.MustParseAddr(places[to]), protocol, port), q)
				}
			}
		})
	}
}

// TestWhatCannotBeEnforcedAllowsNothing: the API server lets none of it through, and the rest of the policy holds.
func TestWhatCannotBeEnforcedAllowsNothing(t *testing.T) {
	const ok = "{from: [{podSelector: {}}]}"
	for _, c := range []struct{ spec, says string }{
		{"{podSelector: {}, ingress: [" + ok + ", {from: [{ipBlock: {cidr: 10.0.0.0}}]}]}", `spec.ingress[1].from[0].ipBlock.cidr: "10.0.0.0" is no range of addresses; write ADDRESS/BITS`},
		{"{podSelector: {}, ingress: [" + ok + ", {from: [{ipBlock: {cidr: 0.0.0.0/0, except: [x]}}]}]}", `spec.ingress[1].from[0].ipBlock.except[0]: "x" is no range of addresses; write ADDRESS/BITS`},
		{"{podSelector: {}, ingress: [" + ok + ", {from: [{}]}]}", "spec.ingress[1].from[0].podSelector: it is missing, and so are namespaceSelector and ipBlock"},
		{"{podSelector: {}, ingress: [" + ok + ", {from: [{namespaceSelector: {matchExpressions: [{key: a, operator: Near}]}}]}]}", `spec.ingress[1].from[0].namespaceSelector: "Near" is not a valid label selector operator`},
		{"{podSelector: {}, ingress: [" + ok + ", {ports: [{port: 90, endPort: 80}]}]}", "spec.ingress[1].ports[0]: 90 to 80 are no ports; write 1 to 65535, the lower one first"},
		{"{podSelector: {}, ingress: [" + ok + ", {ports: [{port: 70000}]}]}", "spec.ingress[1].ports[0]: 70000 to 70000 are no ports; write 1 to 65535, the lower one first"},
		{"{podSelector: {}, ingress: [" + ok + ", {ports: [{protocol: ICMP}]}]}", `spec.ingress[1].ports[0]: protocol "ICMP" is none of TCP, UDP and SCTP`},
	} {
		plan := NewPlan(stateOf(t, "n1", policyOf(c.spec)))
		if assert.Len(t, plan.Problems, 1, c.spec) {
			assert.Equal(t, c.says, plan.Problems[0].Sentence)
			assert.Equal(t, "p", plan.Problems[0].Policy.Name)
		}
		assert.True(t, passes([]Plan{plan}, netip.MustParseAddr("10.244.1.3"), netip.MustParseAddr("10.244.1.2"), "TCP", 80), c.spec)
		assert.False(t, passes([]Plan{plan}, netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("10.244.1.2"), "TCP", 80), c.spec)
	}
}

// TestPodsThatComeAndGo: one that starts, one whose address is used again.
func TestPodsThatComeAndGo(t *testing.T) {
	s := stateOf(t, "n1", policyOf("{podSelector: {matchLabels: {app: web}}}"))
	assert.Nil(t, NewPlan(s).Ingress.Starting)

	// An isolated pod has no address yet: what it may get is shut. Those that others have are not.
	starts := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-2", Labels: map[string]string{"app": "web"}}}
	starts.Spec.NodeName = "n1"
	s.Pods = append(s.Pods, starts)
	plan := NewPlan(s)
	require.NotNil(t, plan.Ingress.Starting)
	assert.Nil(t, plan.Egress.Starting)
	for text, shut := range map[string]bool{"10.244.1.2": false, "10.244.1.3": false, "10.244.1.4": true, "10.244.2.4": false} {
		assert.Equal(t, shut, plan.Ingress.Starting.Contains(netip.MustParseAddr(text)), text)
	}

	starts.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	assert.Nil(t, NewPlan(s).Ingress.Starting, "one that is deleted before it started")
	starts.DeletionTimestamp = nil
	starts.Status.PodIP = "10.244.1.4"
	plan = NewPlan(s)
	assert.Nil(t, plan.Ingress.Starting)
	assert.Len(t, plan.Ingress.Isolated, 2)

	// It goes, and another one that nobody isolates gets its address before the API server knows.
	starts.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	assert.Len(t, NewPlan(s).Ingress.Isolated, 2, "a pod that ends is isolated to its end")
	next := starts.DeepCopy()
	next.Name, next.Labels, next.DeletionTimestamp = "other", nil, nil
	s.Pods = append(s.Pods, next)
	plan = NewPlan(s)
	assert.Len(t, plan.Ingress.Isolated, 1)
	assert.Nil(t, plan.Ingress.Starting)

	// Nor does an address in two objects by mistake put one element in twice.
	younger := next.DeepCopy()
	younger.Name, younger.Labels, younger.CreationTimestamp = "younger", map[string]string{"app": "web"}, metav1.Now()
	s.Pods = append(s.Pods, younger)
	plan = NewPlan(s)
	require.Len(t, plan.Ingress.Isolated, 2)
	assert.Equal(t, "shop/younger", plan.Ingress.Isolated[1].Pod)
}
