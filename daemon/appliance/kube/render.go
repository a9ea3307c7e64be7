package kube

import (
	"embed"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/manifest"
	"firstlight.dev/firstlight/assets/site"
)

//go:embed templates/*
var templates embed.FS

// HostTraits is what kind of box this is, as far as Kubernetes cares.
type HostTraits struct {
	Systemd bool // PID 1 is systemd
	Unified bool // cgroup version 2

	// OOMScores: a process may be put below the kernel's choice of what to end for lack of memory. In a container it
	// may not, whatever PID 1 is.
	OOMScores bool

	// UserNamespace: root here is not root of the machine. The kubelet then passes over what the kernel refuses it.
	UserNamespace bool

	Processors int // that we may use
}

// Driver is who makes pods' cgroups: systemd where it rules a unified tree, else the kubelet itself.
func (w HostTraits) Driver() string {
	if w.Systemd && w.Unified {
		return "systemd"
	}
	return "cgroupfs"
}

// OneThread says that whatever runs all the time on a box with so many processors, the daemon as well, runs
// its Go code on one thread. There are more of these parts than processors anyway, and Go's habit of waking
// another thread for every event costs switches and gains nothing (make bench-idle).
func OneThread(processors int) bool { return processors <= 2 }

// OneThread is that of this box, for the templates.
func (w HostTraits) OneThread() bool { return OneThread(w.Processors) }

// maxProcs are those of a part of the control plane; 0 leaves that to Go.
func (w HostTraits) maxProcs() int {
	if w.OneThread() {
		return 1
	}
	return 0
}

func detectTraits() HostTraits {
	_, noSystemd := os.Stat("/run/systemd/system") // sd_booted(3)
	_, noUnified := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return HostTraits{
		Systemd:       noSystemd == nil,
		Unified:       noUnified == nil,
		OOMScores:     lowersOOMScore("/proc/self/oom_score_adj"),
		UserNamespace: isUserNamespace("/proc/self/uid_map"),
		Processors:    runtime.NumCPU(),
	}
}

// isUserNamespace tells by the map of IDs in file whether a process is in another user namespace than the machine's
// first, whose IDs are all its own (user_namespaces(7)).
func isUserNamespace(file string) bool {
	text, err := os.ReadFile(file)
	return err == nil && strings.Join(strings.Fields(string(text)), " ") != "0 0 4294967295"
}

// lowersOOMScore tries whether the score in file, this process's own, may be lowered, and puts it back. The kernel asks
// for CAP_SYS_RESOURCE where the machine was booted (proc_pid_oom_score_adj(5)).
func lowersOOMScore(file string) bool {
	text, err := os.ReadFile(file)
	if err != nil {
		return false
	}

	score, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return false
	}
	if score <= leastOOMScore {
		return true // somebody has lowered it
	}

	if os.WriteFile(file, []byte(strconv.Itoa(score-1)), 0) != nil {
		return false
	}
	return os.WriteFile(file, []byte(strconv.Itoa(score)), 0) == nil
}

// leastOOMScore is that of a process that the kernel never chooses.
const leastOOMScore = -1000

// file is a text that must be somewhere, as it is.
type file struct {
	path string
	mode os.FileMode
	data []byte
}

// values are what the templates may use.
type values struct {
	Config
	HostTraits
	Domain, Node, Version, Etcd, Pause string
	Authority, Admin, Client, Server   string
	Patches                            string
	Policies, Audit                    string // directories
	PolicyArgs                         []Argument
	APIService, DNSService             netip.Addr
}

func newValues(c Config, w HostTraits) values {
	_, args, _ := policyFiles(c) // nodeFiles tells of the error
	return values{
		Policies:   policyDir,
		Audit:      auditDir,
		PolicyArgs: args,
		Config:     c,
		HostTraits: w,
		Domain:     assets.ImageDomain,
		Node:       NodeName,
		Version:    assets.KubernetesVersion,
		Etcd:       assets.EtcdVersion,
		Pause:      assets.PauseVersion,
		Patches:    patchDir,
		Authority:  caPath,
		Admin:      pkiDir + "/admin",
		Client:     nodeClient,
		Server:     nodeServer,
		APIService: site.NthAddress(c.ServiceCIDR, 1),
		DNSService: site.NthAddress(c.ServiceCIDR, 10),
	}
}

// render fills one of the templates.
func render(name string, v any) ([]byte, error) {
	return manifest.Fill(templates, "templates/"+name, v)
}

// runtimeFiles configure containerd.
func runtimeFiles(c Config, w HostTraits) ([]file, error) {
	text, err := render("containerd.toml", newValues(c, w))
	if err != nil {
		return nil, err
	}

	env, err := render("containerd.env", newValues(c, w))
	files := []file{{"/etc/containerd/config.toml", 0o644, text}, {"/etc/containerd/firstlight.env", 0o644, env}}
	return append(files, timerSlackFiles("containerd.service", w)...), err
}

// timerSlackFiles is how exact the timers of a service are, and of the pods that it starts. Not in /run/systemd/system,
// though /etc as well is made anew at each boot: that directory says that systemd is there (sd_booted(3)).
func timerSlackFiles(unit string, w HostTraits) []file {
	if text := manifest.TimerSlack(w.Processors); text != nil {
		return []file{{"/etc/systemd/system/" + unit + ".d/50-firstlight.conf", 0o644, text}}
	}
	return nil
}

// nodeFiles configure the kubelet and the clients of the API. The kubeconfigs name their
// certificates instead of holding them, so that a renewed one is used without a restart.
// trust is a digest of whom the kubelet and static pods trust, which they read when they start.
func nodeFiles(c Config, w HostTraits, trust string) ([]file, error) {
	v := newValues(c, w)
	list := []struct {
		path, template string
		mode           os.FileMode
		user           string
	}{
		{"/var/lib/kubelet/config.yaml", "kubelet.yaml", 0o644, ""},
		{"/var/lib/kubelet/firstlight.env", "kubelet.env", 0o644, ""},
		{"/var/lib/kubelet/resolv.conf", "resolv.conf", 0o644, ""},
		{"/etc/kubernetes/kubelet.conf", "kubeconfig.yaml", 0o600, nodeClient},
		{AdminConfig, "kubeconfig.yaml", 0o600, pkiDir + "/admin"},
		{"/etc/kubernetes/controller-manager.conf", "kubeconfig.yaml", 0o600, pkiDir + "/controller-manager"},
		{"/etc/kubernetes/scheduler.conf", "kubeconfig.yaml", 0o600, pkiDir + "/scheduler"},
	}
	var files []file
	for _, l := range list {
		text, err := render(l.template, struct {
			values
			User, Trust string
		}{v, l.user, trust})
		if err != nil {
			return nil, err
		}
		files = append(files, file{l.path, l.mode, text})
	}

	policies, _, err := policyFiles(c)
	if err != nil {
		return nil, fmt.Errorf("read policies of the API server: %w", err)
	}

	files = append(files, policies...)
	for _, part := range manifest.StaticPods() {
		name, text := staticPodPatch(part, w, trust)
		files = append(files, file{patchDir + "/" + name, 0o644, text})
	}

	return append(files, timerSlackFiles("kubelet.service", w)...), nil
}

// staticPodPatch is what is changed in kubeadm's manifest of a part. With another digest in its annotation the kubelet
// starts the pod again.
func staticPodPatch(part string, w HostTraits, trust string) (name string, text []byte) {
	name, text = manifest.StaticPodPatch(part, w.maxProcs())
	return name, fmt.Appendf(text, "metadata:\n  annotations: {%s: %q}\n", label.Certificates, trust)
}

// networkFile is the pods' network on this node, from the addresses the control plane gave the node.
func networkFile(podCIDRs []string) (file, error) {
	text, err := render("cni.json", podCIDRs)
	return file{"/etc/cni/net.d/10-firstlight.conflist", 0o644, text}, err
}

// differingFile says which of the files is not as it should be; "" if none.
func (c *Cluster) differingFile(files []file) string {
	for _, f := range files {
		if !fileIs(c.path(f.path), f.data) {
			return f.path
		}
	}
	return ""
}

// put writes those of the files that differ and returns their paths.
func (c *Cluster) put(files []file) (changed []string, err error) {
	for _, f := range files {
		if fileIs(c.path(f.path), f.data) {
			continue
		}
		if err := writeFile(c.path(f.path), f.data, f.mode); err != nil {
			return changed, err
		}
		changed = append(changed, f.path)
	}
	return changed, nil
}
