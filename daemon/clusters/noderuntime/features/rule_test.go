package features

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// node is what rules of these tests look at.
func node() Raw {
	return Machine{
		CPU: CPU{Vendor: "GenuineIntel", Family: "6", Model: "143", Flags: []string{"AVX512F", "AESNI"}, Threads: true},
		Root: machine(map[string]string{
			"proc/sys/kernel/osrelease":                       "6.12.117+deb13-amd64\n",
			"boot/config-6.12.117+deb13-amd64":                "CONFIG_X86=y\nCONFIG_DUMMY=m\n# CONFIG_PREEMPT is not set\nCONFIG_LOCALVERSION=\"-x\"\n",
			"proc/modules":                                    "dummy 12288 0 - Live 0x0000000000000000\nigb 20 0\n",
			"etc/os-release":                                  "ID=debian\nVERSION_ID=\"13.2\"\n",
			"sys/bus/pci/devices/0000:01:00.0/class":          "0x020000\n",
			"sys/bus/pci/devices/0000:01:00.0/vendor":         "0x8086\n",
			"sys/bus/pci/devices/0000:01:00.0/device":         "0x10c9\n",
			"sys/bus/pci/devices/0000:01:00.0/sriov_totalvfs": "8\n",
			"sys/bus/pci/devices/0000:02:00.0/class":          "0x0b4000\n",
			"sys/bus/pci/devices/0000:02:00.0/vendor":         "0x1234\n",
			"sys/block/vda/queue/rotational":                  "0\n",
			"sys/class/net/eth0/operstate":                    "up\n",
		}),
	}.Raw("worker-1", map[string]string{"rack": "7"})
}

func apply(t *testing.T, rules string) (Given, []string) {
	t.Helper()
	var object RuleObject
	require.NoError(t, yaml.UnmarshalStrict([]byte("metadata: {name: rules}\nspec: {rules: ["+rules+"]}"), &object))
	return Apply([]RuleObject{object}, node())
}

func TestARuleMatches(t *testing.T) {
	for conditions, want := range map[string]bool{
		"matchFeatures: [{feature: kernel.config, matchExpressions: {X86: {op: In, value: ['y']}}}]":                                            true,
		"matchFeatures: [{feature: KERNEL.config, matchExpressions: {X86: {op: NotIn, value: ['y', m]}}}]":                                      false,
		"matchFeatures: [{feature: kernel.config, matchExpressions: {PREEMPT: {op: Exists}}}]":                                                  false,
		"matchFeatures: [{feature: kernel.config, matchExpressions: {PREEMPT: {op: DoesNotExist}, LOCALVERSION: {op: In, value: ['-x']}}}]":     true,
		"matchFeatures: [{feature: kernel.config, matchExpressions: {PREEMPT: {op: NotIn, value: ['y']}}}]":                                     false, // it is not there
		"matchFeatures: [{feature: kernel.loadedmodule, matchExpressions: {dummy: {op: Exists}}}]":                                              true,
		"matchFeatures: [{feature: kernel.loadedmodule, matchName: {op: InRegexp, value: ['^ig']}}]":                                            true,
		"matchFeatures: [{feature: kernel.loadedmodule, matchName: {op: In, value: [vfio]}}]":                                                   false,
		"matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AVX512F: {op: Exists}, AMXTILE: {op: DoesNotExist}}}]":                         true,
		"matchFeatures: [{feature: kernel.version, matchExpressions: {major: {op: Gt, value: ['5']}, minor: {op: GtLt, value: ['10', '13']}}}]": true,
		"matchFeatures: [{feature: kernel.version, matchExpressions: {full: {op: Ge, type: version, value: ['6.12.117']}}}]":                    true,
		"matchFeatures: [{feature: kernel.version, matchExpressions: {full: {op: GeLe, type: version, value: ['5.4', '6.12']}}}]":               false,
		"matchFeatures: [{feature: cpu.topology, matchExpressions: {hardware_multithreading: {op: IsTrue}}}]":                                   true,
		"matchFeatures: [{feature: kernel.selinux, matchExpressions: {enabled: {op: IsFalse}}}]":                                                true,
		"matchFeatures: [{feature: pci.device, matchExpressions: {vendor: {op: In, value: ['8086']}, class: {op: In, value: ['0200']}}}]":       true,
		"matchFeatures: [{feature: pci.device, matchExpressions: {vendor: {op: In, value: ['8086']}, class: {op: In, value: ['0b40']}}}]":       false, // of two devices
		"matchFeatures: [{feature: pci.device, matchExpressions: {sriov_totalvfs: {op: Gt, value: ['0']}}}]":                                    true,
		"matchFeatures: [{feature: usb.device, matchExpressions: {vendor: {op: Exists}}}]":                                                      false,
		"matchFeatures: [{feature: no.such}]": false,
		"matchFeatures: [{feature: system.name, matchExpressions: {nodename: {op: InRegexp, value: ['^worker']}}}]":                       true,
		"matchFeatures: [{feature: system.osrelease, matchExpressions: {VERSION_ID.major: {op: In, value: ['13']}}}]":                     true,
		"matchFeatures: [{feature: local.label, matchExpressions: {rack: {op: In, value: ['7']}}}]":                                       true,
		"matchFeatures: [{feature: storage.block, matchExpressions: {name: {op: In, value: [vda]}, rotational: {op: In, value: ['0']}}}]": true,
		"matchFeatures: [{feature: network.device, matchExpressions: {operstate: {op: In, value: [up]}}}]":                                true,
		"matchAny: [{matchFeatures: [{feature: no.such}]}, {matchFeatures: [{feature: cpu.model}]}]":                                      true,
		"matchAny: [{matchFeatures: [{feature: no.such}]}]":                                                                               false,
		"matchAny: [{matchFeatures: [{feature: cpu.model}]}], matchFeatures: [{feature: no.such}]":                                        false,
		"vars: {a: b}": true, // nothing is asked
	} {
		given, wrong := apply(t, "{name: r, labels: {x.example/y: '1'}, "+conditions+"}")
		assert.Empty(t, wrong, conditions)
		assert.Equal(t, want, given.Labels["x.example/y"] == "1", conditions)
	}
}

func TestWhatRulesGive(t *testing.T) {
	given, wrong := apply(t, `
{name: first, labels: {fast: "true", kernel: "@kernel.version.major"}, vars: {rank: "2"}, annotations: {x.example/note: "a b"},
 extendedResources: {x.example/static: "123", x.example/dynamic: "@kernel.version.minor"}},
{name: second, labels: {faster: "true"}, matchFeatures: [{feature: rule.matched, matchExpressions: {fast: {op: IsTrue}, rank: {op: Gt, value: ["1"]}}}]}`)
	assert.Empty(t, wrong)
	assert.Equal(t, Given{
		Labels:      map[string]string{"fast": "true", "kernel": "6", "faster": "true"},
		Annotations: map[string]string{"x.example/note": "a b"},
		Resources:   map[string]string{"x.example/static": "123", "x.example/dynamic": "12"},
	}, given)
}

func TestARuleThatCannotBe(t *testing.T) {
	for rule, says := range map[string]string{
		"labelsTemplate: x":                      "labelsTemplate is not offered; write labels",
		"varsTemplate: x":                        "varsTemplate is not offered; write vars",
		"taints: [{key: a, effect: NoSchedule}]": "taints are not offered; set them with kubectl taint",
		"labels: {a: '@kernel.version.none'}":    "a: this node has no kernel.version.none",
		"labels: {a: '@kernel'}":                 "a: @kernel is no reference; write @DOMAIN.FEATURE.ELEMENT",
		"matchFeatures: [{feature: kernel.version, matchExpressions: {major: {op: Is}}}]":                            `major: op "Is" is none`,
		"matchFeatures: [{feature: kernel.version, matchExpressions: {major: {op: In}}}]":                            `major: op "In" has no value`,
		"matchFeatures: [{feature: kernel.version, matchExpressions: {major: {op: Gt, value: ['1', '2']}}}]":         `major: op "Gt" has 1 values, not 2`,
		"matchFeatures: [{feature: kernel.version, matchExpressions: {full: {op: Gt, value: ['1']}}}]":               `full: "6.12.117+deb13-amd64" is no number`,
		"matchFeatures: [{feature: kernel.version, matchExpressions: {full: {op: Gt, type: version, value: [x]}}}]":  `full: "x" is no version`,
		"matchFeatures: [{feature: kernel.version, matchExpressions: {full: {op: Gt, type: number, value: ['1']}}}]": `full: type "number" is not version`,
		"matchFeatures: [{feature: kernel.version, matchExpressions: {full: {op: InRegexp, value: ['(']}}}]":         "full: \"(\" is no regular expression: error parsing regexp: missing closing ): `(`",
	} {
		given, wrong := apply(t, "{name: r, "+rule+"}, {name: sound, labels: {s: '1'}}")
		assert.Equal(t, []string{`NodeFeatureRule rules: rule "r": ` + says}, wrong)
		assert.Equal(t, map[string]string{"s": "1"}, given.Labels, "others count")
	}
}

func TestWhatOtherProgramsSay(t *testing.T) {
	var n NodeFeature
	require.NoError(t, yaml.Unmarshal([]byte(`{spec: {labels: {vendor.example/a: "1"}, features: {
		flags: {kernel.loadedmodule: {elements: {extra: {}}}, card.kinds: {elements: {fast: {}}}},
		attributes: {card.firmware: {elements: {version: "7"}}},
		instances: {pci.device: {elements: [{attributes: {vendor: beef}}]}}}}}`), &n))
	raw := node()
	raw.Add(n)
	assert.True(t, raw.Flags["kernel.loadedmodule"]["extra"])
	assert.True(t, raw.Flags["kernel.loadedmodule"]["igb"])
	assert.True(t, raw.Flags["card.kinds"]["fast"])
	assert.Equal(t, "7", raw.Attributes["card.firmware"]["version"])
	assert.Len(t, raw.Instances["pci.device"], 3)
}
