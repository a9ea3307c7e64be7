package closure_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/drivers/moduletest"
	"firstlight.dev/firstlight/image/verify/closure"
)

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text), Mode: 0o644} }
func prog(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text), Mode: 0o755} }
func link(to string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte(to), Mode: fs.ModeSymlink | 0o777}
}

const (
	images   = "usr/share/firstlight/images/"
	disk     = images + "os/disk.raw"
	packages = "usr/share/firstlight/packages/"
	modules  = "usr/lib/modules/6/"
	firmware = "usr/lib/firmware/"
	etc      = "etc/systemd/system/"
	lib      = "usr/lib/systemd/system/"
)

// withImage adds an image of one config and one layer to a layout.
func withImage(tree fstest.MapFS, names ...string) {
	blob := func(b string) map[string]any {
		sum := fmt.Sprintf("%x", sha256.Sum256([]byte(b)))
		tree[images+"blobs/sha256/"+sum] = file(b)
		return map[string]any{"digest": "sha256:" + sum, "size": len(b), "mediaType": "application/octet-stream"}
	}
	// A layer that lies unpacked: headers around the content of one file.
	archive := "head" + "file" + "tail"
	unpacked := fmt.Sprintf("%x", sha256.Sum256([]byte(archive)))
	dir := images + "layers/" + unpacked + "/"
	tree[dir+"headers"], tree[dir+"contents"], tree[dir+"fs/etc/file"] = file("headtail"), file("4 4 \"etc/file\"\n"), file("file")
	tree[dir+"fs/usr/bin/firstlight-link"] = link("/usr/bin/of-the-layer")
	second := map[string]any{"digest": "sha256:" + unpacked, "size": len(archive), "mediaType": "application/octet-stream"}
	var list []map[string]any
	for _, name := range names {
		body, _ := json.Marshal(map[string]any{"config": blob("config " + name), "layers": []any{blob("layer"), second}})
		d := blob(string(body))
		d["mediaType"] = "application/vnd.oci.image.manifest.v1+json"
		d["annotations"] = map[string]string{"io.containerd.image.name": name}
		list = append(list, d)
	}
	index, _ := json.Marshal(map[string]any{"manifests": list})
	tree[images+"index.json"] = file(string(index))
}

// whole is a tree in which every name leads somewhere.
func whole() fstest.MapFS {
	tree := fstest.MapFS{
		"bin":                     link("usr/bin"),
		"usr/bin/true":            prog("\x7fELF"),
		"usr/bin/firstlightd":     prog("\x7fELF\x00\x00apiVersion: v1\n  image: {{.Domain}}/pause:{{.Pause}}\n\x00"),
		"usr/bin/sh":              link("/usr/bin/true"),
		lib + "default.target":    link("multi-user.target"),
		lib + "multi-user.target": file("[Unit]\nRequires=basic.target\nWants=not-there.service\n"),
		lib + "basic.target":      file("[Unit]\n"),
		etc + "multi-user.target.wants/firstlightd.service": link("/usr/lib/systemd/system/firstlightd.service"),
		lib + "firstlightd.service": file("[Unit]\nAfter=basic.target sys-fs.mount\nRequires=getty@tty1.service\n" +
			"[Service]\nExecStart=/bin/firstlightd \\\n  serve\nExecStartPre=-true\nConditionPathExists=/usr/lib/gone\n"),
		lib + "getty@.service":              file("[Service]\nExecStart=-/usr/lib/debians-own-business\n"),
		lib + "unreached.service":           file("[Service]\nExecStart=/usr/bin/nobody-starts-this\n"),
		etc + "masked.service":              link("/dev/null"),
		"usr/lib/firstlight/script":         prog("#!/usr/bin/sh\n# see /usr/share/nothing and https://example.com\ncat /etc/hostname /usr/lib/firstlight/*.d /run/x\ncurl http://127.0.0.1:80/ http://$SERVER/ http://api.svc/\n"),
		"etc/hostname":                      file("x"),
		"usr/share/firstlight/app/pod.yaml": file("spec:\n  containers:\n    - image: firstlight.internal/pause:3\n  # image: nothing/at:all\n"),
	}
	tree["usr/share/firstlight/app/crd.yaml"] = file("spec:\n  description: |-\n    Names of a kind.\n\n    They are in /etc/kinds.\n    More info: https://example.com/kinds\n  type: string\n")
	tree[packages+"Packages"] = file("Package: tool\nHomepage: https://example.com/\nPre-Depends: base\nDepends: gone | libtool1:any (>= 2), awk\nDescription: x\n Depends: prose\nFilename: tool_1_all.deb\nSize: 4\n\n" +
		"Package: libtool1\nFilename: libtool1_2_all.deb\nSize: 3\n\nPackage: base\nProvides: sh (= 1), awk\nFilename: base_1_all.deb\nSize: 3\n")
	tree[packages+"tool_1_all.deb"], tree[packages+"libtool1_2_all.deb"], tree[packages+"base_1_all.deb"] = file("tool"), file("lib"), file("awk")
	tree[modules+"kernel/drivers/net/ice.ko"] = prog(string(moduletest.Module("firmware=intel/ice.pkg")))
	tree[modules+"kernel/drivers/scsi/wd719x.ko"] = prog(string(moduletest.Module("firmware=wd719x-risc.bin")))
	tree[firmware+"intel/ice.pkg.xz"], tree[firmware+"intel/ice-1.pkg.xz"] = link("ice-1.pkg.xz"), file("x")
	tree[firmware+"microcode.cpio"] = file("x")
	withImage(tree, "firstlight.internal/pause:3")
	tree[disk+".own"], tree[disk+".extents"] = file("disk:\x00\x00"), file("5 2 1 \"usr/share/firstlight/app/driver\"\n")
	tree["usr/share/firstlight/app/driver"] = file("a driver")
	tree[disk+".sha256"] = file(fmt.Sprintf("%x  disk.raw\n", sha256.Sum256([]byte("disk: d"))))
	return tree
}

func check(t *testing.T, tree fstest.MapFS) []string {
	t.Helper()
	loaded, err := closure.Load(tree)
	require.NoError(t, err)
	misses, err := closure.Check(loaded, closure.Finders())
	require.NoError(t, err)
	var out []string
	for _, m := range misses {
		out = append(out, m.String())
	}
	return out
}

func TestWholeTreeHasNoMiss(t *testing.T) {
	assert.Empty(t, check(t, whole()))
}

func TestAnAddressBehindADescriptionIsNamed(t *testing.T) {
	tree := whole()
	tree["usr/share/firstlight/app/crd.yaml"] = file("description: prose\n  of https://example.com\nurl: https://example.com/\n")
	assert.Equal(t, []string{"/usr/share/firstlight/app/crd.yaml:3: address https://example.com is outside the rack"}, check(t, tree))
}

func TestEachKindOfMissIsNamed(t *testing.T) {
	layer, unpacked := fmt.Sprintf("%x", sha256.Sum256([]byte("layer"))), fmt.Sprintf("%x", sha256.Sum256([]byte("headfiletail")))
	const unit = lib + "firstlightd.service"
	for _, c := range []struct {
		name  string
		spoil func(fstest.MapFS)
		want  string
	}{
		{"image of a manifest", func(f fstest.MapFS) {
			f["usr/share/firstlight/app/pod.yaml"] = file("a:\n- image: firstlight.internal/pause:4\n")
		}, "/usr/share/firstlight/app/pod.yaml:2: image firstlight.internal/pause:4 is not in /usr/share/firstlight/images"},
		{"image from elsewhere", func(f fstest.MapFS) {
			f["etc/kubernetes/manifests/x.yaml"] = file("image: \"registry.example.com/etcd:v3\"\n")
		}, "/etc/kubernetes/manifests/x.yaml:1: image registry.example.com/etcd:v3 is not in /usr/share/firstlight/images"},
		{"image inside a program", func(f fstest.MapFS) {
			f["usr/bin/firstlightd"] = prog("\x7fELF\x00  image: {{.Domain}}/ironic:{{.Version}}\n")
		}, "/usr/bin/firstlightd: image {{.Domain}}/ironic:{{.Version}}, named by a manifest inside it, is not in /usr/share/firstlight/images"},
		{"blob gone", func(f fstest.MapFS) { delete(f, images+"blobs/sha256/"+layer) },
			"firstlight.internal/pause:3: blob sha256:" + layer + " is not in /usr/share/firstlight/images"},
		{"blob changed", func(f fstest.MapFS) { f[images+"blobs/sha256/"+layer] = file("Layer") },
			"firstlight.internal/pause:3: blob sha256:" + layer + " of 5 bytes; the file has sha256 " + fmt.Sprintf("%x", sha256.Sum256([]byte("Layer"))) + " and 5 bytes"},
		{"file of an unpacked layer changed", func(f fstest.MapFS) { f[images+"layers/"+unpacked+"/fs/etc/file"] = file("File") },
			"firstlight.internal/pause:3: blob sha256:" + unpacked + " of 12 bytes; the file has sha256 " + fmt.Sprintf("%x", sha256.Sum256([]byte("headFiletail"))) + " and 12 bytes"},
		{"file of an unpacked layer gone", func(f fstest.MapFS) { delete(f, images+"layers/"+unpacked+"/fs/etc/file") },
			"firstlight.internal/pause:3: blob sha256:" + unpacked + " cannot be read: read layer: open fs/etc/file: file does not exist"},
		{"what a disk image shares gone", func(f fstest.MapFS) { delete(f, "usr/share/firstlight/app/driver") },
			"/" + disk + ".extents: open usr/share/firstlight/app/driver: file does not exist"},
		{"what a disk image shares changed", func(f fstest.MapFS) { f["usr/share/firstlight/app/driver"] = file("adriver") },
			"/" + disk + ".extents: sha256 " + fmt.Sprintf("%x", sha256.Sum256([]byte("disk: d"))) +
				"; the file has " + fmt.Sprintf("%x", sha256.Sum256([]byte("disk:dr")))},
		{"what a disk image shares cut", func(f fstest.MapFS) { f["usr/share/firstlight/app/driver"] = file("a") },
			"/" + disk + ".extents: byte 5: a file that it is put together from is too short: unexpected EOF"},
		{"index gone", func(f fstest.MapFS) {
			delete(f, images+"index.json")
			delete(f, "usr/share/firstlight/app/pod.yaml")
			f["usr/bin/firstlightd"] = prog("x")
		}, "/usr/share/firstlight/images: index.json with images"},
		{"kubeadm's images", func(f fstest.MapFS) {
			f["usr/bin/kubeadm"] = prog("x")
			withImage(f, "firstlight.internal/pause:3", "firstlight.internal/kube-apiserver:v1", "firstlight.internal/kube-controller-manager:v1",
				"firstlight.internal/kube-scheduler:v1", "firstlight.internal/kube-proxy:v1", "firstlight.internal/coredns:v1")
		}, "/usr/bin/kubeadm: image firstlight.internal/etcd is not in /usr/share/firstlight/images"},
		{"two versions", func(f fstest.MapFS) {
			f["usr/bin/kubeadm"] = prog("x")
			withImage(f, "firstlight.internal/pause:3", "firstlight.internal/kube-apiserver:v1", "firstlight.internal/kube-controller-manager:v1",
				"firstlight.internal/kube-scheduler:v1", "firstlight.internal/kube-proxy:v2", "firstlight.internal/coredns:v1", "firstlight.internal/etcd:v1")
		}, "/usr/bin/kubeadm: one version of Kubernetes; the images have several: kube-proxy:v2, kube-scheduler:v1"},
		{"firmware of a driver", func(f fstest.MapFS) { delete(f, firmware+"intel/ice-1.pkg.xz") },
			"/" + modules + "kernel/drivers/net/ice.ko: the firmware /usr/lib/firmware/intel/ice.pkg"},
		{"microcode", func(f fstest.MapFS) { delete(f, firmware+"microcode.cpio") },
			"/usr/lib/modules/6: the microcode of processors, /usr/lib/firmware/microcode.cpio"},
		{"program of a unit", func(f fstest.MapFS) { f[unit] = file("[Service]\nExecStart=/usr/bin/firstlightq\n") },
			"/" + unit + ":2: ExecStart=/usr/bin/firstlightq: no such program"},
		{"program not executable", func(f fstest.MapFS) { f["usr/bin/firstlightd"].Mode = 0o644 },
			"/" + unit + ":6: ExecStart=/bin/firstlightd: not an executable file"},
		{"required unit", func(f fstest.MapFS) { delete(f, lib+"basic.target") },
			"/" + lib + "multi-user.target:2: Requires=basic.target: no such unit"},
		{"mistyped order", func(f fstest.MapFS) { f[unit] = file("[Unit]\nAfter=containerd.servise\n") },
			"/" + unit + ":2: After=containerd.servise: no such unit"},
		{"wanted unit of ours", func(f fstest.MapFS) { f[unit] = file("[Unit]\nWants=gone.service\n") },
			"/" + unit + ":2: Wants=gone.service: no such unit"},
		{"drop-in of ours", func(f fstest.MapFS) {
			f[lib+"multi-user.target.d/50-firstlight.conf"] = file("[Unit]\nAfter=gone.target\n")
		}, "/" + lib + "multi-user.target.d/50-firstlight.conf:2: After=gone.target: no such unit"},
		{"timer without service", func(f fstest.MapFS) { f[lib+"firstlight-x.timer"] = file("[Timer]\nOnBootSec=1\n") },
			"firstlight-x.timer: it starts firstlight-x.service: no such unit"},
		{"page of a unit", func(f fstest.MapFS) {
			f[unit] = file("[Unit]\nDocumentation=https://example.com/x file:///usr/share/doc/firstlight/boot.md\n")
		}, "/" + unit + ":2: path /usr/share/doc/firstlight/boot.md is not in the root"},
		{"path in a script", func(f fstest.MapFS) {
			f["usr/lib/firstlight/script"] = prog("#!/bin/sh\n. /usr/lib/firstlight/lib.sh\n")
		},
			"/usr/lib/firstlight/script:2: path /usr/lib/firstlight/lib.sh is not in the root"},
		{"interpreter", func(f fstest.MapFS) { f["usr/lib/firstlight/script"] = prog("#!/usr/bin/python3\n") },
			"/usr/lib/firstlight/script:1: path /usr/bin/python3 is not in the root"},
		{"address", func(f fstest.MapFS) { f["usr/lib/firstlight/script"] = prog("\ncurl https://deb.example.org/x\n") },
			"/usr/lib/firstlight/script:2: address https://deb.example.org is outside the rack"},
		{"link", func(f fstest.MapFS) { f["usr/bin/kubelet"] = link("../lib/gone") },
			"/usr/bin/kubelet: link to ../lib/gone, which is not in the root"},
		{"enabled unit", func(f fstest.MapFS) {
			f[etc+"multi-user.target.wants/gone.service"] = link("/usr/lib/systemd/system/gone.service")
		},
			"/" + etc + "multi-user.target.wants/gone.service: link to /usr/lib/systemd/system/gone.service, which is not in the root"},
		{"package gone", func(f fstest.MapFS) { delete(f, packages+"libtool1_2_all.deb") },
			"/usr/share/firstlight/packages/Packages: libtool1: the package /usr/share/firstlight/packages/libtool1_2_all.deb"},
		{"package cut off", func(f fstest.MapFS) { f[packages+"base_1_all.deb"] = file("aw") },
			"/usr/share/firstlight/packages/Packages: base: /usr/share/firstlight/packages/base_1_all.deb has 2 bytes, not 3"},
		{"what a package needs", func(f fstest.MapFS) {
			f[packages+"Packages"] = file("Package: tool\nDepends: gone | libtool1 (>= 2)\nFilename: tool_1_all.deb\nSize: 4\n")
		}, "/usr/share/firstlight/packages/Packages: tool: the package gone | libtool1 (>= 2)"},
		{"link in a circle", func(f fstest.MapFS) { f["usr/bin/a"], f["usr/bin/b"] = link("b"), link("a") },
			"/usr/bin/a: link to b, which is not in the root"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree := fstest.MapFS{}
			for name, f := range maps.All(whole()) {
				copied := *f
				tree[name] = &copied
			}
			c.spoil(tree)
			assert.Contains(t, check(t, tree), c.want)
		})
	}
}

// FuzzCheck holds that no text makes a finder panic.
func FuzzCheck(f *testing.F) {
	f.Add("[Service]\nExecStart=/usr/bin/x\nRequires=a@b.service\n", "{\"manifests\":[{\"digest\":\"sha256:00\"}]}")
	f.Add("image: {{.Domain}}/x:{{.V}}\nExecStart=-@\n=\n", "{}")
	f.Fuzz(func(t *testing.T, text, index string) {
		tree := whole()
		tree[lib+"firstlightd.service"] = file(text)
		tree["usr/share/firstlight/x.yaml"] = file(text)
		tree[images+"index.json"] = file(index)
		loaded, err := closure.Load(tree)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = closure.Check(loaded, closure.Finders())
	})
}
