package kubernetes

import (
	"bytes"
	"cmp"
	"embed"
	"strings"
	"text/template"
	"time"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/daemon/metal/packages"
)

//go:embed files/*
var files embed.FS

// Programs that are what they are called as.
const (
	program    = "/usr/lib/firstlight/kubernetes"
	cniProgram = "/usr/lib/firstlight/cni"
)

// containerdProgram is containerd and ctr, a path from the top of the root.
const containerdProgram = "usr/bin/containerd"

// debian is one of the packages.
type debian struct {
	name, about string
	version     string // "" for that of Kubernetes
	depends     []string
	files       []packages.File
	texts       map[string]string // path in the package: name of one of files
	scripts     map[string]string // name of the script: name of one of files
	from        string            // where the source is
	holder      string            // of the copyright
}

// Where sources are, and whose they are.
const (
	upstream    = "https://github.com/kubernetes/kubernetes"
	authors     = "The Kubernetes Authors"
	runtimeFrom = "https://github.com/containerd/containerd"
	runtimeAuth = "The containerd Authors"
	pluginsFrom = "https://github.com/containernetworking/plugins"
	cniAuthors  = "CNI authors"
	ours        = "the sources of Firstlight"
	ourAuthors  = "the authors of Firstlight"
)

// hostPrograms are Debian's packages with what kubeadm's preflight, the kubelet and kube-proxy call.
var hostPrograms = []string{"conntrack", "ethtool", "iproute2", "iptables", "mount", "nftables", "util-linux"}

// list lists the packages. ">" after a name stands for this version or a later one: each can be brought to another stick's
// on its own. With the very same version asked for, apt would rather remove the others.
func list(from nodeLayer) []debian {
	command := func(name string) []packages.File {
		return []packages.File{{Path: "/usr/bin/" + name, Link: "../lib/firstlight/kubernetes"}}
	}
	return []debian{
		{
			name:    "firstlight-kubernetes",
			about:   "Kubernetes as one program\n Each of its commands is a package of its own.",
			files:   []packages.File{{Path: program, Mode: 0o755, Source: from.path("usr/bin/kubernetes")}},
			scripts: map[string]string{"postinst": "kubernetes.postinst"},
			from:    upstream,
			holder:  authors,
		},
		{
			name:  "kubelet",
			about: "Kubernetes' agent on a node",
			depends: append(
				[]string{"firstlight-kubernetes>", "firstlight-containerd", "kubernetes-cni"}, hostPrograms...,
			),
			files: command("kubelet"),
			texts: map[string]string{
				"/usr/lib/systemd/system/kubelet.service":    "kubelet.service",
				"/usr/lib/sysctl.d/60-kubernetes.conf":       "sysctl.conf",
				"/usr/lib/modules-load.d/60-kubernetes.conf": "modules.conf",
			},
			scripts: map[string]string{"postinst": "kubelet.postinst", "prerm": "kubelet.prerm"},
			from:    upstream,
			holder:  authors,
		},
		{
			name:    "kubeadm",
			about:   "makes a machine a node of Kubernetes",
			depends: []string{"firstlight-kubernetes>", "kubelet>", "kubectl>"},
			files:   command("kubeadm"),
			texts:   map[string]string{"/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf": "10-kubeadm.conf"},
			scripts: map[string]string{"postinst": "kubeadm.postinst"},
			from:    upstream,
			holder:  authors,
		},
		{
			name:    "kubectl",
			about:   "asks and changes what the API of Kubernetes holds",
			depends: []string{"firstlight-kubernetes>"},
			files:   command("kubectl"),
			from:    upstream,
			holder:  authors,
		},
		{
			name:   "kubernetes-cni",
			about:  "network plugins that containerd calls for pods",
			files:  plugins(from),
			from:   pluginsFrom,
			holder: cniAuthors,
		},
		{
			name:    "containerd",
			about:   "container runtime\n The appliance's own, with more patience than Debian's on a busy machine.",
			version: from.containerd,
			depends: []string{"runc"},
			files:   containerd(),
			scripts: map[string]string{"postinst": "containerd.postinst", "prerm": "containerd.prerm"},
			from:    runtimeFrom,
			holder:  runtimeAuth,
		},
		{
			name:    "firstlight-containerd",
			about:   "containerd's configuration on a node of Kubernetes",
			depends: []string{"containerd (>= " + from.containerd + ")"},
			// A file of the installer's in /etc is named 60-firstlight.conf; systemd would read that one alone.
			texts: map[string]string{
				"/usr/lib/firstlight/containerd.toml":                             "containerd.toml",
				"/usr/lib/systemd/system/containerd.service.d/10-kubernetes.conf": "containerd.conf",
			},
			scripts: map[string]string{"postinst": "configuration.postinst"},
			from:    ours,
			holder:  ourAuthors,
		},
		{
			name:  "firstlight-node",
			about: "what a node of Kubernetes runs besides\n Its service lets the address of a control plane float.",
			files: []packages.File{{
				Path:   "/usr/bin/firstlight-node",
				Mode:   0o755,
				Source: from.path("usr/bin/firstlight-node"),
			}},
			texts:   map[string]string{"/usr/lib/systemd/system/firstlight-float.service": "float.service"},
			scripts: map[string]string{"postinst": "node.postinst", "prerm": "node.prerm"},
			from:    ours,
			holder:  ourAuthors,
		},
	}
}

// plugins are the network plugins, by the names and where upstream's package and kubeadm's networks have them.
func plugins(from nodeLayer) []packages.File {
	all := []packages.File{{Path: cniProgram, Mode: 0o755, Source: from.path("usr/lib/firstlight/cni/cni")}}
	for _, name := range []string{"bridge", "host-local", "loopback", "portmap", "ptp"} {
		all = append(all, packages.File{Path: "/opt/cni/bin/" + name, Link: "../../.." + cniProgram})
	}
	return all
}

// containerd is the appliance's runtime: its programs and its unit.
func containerd() []packages.File {
	const shim, unit = "usr/bin/containerd-shim-runc-v2", "usr/lib/systemd/system/containerd.service"
	return []packages.File{
		{Path: "/" + containerdProgram, Mode: 0o755, Source: containerdProgram},
		{Path: "/usr/bin/ctr", Link: "containerd"},
		{Path: "/" + shim, Mode: 0o755, Source: shim},
		{Path: "/" + unit, Mode: 0o644, Source: unit},
	}
}

// build completes a package. kubernetes is the version of those that have none of their own, and what ">" stands for.
func (d debian) build(kubernetes string, made time.Time) (packages.Build, error) {
	b := packages.Build{Files: d.files, Scripts: map[string]string{}, Time: made}
	var depends []string
	for _, name := range d.depends {
		if other, ok := strings.CutSuffix(name, ">"); ok {
			name = other + " (>= " + kubernetes + ")"
		}
		depends = append(depends, name)
	}

	version := cmp.Or(d.version, kubernetes)
	b.Control = "Package: " + d.name + "\nVersion: " + version + "\nArchitecture: amd64\n" +
		"Section: admin\nPriority: optional\nMaintainer: Firstlight\n"
	if len(depends) > 0 {
		b.Control += "Depends: " + strings.Join(depends, ", ") + "\n"
	}
	b.Control += "Description: " + d.about + "\n"

	texts := map[string]string{"/usr/share/doc/" + d.name + "/copyright": "copyright"}
	for to, name := range d.texts {
		texts[to] = name
	}
	for to, name := range texts {
		text, err := d.fill(name)
		if err != nil {
			return b, err
		}
		b.Files = append(b.Files, packages.File{Path: to, Mode: 0o644, Data: text})
	}

	for script, name := range d.scripts {
		text, err := d.fill(name)
		if err != nil {
			return b, err
		}
		b.Scripts[script] = string(text)
	}

	return b, nil
}

// fill is one of files with its values.
func (d debian) fill(name string) ([]byte, error) {
	t, err := template.ParseFS(files, "files/"+name)
	if err != nil {
		return nil, err
	}

	var b bytes.Buffer
	err = t.Execute(&b, map[string]string{
		"Domain": assets.ImageDomain,
		"Pause":  assets.PauseVersion,
		"From":   d.from,
		"Holder": d.holder,
	})
	return b.Bytes(), err
}
