package closure

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/layer"
)

// imagesDir is the one OCI image layout of the root, annotationName what containerd calls
// an image of it.
const (
	imagesDir      = "/usr/share/firstlight/images"
	annotationName = "io.containerd.image.name"
)

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations"`
}

type manifest struct {
	Config    *descriptor  `json:"config"`
	Layers    []descriptor `json:"layers"`
	Manifests []descriptor `json:"manifests"` // of an index
}

// index reads the layout's index; without a layout it is empty.
func (t *Tree) index() (manifest, error) {
	var m manifest
	if !t.Has(imagesDir + "/index.json") {
		return m, nil
	}

	b, err := t.Read(imagesDir + "/index.json")
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("read %s/index.json: %w", imagesDir, err)
	}

	return m, nil
}

// imageNames lists the names in the layout.
func (t *Tree) imageNames() (map[string]bool, error) {
	m, err := t.index()
	if err != nil {
		return nil, err
	}

	names := map[string]bool{}
	for _, d := range m.Manifests {
		if name := d.Annotations[annotationName]; name != "" {
			names[name] = true
		}
	}

	return names, nil
}

// An image's name in YAML, in a container runtime's settings, and in a template of either;
// the domain and the tag may be blanks for the program that fills the template.
var (
	imageKey  = regexp.MustCompile(`(?m)(?:^|[\s,{"-])"?(?:image|sandbox|sandbox_image|newName)"?\s*[:=]\s*["']?([A-Za-z0-9{][A-Za-z0-9._/:@{}-]*)`)
	domainRef = regexp.MustCompile(`(?:` + regexp.QuoteMeta(assets.ImageDomain) + `|\{\{ *\.Domain *\}\})/[a-z0-9][a-z0-9._/-]*(?::(?:[A-Za-z0-9_][A-Za-z0-9_.-]*|\{\{ *\.[A-Za-z]+ *\}\})|@sha256:[0-9a-f]{64})`)
	template  = regexp.MustCompile(`\{\{ *\.([A-Za-z]+) *\}\}`)
)

// findImages wants every container image that a manifest names. Manifests are YAML files
// of ours, and those that our programs carry inside them; there a name ends where the
// text does, so only complete references count.
func findImages(t *Tree) ([]Miss, error) {
	have, err := t.imageNames()
	if err != nil {
		return nil, err
	}

	var out []Miss
	lines, err := t.readLines(t.ownFiles())
	if err != nil {
		return nil, err
	}

	for _, l := range lines {
		if l.isComment() {
			continue
		}

		refs := domainRef.FindAllString(l.text, -1)
		if name := strings.TrimSuffix(
			strings.SplitN(l.by, ":", 2)[0], ".tmpl",
		); path.Ext(name) == ".yaml" || path.Ext(name) == ".yml" || path.Ext(name) == ".json" || path.Ext(name) == ".toml" {
			for _, m := range imageKey.FindAllStringSubmatch(l.text, -1) {
				if strings.ContainsAny(m[1], "/:") {
					refs = append(refs, m[1])
				}
			}
		}

		for _, ref := range refs {
			if !hasImage(have, ref) {
				out = append(out, Miss{l.by, "image " + ref + " is not in " + imagesDir})
			}
		}
	}

	for _, name := range t.ownPrograms() {
		refs, err := t.embeddedImages(name)
		if err != nil {
			return nil, err
		}
		for _, ref := range refs {
			if !hasImage(have, ref) {
				out = append(
					out, Miss{name, "image " + ref + ", named by a manifest inside it, is not in " + imagesDir},
				)
			}
		}
	}

	return out, nil
}

// hasImage looks a reference up; where it has blanks, any name that fits them does.
func hasImage(have map[string]bool, ref string) bool {
	if !strings.Contains(ref, "{{") {
		return have[ref]
	}

	ref = template.ReplaceAllStringFunc(ref, func(blank string) string {
		if template.FindStringSubmatch(blank)[1] == "Domain" {
			return assets.ImageDomain
		}
		return "\x00"
	})
	parts := strings.Split(ref, "\x00")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}

	fits, err := regexp.Compile("^" + strings.Join(parts, "[A-Za-z0-9_.-]+") + "$")
	if err != nil {
		return false
	}

	for name := range have {
		if fits.MatchString(name) {
			return true
		}
	}

	return false
}

// ownPrograms are the executables of ours that may carry manifests.
func (t *Tree) ownPrograms() []string {
	var out []string
	for _, name := range t.names {
		n := t.nodes[name]
		if n.mode.IsRegular() && n.mode&0o111 != 0 && strings.HasPrefix(path.Base(name), "firstlight") {
			out = append(out, name)
		}
	}
	return out
}

// embeddedImages finds the image lines of manifests inside a program.
func (t *Tree) embeddedImages(name string) ([]string, error) {
	b, err := t.Read(name)
	if err != nil {
		return nil, err
	}

	found := map[string]bool{}
	line := regexp.MustCompile(`\b(?:image|sandbox|sandbox_image)"?\s*[:=]\s*["']?(` + domainRef.String() + `)["']?[ \t]*[\r\n,}]`)
	for _, m := range line.FindAllSubmatch(b, -1) {
		found[string(m[1])] = true
	}

	return slices.Sorted(maps.Keys(found)), nil
}

// kubeadmImages are the repositories that kubeadm starts a control plane from, and the
// pod sandbox (kubeadm config images list).
var kubeadmImages = [...]string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "etcd", "coredns", "pause"}

// findKubeadm wants kubeadm's images where kubeadm is, and the four that carry the
// version of Kubernetes to carry the same.
func findKubeadm(t *Tree) ([]Miss, error) {
	const kubeadm = "/usr/bin/kubeadm"
	if !t.Has(kubeadm) {
		return nil, nil
	}

	have, err := t.imageNames()
	if err != nil {
		return nil, err
	}

	var out []Miss
	versions := map[string]string{}
	for _, repository := range kubeadmImages {
		found := false
		for name := range have {
			tag, ok := strings.CutPrefix(name, assets.ImageDomain+"/"+repository+":")
			if !ok {
				continue
			}

			found = true
			if strings.HasPrefix(repository, "kube-") {
				versions[tag] = repository
			}
		}
		if !found {
			out = append(
				out, Miss{kubeadm, "image " + assets.ImageDomain + "/" + repository + " is not in " + imagesDir},
			)
		}
	}

	if len(versions) > 1 {
		var tags []string
		for tag, repository := range versions {
			tags = append(tags, repository+":"+tag)
		}

		slices.Sort(tags)
		out = append(
			out, Miss{kubeadm, "one version of Kubernetes; the images have several: " + strings.Join(tags, ", ")},
		)
	}

	return out, nil
}

// findLayout wants every blob that the index leads to, with the size and digest it is
// named by.
func findLayout(t *Tree) ([]Miss, error) {
	m, err := t.index()
	if err != nil {
		return nil, err
	}
	if m.Manifests == nil {
		if t.Has(imagesDir) {
			return []Miss{{imagesDir, "index.json with images"}}, nil
		}
		return nil, nil
	}

	var out []Miss
	seen := map[string]bool{}
	type todo struct {
		by string
		d  descriptor
	}
	var list []todo
	for _, d := range m.Manifests {
		by := d.Annotations[annotationName]
		if by == "" {
			by = imagesDir + "/index.json"
			out = append(out, Miss{by, "annotation " + annotationName + " of " + d.Digest})
		}
		list = append(list, todo{by, d})
	}

	for ; len(list) > 0; list = list[1:] {
		by, d := list[0].by, list[0].d
		if seen[d.Digest] {
			continue
		}

		seen[d.Digest] = true
		body, miss, err := t.checkBlob(by, d)
		if err != nil {
			return nil, err
		}
		if miss != nil {
			out = append(out, *miss)
			continue
		}

		var inner manifest
		if body == nil {
			continue
		}
		if err := json.Unmarshal(body, &inner); err != nil {
			out = append(out, Miss{by, "manifest " + d.Digest + " that is JSON"})
			continue
		}

		next := append(inner.Manifests, inner.Layers...)
		if inner.Config != nil {
			next = append(next, *inner.Config)
		}

		for _, child := range next {
			list = append(list, todo{by, child})
		}
	}

	return out, nil
}

// openBlob opens a blob of the layout: a file, or the archive of an unpacked layer.
func (t *Tree) openBlob(sum string) (io.ReadCloser, error) {
	if name := path.Join(imagesDir, "blobs/sha256", sum); t.Has(name) {
		return t.Open(name)
	}

	dir, err := fs.Sub(t.fsys, strings.TrimPrefix(path.Join(imagesDir, layer.Dir, sum), "/"))
	if err != nil {
		return nil, err
	}

	l, err := layer.Open(dir)
	if err != nil {
		return nil, err
	}

	return l.Reader(0), nil
}

// checkBlob checks one blob; of manifests and indexes it returns the content.
func (t *Tree) checkBlob(by string, d descriptor) ([]byte, *Miss, error) {
	sum, ok := strings.CutPrefix(d.Digest, "sha256:")
	if raw, err := hex.DecodeString(sum); !ok || err != nil || len(raw) != sha256.Size {
		return nil, &Miss{by, fmt.Sprintf("a sha256 digest; %q is none", d.Digest)}, nil
	}

	f, err := t.openBlob(sum)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &Miss{by, "blob " + d.Digest + " is not in " + imagesDir}, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()

	var keep strings.Builder
	h := sha256.New()
	var w io.Writer = h
	isManifest := strings.Contains(d.MediaType, "manifest") || strings.Contains(d.MediaType, "index")
	if isManifest {
		w = io.MultiWriter(h, &keep)
	}

	n, err := io.Copy(w, f)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, io.ErrUnexpectedEOF) { // a file of an unpacked layer
		return nil, &Miss{by, fmt.Sprintf("blob %s cannot be read: %v", d.Digest, err)}, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read blob %s: %w", d.Digest, err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); n != d.Size || got != sum {
		return nil, &Miss{by, fmt.Sprintf(
			"blob %s of %d bytes; the file has sha256 %s and %d bytes", d.Digest, d.Size, got, n,
		)}, nil
	}
	if !isManifest {
		return nil, nil, nil
	}

	return []byte(keep.String()), nil, nil
}
