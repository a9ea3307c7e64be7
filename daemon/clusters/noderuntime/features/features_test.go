package features

import (
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
)

// machine is a root with files.
func machine(files map[string]string) fstest.MapFS {
	root := fstest.MapFS{}
	for name, text := range files {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return root
}

func TestLabelsOfAMachine(t *testing.T) {
	m := Machine{
		CPU: CPU{Vendor: "GenuineIntel", Family: "6", Model: "143", Flags: []string{"AESNI", "AVX512F", "SSE42"}, Threads: true},
		Root: machine(map[string]string{
			"proc/sys/kernel/osrelease":                       "6.12.117+deb13-amd64\n",
			"boot/config-6.12.117+deb13-amd64":                "CONFIG_NO_HZ=y\nCONFIG_NO_HZ_FULL=m\n# CONFIG_PREEMPT is not set\nCONFIG_X=y\n",
			"proc/swaps":                                      "Filename Type Size\n/dev/vda2 partition 1\n",
			"sys/devices/system/node/node0/cpulist":           "0-3",
			"sys/devices/system/node/node1/cpulist":           "4-7",
			"sys/devices/system/node/possible":                "0-1",
			"sys/bus/nd/devices/dax0.0/devtype":               "nd_dax\n",
			"sys/class/net/eth0/device/sriov_totalvfs":        "8\n",
			"sys/class/net/eth0/device/sriov_numvfs":          "0\n",
			"sys/class/net/lo/address":                        "00:00:00:00:00:00",
			"sys/bus/pci/devices/0000:01:00.0/class":          "0x0b4000\n",
			"sys/bus/pci/devices/0000:01:00.0/vendor":         "0x8086\n",
			"sys/bus/pci/devices/0000:01:00.0/sriov_totalvfs": "16\n",
			"sys/bus/pci/devices/0000:02:00.0/class":          "0x020000\n", // a NIC is no accelerator
			"sys/bus/pci/devices/0000:02:00.0/vendor":         "0x8086\n",
			"sys/block/sda/queue/rotational":                  "1\n",
			"sys/block/vda/queue/rotational":                  "0\n",
			"etc/os-release":                                  "ID=debian\nVERSION_ID=\"13.2\"\nNAME=x\n",
			"sys/bus/usb/devices/1-1/bDeviceClass":            "ff\n",
			"sys/bus/usb/devices/1-1/idVendor":                "1d6b\n",
			"sys/bus/usb/devices/1-1/idProduct":               "0104\n",
			"sys/bus/usb/devices/1-0:1.0/bInterfaceClass":     "09\n",
			"sys/fs/selinux/enforce":                          "1",
		}),
	}
	assert.Equal(t, map[string]string{
		"cpu-cpuid.AESNI":                    "true",
		"cpu-cpuid.AVX512F":                  "true",
		"cpu-hardware_multithreading":        "true",
		"cpu-model.family":                   "6",
		"cpu-model.id":                       "143",
		"cpu-model.vendor_id":                "GenuineIntel",
		"kernel-config.NO_HZ":                "true",
		"kernel-selinux.enabled":             "true",
		"kernel-version.full":                "6.12.117+deb13-amd64",
		"kernel-version.major":               "6",
		"kernel-version.minor":               "12",
		"kernel-version.revision":            "117",
		"memory-numa":                        "true",
		"memory-nv.dax":                      "true",
		"memory-nv.present":                  "true",
		"memory-swap":                        "true",
		"network-sriov.capable":              "true",
		"pci-0b40_8086.present":              "true",
		"pci-0b40_8086.sriov.capable":        "true",
		"storage-nonrotationaldisk":          "true",
		"system-os_release.ID":               "debian",
		"system-os_release.VERSION_ID":       "13.2",
		"system-os_release.VERSION_ID.major": "13",
		"system-os_release.VERSION_ID.minor": "2",
		"usb-ff_1d6b_0104.present":           "true",
	}, m.Labels())
	assert.Empty(t, Machine{Root: machine(nil)}.Labels(), "of a machine of which nothing can be read")
}

func TestLocalFeatures(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	all, wrong := Local(machine(map[string]string{
		LocalDir + "/a":       "# what it has\nrack=7\n\nfast\nvendor.example/card = x1\nkubernetes.io/hostname=other\nbad name\n",
		LocalDir + "/b":       "# +expiry-time=2026-11-27T11:00:00Z\nold=1\n# +expiry-time=2026-11-27T13:00:00Z\nnew=1\n# +expiry-time=soon\n",
		LocalDir + "/.hidden": "hidden\n",
		LocalDir + "/large":   string(make([]byte, maxLocal+1)),
		LocalDir + "/d/x":     "deep\n",
	}), now)
	assert.Equal(t, map[string]string{"rack": "7", "fast": "true", "vendor.example/card": "x1", "new": "1"}, all)
	assert.Equal(t, []string{
		"a:6: kubernetes.io/hostname=other is no label of this source",
		"a:7: bad name=true is no label of this source",
		`b:5: "soon" is no time of RFC 3339`,
		"large: it has more than 64 KiB",
	}, wrong)

	all, wrong = Local(machine(nil), now)
	assert.Empty(t, all)
	assert.Empty(t, wrong)
}

func TestPatchOfANode(t *testing.T) {
	value := func(s string) *string { return &s }
	for name, c := range map[string]struct {
		is    Node
		found Given
		want  Change
	}{
		"new": {
			Node{Labels: map[string]string{"zone": "a"}},
			Given{Labels: map[string]string{"memory-numa": "true", "x.example/y": "1"}},
			Change{Metadata: Metadata{
				map[string]*string{Prefix + "memory-numa": value("true"), "x.example/y": value("1")},
				map[string]*string{Annotation: value("memory-numa,x.example/y")},
			}},
		},
		"one has another value, one is gone, and what another wrote stays": {
			Node{
				Labels:      map[string]string{Prefix + "a": "1", Prefix + "b": "1", Prefix + "c": "1"},
				Annotations: map[string]string{Annotation: "a,b"},
			},
			Given{Labels: map[string]string{"a": "2"}},
			Change{Metadata: Metadata{
				map[string]*string{Prefix + "a": value("2"), Prefix + "b": nil},
				map[string]*string{Annotation: value("a")},
			}},
		},
		"everything goes": {
			Node{
				Labels:      map[string]string{Prefix + "a": "1", "zone": "a"},
				Annotations: map[string]string{Annotation: "a,taken-by-hand", annotationAnnotations: "x.example/n", "x.example/n": "1", annotationResources: "x.example/r"},
				Capacity:    map[string]string{"x.example/r": "5", "cpu": "8"},
			},
			Given{},
			Change{
				Metadata{
					map[string]*string{Prefix + "a": nil},
					map[string]*string{Annotation: nil, annotationAnnotations: nil, annotationResources: nil, "x.example/n": nil},
				},
				map[string]*string{"x.example/r": nil},
			},
		},
		"values that are none, and what is Kubernetes' own": {
			Node{},
			Given{
				Labels:      map[string]string{"cpu-model.vendor_id": "AMD ISBETTER", "a": "1"},
				Annotations: map[string]string{"kubernetes.io/x": "1", "long": string(make([]byte, maxAnnotation+1))},
				Resources:   map[string]string{"cpu": "1000", "x.example/none": "0", "x.example/half": "0.5", "x.example/r": "7"},
			},
			Change{
				Metadata{
					map[string]*string{Prefix + "a": value("1")},
					map[string]*string{Annotation: value("a"), annotationResources: value("cpu,x.example/r")},
				},
				map[string]*string{Prefix + "cpu": value("1000"), "x.example/r": value("7")},
			},
		},
	} {
		got := Patch(c.is, c.found)
		assert.Equal(t, c.want.Metadata, got.Metadata, name)
		assert.Equal(t, len(c.want.Capacity), len(got.Capacity), name)
		for r, want := range c.want.Capacity {
			assert.Equal(t, want, got.Capacity[r], name)
		}
	}

	same := Patch(
		Node{map[string]string{Prefix + "a": "1"}, map[string]string{Annotation: "a", annotationResources: "x.example/r"}, map[string]string{"x.example/r": "7"}},
		Given{Labels: map[string]string{"a": "1"}, Resources: map[string]string{"x.example/r": "7"}},
	)
	assert.True(t, same.Metadata.IsEmpty(), "a node that is as found is written again")
	assert.Empty(t, same.Capacity)
}
