package containers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"firstlight.dev/firstlight/assets/artifact"
)

// onStick is what the archives of the stick have in place of a cluster. No upload has it: it is no DNS label.
const onStick = "(stick)"

// listStick describes the archives of the stick as if they were uploads, older than any. They stay as they are while the
// appliance runs, so they are read once.
func (p *Pusher) listStick(ctx context.Context) ([]artifact.Metadata, error) {
	if p.Stick == "" || p.stick != nil {
		return p.stick, nil
	}

	found, err := filepath.Glob(filepath.Join(p.Stick, "*", "*"))
	if err != nil {
		return nil, fmt.Errorf("list archives of the stick: %w", err)
	}
	all := []artifact.Metadata{}
	for _, file := range found {
		digest, err := digestOfIndex(ctx, file)
		if isLocalFailure(ctx, err) {
			return nil, err
		}
		if err != nil {
			p.Log.Warn("archive of the stick is not served", "archive", file, "why", err)
			continue
		}
		all = append(all, artifact.Metadata{
			Owner:       filepath.Base(filepath.Dir(file)),
			ClusterName: onStick,
			ImageName:   filepath.Base(file),
			Complete:    true,
			SHA256:      digest,
		})
	}
	p.stick = all
	return all, nil
}

// digestOfIndex stands for the digest of an archive: what its index names, it names by digests. To read gigabytes of a
// stick takes minutes.
func digestOfIndex(ctx context.Context, file string) (string, error) {
	a, err := indexOf(ctx, file)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(indexes, func(name string) bool { return a.files[name].exists() })
	if i < 0 {
		return "", errors.New("it is no archive of images")
	}
	text, err := a.readText(indexes[i])
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err
}

// indexes are the files in which archives say what they have: docker save's, and those of OCI.
var indexes = []string{"manifest.json", "index.json"}

// path is the file of an archive.
func (p *Pusher) path(k artifact.Key) string {
	if k.Cluster == onStick {
		return filepath.Join(p.Stick, k.Owner, k.Name)
	}
	return p.File(k)
}

// logStick says what keeps an archive of the stick from being served; there is no record of it to say so.
func (p *Pusher) logStick(r artifact.Metadata, why string) {
	k := keyOf(r)
	if why != "" && why != p.logged[k] {
		p.Log.Warn("archive of the stick is not served", "archive", p.path(k), "why", why)
	}
	if p.logged == nil {
		p.logged = map[artifact.Key]string{}
	}
	p.logged[k] = why
}
